"""The service with slow, silent and greedy clients, while other clients are served."""

import http.client
import json
import os
import re
import signal
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psutil
import pytest
import requests
from gunicorn.config import Config
from support.certificates import Authority
from support.servers import Service, check_error, send_raw, wait_until

from runtime.server.connection import HEAD_SECONDS
from runtime.server.errors import ErrorCode
from runtime.server.worker import Worker

Start = Callable[..., Service]
Connect = Callable[[], socket.socket]
HEAD = b"GET /watcher HTTP/1.1\r\nHost: x\r\n"
THREADS = 2
FEW = ("--provider", "Fake", "--set", f"server.threads={THREADS}")


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Run a service with few threads for all tests of the module."""
    folder = tmp_path_factory.mktemp("worker")
    service = Service(folder / "watcher.sqlite", folder / "watch.log", *FEW)
    try:
        service.wait_for("/watcher")
        yield service
    finally:
        service.close()


def connect(service: Service) -> socket.socket:
    """Open a connection to the service."""
    return socket.create_connection(("127.0.0.1", int(service.url.rpartition(":")[2])), timeout=60)


@contextmanager
def trickling(connections: list[socket.socket], data: bytes) -> Iterator[None]:
    """Send data on each connection one byte at a time, until the block ends."""
    done = threading.Event()

    def trickle() -> None:
        for index in range(len(data)):
            for connection in connections:
                try:
                    connection.send(data[index : index + 1])
                except OSError:
                    continue
            if done.wait(0.1):
                return

    thread = threading.Thread(target=trickle)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join(10)


def check_served(service: Service, **options: object) -> None:
    """Check that requests on new connections are answered before slow ones time out."""
    for _ in range(5):
        started_at = time.monotonic()
        assert service.get("/watcher", **options).status_code == 200
        assert time.monotonic() - started_at < HEAD_SECONDS


@pytest.mark.slow
def test_slow_request_heads_do_not_block_other_clients(service: Service) -> None:
    """Many clients with a slow, endless head do not block others, and their connections are closed."""
    with ExitStack() as stack:
        slow = [stack.enter_context(connect(service)) for _ in range(THREADS * 10)]
        with trickling(slow, HEAD + b"X-Slow: " + b"x" * 1000):
            check_served(service)
            closed = wait_until(lambda: all(_is_closed(each) for each in slow), "all are closed", HEAD_SECONDS + 15)
    assert closed


def test_a_slow_client_within_the_time_limit_is_answered(service: Service) -> None:
    """Two heads that arrive byte by byte on one connection are answered."""
    with connect(service) as slow:
        for _ in range(2):
            for byte in HEAD + b"\r\n":
                slow.send(bytes([byte]))
                time.sleep(0.002)
            assert slow.recv(12) == b"HTTP/1.1 200"
            rest = slow.recv(65536)
            while not rest.endswith(b"}"):
                rest += slow.recv(65536)


def test_pipelined_requests(service: Service) -> None:
    """Requests that arrive together are answered in order."""
    last = HEAD.replace(b"/watcher", b"/livez") + b"Connection: close\r\n\r\n"
    _, _, answers = send_raw(service, b"\r\n" + (HEAD + b"\r\n") * 3 + last)
    assert answers.count(b"HTTP/1.1 200 OK") == 3  # without the first, whose head send_raw() has removed
    assert answers.endswith(b'{"alive":true}')


def test_silent_connections(service: Service) -> None:
    """Connections that are silent before or after a request occupy no thread."""
    with ExitStack() as stack:
        for _ in range(THREADS * 20):
            stack.enter_context(connect(service))
        for _ in range(THREADS * 5):
            session = stack.enter_context(requests.Session())
            assert session.get(f"{service.url}/livez", timeout=60).status_code == 200
        check_served(service)


def test_clients_that_do_not_close(service: Service) -> None:
    """Clients that do not close their side after the last response do not block others."""
    with ExitStack() as stack:
        for _ in range(THREADS * 5):
            stubborn = stack.enter_context(connect(service))
            stubborn.sendall(b"GET /livez HTTP/1.0\r\n\r\n")
            assert stubborn.recv(12) == b"HTTP/1.0 200"
        check_served(service)


@pytest.mark.parametrize("first", [b"", b"G", HEAD.replace(b"/watcher", b"/livez") + b"\r\n"])
def test_more_connections_than_the_limit(watch: Start, first: bytes) -> None:
    """Above the limit of connections, the oldest waiting ones are closed and others are served."""
    service = watch(*FEW, open_files=256)  # which leaves 132 for connections
    service.wait_for("/watcher")
    worker = service.workers()
    with ExitStack() as stack:
        connections = []
        for _ in range(300):
            connections.append(stack.enter_context(connect(service)))
            connections[-1].sendall(first)
        check_served(service)
        wait_until(lambda: all(map(_is_closed, connections[:150])), "the oldest are closed")
        check_served(service)
    assert service.workers() == worker


@pytest.mark.parametrize("first", [b"", HEAD + b"\r\n"])
def test_more_connections_than_open_files(watch: Start, first: bytes) -> None:
    """At the limit of open files the worker keeps running and serves requests."""
    service = watch(*FEW, open_files=64)
    service.wait_for("/watcher")
    worker = service.workers()
    with ExitStack() as stack:
        for _ in range(200):
            stack.enter_context(connect(service)).sendall(first)
        check_served(service)
    assert service.workers() == worker


@pytest.mark.parametrize("line", [b"X-Slow: yes\r\n", b"\r\n"])
def test_clients_that_send_line_by_line(watch: Start, line: bytes) -> None:
    """Hundreds of clients that send line by line while others connect do not crash the worker.

    A connection that is closed to make room may have an event in the current batch.
    """
    service = watch(*FEW, open_files=256)
    service.wait_for("/watcher")
    worker = service.workers()
    with ExitStack() as stack:
        slow = [stack.enter_context(connect(service)) for _ in range(120)]
        with trickling(slow, line * 10):
            for _ in range(10):
                slow += [stack.enter_context(connect(service)) for _ in range(60)]
                for each in slow:
                    with suppress(OSError):
                        each.send(line)
            check_served(service)
    assert service.workers() == worker
    assert "Traceback" not in service.log.read_text()


@pytest.mark.slow
def test_silent_connections_are_closed(service: Service) -> None:
    """A new connection without a request is closed sooner than one that is idle after a request."""
    with connect(service) as silent, requests.Session() as idle:
        assert idle.get(f"{service.url}/livez", timeout=60).status_code == 200
        wait_until(lambda: _is_closed(silent), "the silent connection is closed", HEAD_SECONDS + 15)
        with connect(service) as beginning:
            beginning.sendall(b"GET /")
            wait_until(lambda: _is_closed(beginning), "the incomplete request is closed", HEAD_SECONDS + 15)


@pytest.fixture(params=["http", "https"])
def large(request: pytest.FixtureRequest, watch: Start, tmp_path: Path) -> tuple[Service, Connect, str]:
    """Run a service with one thread and large responses; return it, a function that connects, and the CA file."""
    settings = ["server.threads=1", "fake.nodes=5000"]
    context, trusted = None, ""
    if request.param == "https":
        authority = Authority(tmp_path, "authority")
        trusted = str(authority.certificate)
        context = ssl.create_default_context(cafile=trusted)
        settings.append(f"server.certificate={authority.issue('server')}")
    service = watch("--provider", "Fake", *(word for setting in settings for word in ("--set", setting)))
    wait_until(lambda: service.get("/readyz", verify=trusted).ok, "it is ready")

    def open_() -> socket.socket:
        plain = socket.socket()
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # limits the data in the kernel
        plain.settimeout(10)
        plain.connect(("127.0.0.1", int(service.url.rpartition(":")[2])))
        return context.wrap_socket(plain, server_hostname="127.0.0.1") if context else plain

    return service, open_, trusted


def test_clients_that_do_not_read(large: tuple[Service, Connect, str]) -> None:
    """Clients that do not read their responses occupy no thread, and get all when they read later."""
    service, open_, trusted = large
    with ExitStack() as stack:
        clients = [stack.enter_context(open_()) for _ in range(10)]
        for client in clients:
            client.sendall((HEAD + b"\r\n") * 2 + HEAD + b"Connection: close\r\n\r\n")
        check_served(service, verify=trusted)
        answers = b""
        while chunk := clients[5].recv(1 << 20):
            answers += chunk
        lengths = [int(length) for length in re.findall(rb"Content-Length: (\d+)\r\n", answers)]
        assert len(lengths) == 3
        assert min(lengths) > 1_000_000
        head, _, rest = answers.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 OK")
        assert len(json.loads(rest[: lengths[0]])["data"]) == 5000
        assert len(json.loads(rest[-lengths[2] :])["data"]) == 5000
        check_served(service, verify=trusted)


def test_many_clients_that_do_not_read(large: tuple[Service, Connect, str]) -> None:
    """The number of unsent responses is limited, and the connections with the longest wait are closed."""
    service, open_, trusted = large
    with ExitStack() as stack:
        clients = []
        for _ in range(80):
            clients.append(stack.enter_context(open_()))
            clients[-1].sendall((HEAD + b"\r\n") * 3)  # one response may be in the kernel
        check_served(service, verify=trusted)
        worker = psutil.Process(service.workers()[0])

        def open_count() -> int:
            return [each.status for each in worker.net_connections()].count("ESTABLISHED")

        wait_until(lambda: open_count() <= 64, "some are closed")


POST = b"POST /watcher HTTP/1.1\r\nHost: x\r\n"


@pytest.mark.parametrize(
    "body",
    [
        b"Content-Length: 5\r\n\r\nabcde",
        b"Transfer-Encoding: chunked\r\n\r\n2;x=y\r\nab\r\n3\r\ncde\r\n0\r\nT: x\r\n\r\n",
    ],
)
def test_a_connection_stays_open_after_a_body(service: Service, body: bytes) -> None:
    """The data after a body is read as the next request."""
    with connect(service) as client:
        for byte in POST + body:
            client.send(bytes([byte]))
            time.sleep(0.001)
        assert client.recv(65536).startswith(b"HTTP/1.1 405")
        client.sendall(HEAD + body + HEAD + b"Connection: close\r\n\r\n")
        answers = b"".join(iter(lambda: client.recv(65536), b""))
    assert answers.count(b"HTTP/1.1 200 OK") == 2


@pytest.mark.parametrize(
    "body",
    [
        b"Content-Length: 1000000000000\r\n\r\n",
        b"Content-Length: 100000\r\nExpect: 100-continue\r\n\r\n",
        b"Transfer-Encoding: chunked\r\n\r\nfffffffff\r\n",
        b"Transfer-Encoding: chunked\r\n\r\n" + b"1000\r\n" + b"x" * 4096 + b"\r\n" + b"ffff\r\n",
    ],
)
def test_a_too_large_body_is_rejected_at_once(service: Service, body: bytes) -> None:
    """A body that announces a too large size is a 413 that closes the connection."""
    status, headers, answer = send_raw(service, POST + body)
    assert (status, headers["connection"], headers["content-type"]) == (413, "close", "application/json")
    assert json.loads(answer)["error"]["code"] == ErrorCode.TOO_LARGE
    check_served(service)


def test_a_client_that_sends_a_too_large_body_gets_the_response(service: Service) -> None:
    """A client that sends megabytes without waiting gets the complete 413."""
    check_error(requests.post(f"{service.url}/watcher", data=b"x" * 3_000_000, timeout=60), 413, "too_large")


def test_expect_100_continue(service: Service) -> None:
    """Expect: 100-continue is answered after the head, then the request, on a connection that stays open."""
    with connect(service) as client:
        for _ in range(2):
            client.sendall(POST + b"Content-Length: 5\r\nExpect: 100-continue\r\n\r\n")
            assert client.recv(65536) == b"HTTP/1.1 100 Continue\r\n\r\n"
            client.sendall(b"abcde")
            answer = http.client.HTTPResponse(client, method="POST")
            answer.begin()
            assert (answer.status, bool(answer.read())) == (
                405,
                True,
            )  # the body may arrive after the head


@pytest.mark.parametrize(
    "body",
    [
        b"x\r\n",
        b"-1\r\n",
        b"1\r\nab\r\n",
        b"1\nx\r\n0\r\n\r\n",
        b"1" * 5000,
        b"0\r\n" + b"T: x\r\n" * 1000,
        b"1\r\nx\r\n" * 40000,
    ],
)
def test_malformed_chunks(service: Service, body: bytes) -> None:
    """Malformed or too many chunks are a 400 that closes the connection."""
    status, headers, answer = send_raw(service, POST + b"Transfer-Encoding: chunked\r\n\r\n" + body)
    assert (status, headers["connection"]) == (400, "close")
    assert b'"code":"bad_request"' in answer


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (HEAD + b"X: y\r\n" * 100 + b"\r\n", 431),
        (HEAD + b"X: " + b"x" * 100_000, 431),
        (HEAD + (b"X-%d: " + b"x" * 4000 + b"\r\n") * 30, 431),
        (b"GET /" + b"x" * 5000 + b" HTTP/1.1\r\n\r\n", 414),
    ],
)
def test_requests_that_are_too_long(service: Service, request_: bytes, status: int) -> None:
    """Too long paths and headers, and too many headers, are rejected with the usual error body."""
    got, headers, body = send_raw(service, request_)
    assert (got, headers["content-type"], headers["connection"]) == (status, "application/json", "close")
    assert headers["x-content-type-options"] == "nosniff"
    assert b'"code":"bad_request"' in body


def test_no_response_has_the_servers_version(service: Service) -> None:
    """The Server header has no version."""
    for path in ("/watcher", "/nowhere", "/metrics"):
        assert not any(character.isdigit() for character in service.get(path).headers.get("Server", ""))


def test_slow_clients_over_tls(watch: Start, tmp_path: Path) -> None:
    """Clients that are slow during or after the TLS handshake do not block others."""
    authority = Authority(tmp_path, "authority")
    certificate = authority.issue("server")
    service = watch(*FEW, "--set", f"server.certificate={certificate}")
    trusted = str(authority.certificate)
    wait_until(lambda: service.get("/watcher", verify=trusted).ok, "it is ready")
    context = ssl.create_default_context(cafile=trusted)
    with ExitStack() as stack:
        for index in range(THREADS * 4):
            without_handshake = stack.enter_context(connect(service))
            without_handshake.send(b"\x16\x03\x01\x02\x00" if index % 2 else b"GET / HTTP/1.1\r\n")
        slow = [
            stack.enter_context(context.wrap_socket(connect(service), server_hostname="127.0.0.1"))
            for _ in range(THREADS * 4)
        ]
        with trickling(slow, HEAD + b"X-Slow: " + b"x" * 1000):
            check_served(service, verify=trusted)
    assert "Traceback" not in service.log.read_text()


def _is_closed(connection: socket.socket) -> bool:
    connection.settimeout(0.01)
    try:
        while connection.recv(65536):
            pass
    except TimeoutError:
        return False
    except OSError:
        pass
    return True


@pytest.mark.skipif(sys.platform != "linux", reason="threads have priorities of their own on Linux only")
def test_a_history_is_computed_at_low_priority(watch: Start) -> None:
    """Slow requests are processed in threads of the lowest priority, others at the usual one."""
    service = watch(*FEW)  # no other test has asked this one for a history
    service.wait_for("/watcher")
    (worker,) = service.workers()
    usual = os.getpriority(os.PRIO_PROCESS, worker)
    assert service.get("/findings").ok
    assert priorities(worker) == {usual}
    assert service.get("/history").ok
    assert priorities(worker) == {usual, 19}


def test_a_history_is_not_computed_for_a_client_that_has_left(service: Service) -> None:
    """Requests that wait for a thread of low priority are dropped when their clients close the connection."""
    service.get("/history", params={"type": "CPU"})
    before = histories(service)
    (worker,) = psutil.Process(service.process.pid).children()
    worker.suspend()
    try:
        for _ in range(5):
            with connect(service) as client:
                client.sendall(b"GET /history?type=CPU HTTP/1.1\r\nHost: x\r\n\r\n")
    finally:
        worker.resume()
    assert service.get("/history", params={"type": "CPU"}).status_code == 200
    assert histories(service) == before + 1


def histories(service: Service) -> float:
    """Return the number of histories that were computed."""
    counts = re.findall(r'^\S+requests_total{[^}]*"/history"[^}]*} (\S+)$', service.get("/metrics").text, re.MULTILINE)
    return sum(map(float, counts))


def priorities(process: int) -> set[int]:
    """Return the niceness values of a process's threads."""
    return {os.getpriority(os.PRIO_PROCESS, int(each.name)) for each in Path(f"/proc/{process}/task").iterdir()}


def test_sigquit_while_a_request_is_passed_to_a_thread() -> None:
    """A signal to stop at once, like SIGINT's, waits for no lock that the interrupted main thread holds."""
    worker = Worker(0, os.getpid(), [], None, 1, Config(), None)
    worker.tmp.close()
    with worker._pool._shutdown_lock:
        handler = threading.Thread(target=worker.handle_quit, args=(signal.SIGQUIT, None))
        handler.start()
        handler.join(10)
        assert not handler.is_alive()
    assert not worker.alive
