"""The server with another program's application, which takes bodies and does not depend on the watcher."""

import json
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
from support.servers import check_error, wait_until

from runtime.server import serving

PROGRAM = """
    import hashlib, os, sys
    from flask import request
    from runtime.server import serving
    from runtime.server.access import AccessCheck
    from runtime.server.flask_app import open_app
    from runtime.server.fast_path import FastPath
    from runtime.server.service import url_of
    from runtime.server.serving import Listener

    counted = []

    def start():
        access = AccessCheck(token="right-token-right-token", section="other")
        app = open_app("other", access, lambda: True, str, lambda: repr(counted).encode())

        @app.post("/digest")
        def digest():
            return {"size": len(request.get_data()), "digest": hashlib.sha256(request.get_data()).hexdigest()}

        return FastPath(app.wsgi_app, lambda *each: counted.append(each[:2]), AccessCheck(token="0123456789abcdef"))

    def stop():
        print("stopped", flush=True)

    listener = Listener(serving.listen("127.0.0.1", 0))
    print(url_of(listener), flush=True)
    serving.serve(start, [listener], threads=2, stop=stop)
"""
HEADERS = {"Authorization": "Bearer right-token-right-token"}


@pytest.fixture(scope="module")
def other() -> Iterator[str]:
    """Run the program as a process, and stop it while a client is in the middle of a request."""
    command = [sys.executable, "-c", textwrap.dedent(PROGRAM)]
    process = subprocess.Popen(command, cwd=Path(__file__).parents[2], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    url = process.stdout.readline().strip()
    wait_until(lambda: requests.get(f"{url}/readyz", timeout=5).ok, "it serves")
    yield url
    with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2]))) as client:
        client.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
        client.recv(1000)
        client.sendall(b"POST /digest HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n12345678")
        time.sleep(0.2)
        process.terminate()
        process.wait(20)
    assert process.communicate(timeout=60)[0].splitlines() == ["stopped"]
    assert process.returncode == 0


#: gunicorn has no handlers yet; a handler of the caller, or none, could end the process at any of its steps.
SIGNALLED_AT_START = """
    import os, signal
    from gunicorn.arbiter import Arbiter

    setup = Arbiter.setup

    def setup_and_signal(arbiter, application):
        os.kill(os.getpid(), signal.SIGTERM)
        setup(arbiter, application)

    Arbiter.setup = setup_and_signal
"""


SIGNALLED = """
    import os, signal, time

    fork = os.fork

    def fork_and_signal():
        if child := fork():
            os.kill(os.getpid(), signal.SIGTERM)
        else:
            time.sleep(1)  # in which the master passes the signal on
        return child

    os.fork = fork_and_signal
"""


#: The worker does not leave fork(2) before a signal arrives; SIGUSR1 wakes it where SIGTERM is held back.
SIGNALLED_IN_FORK = """
    import ctypes, os, pathlib, signal, time

    fork, kill, library = os.fork, os.kill, ctypes.CDLL(None)
    library["__register_atfork"](None, None, ctypes.cast(library.pause, ctypes.c_void_p), None)

    def fork_and_signal():
        child = fork()
        if child:
            kill(os.getpid(), signal.SIGTERM)
        return child

    def kill_and_wake(pid, number):
        while pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "R":
            time.sleep(0.01)  # it has not come to the pause
        kill(pid, number)
        kill(pid, signal.SIGUSR1)

    os.fork, os.kill = fork_and_signal, kill_and_wake
"""


@pytest.mark.parametrize("prelude", [SIGNALLED_AT_START, SIGNALLED, SIGNALLED_IN_FORK], ids=["before", "after", "in"])
def test_a_signal_around_the_fork_ends_the_service(prelude: str) -> None:
    """SIGTERM that comes before master or worker has handlers ends both, without waiting for the graceful timeout."""
    program = textwrap.dedent(prelude) + textwrap.dedent(PROGRAM).replace(
        "serving.serve(", "serving._END_SECONDS = 3600; serving.serve("
    )
    command = [sys.executable, "-c", program]
    result = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, timeout=60, check=False)
    assert (result.returncode, result.stderr) == (0, b"")


def pieces(data: bytes) -> Iterator[bytes]:
    """Yield the data in pieces, which requests sends as chunks."""
    for at in range(0, len(data), 100_000):
        yield data[at : at + 100_000]


@pytest.mark.parametrize("size", [0, 1, 300_000, 8 << 20])
@pytest.mark.parametrize("chunked", [False, True])
def test_bodies(other: str, size: int, chunked: bool) -> None:
    """Bodies up to 8 MiB arrive complete, with a length or in chunks, several on one connection."""
    body = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    with requests.Session() as session:
        for _ in range(2):
            sent = pieces(body) if chunked else body
            answer = session.post(f"{other}/digest", data=sent, headers=HEADERS, timeout=60)
            assert (answer.status_code, answer.json()["size"]) == (200, size)
            assert answer.headers["Connection"] == "keep-alive"


def test_all_addresses_without_ipv6(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine without IPv6, ``::`` listens on all IPv4 addresses."""
    monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: False)
    with serving.listen("::", 0) as listening:
        assert listening.getsockname()[0] == "0.0.0.0"


def test_a_body_above_the_limit(other: str) -> None:
    """A body above 8 MiB is a 413 with the usual error body."""
    refused = requests.post(f"{other}/digest", data=b"x" * ((8 << 20) + 1), headers=HEADERS, timeout=60)
    check_error(refused, 413, "too_large")


def test_access_probes_and_counters(other: str) -> None:
    """Access control, probes, errors and counters work as in the watcher."""
    check_error(requests.post(f"{other}/digest", data=b"x", timeout=60), 401, "unauthorized")
    check_error(requests.get(f"{other}/digest", headers=HEADERS, timeout=60), 405, "method_not_allowed")
    assert json.loads(requests.get(f"{other}/livez", timeout=60).content) == {"alive": True}
    assert "('/digest', 401)" in requests.get(f"{other}/metrics", headers=HEADERS, timeout=60).text
