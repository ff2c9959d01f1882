"""The service against slow, silent and greedy clients: everyone else is served."""

import http.client
import json
import os
import re
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
from support.certificates import Authority
from support.servers import Service, check_error, free_port, raw, wait_until

from runtime.server.connection import HEAD_SECONDS
from runtime.server.errors import ErrorCode

Start = Callable[..., Service]
Connect = Callable[[], socket.socket]
HEAD = b"GET /watcher HTTP/1.1\r\nHost: x\r\n"
THREADS = 2
FEW = ("--provider", "Fake", "--set", f"server.threads={THREADS}")


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service with few threads, which outlives whatever a test sends it."""
    folder = tmp_path_factory.mktemp("worker")
    service = Service(folder / "watcher.sqlite", folder / "watch.log", free_port(), *FEW)
    try:
        service.wait_for("/watcher")
        yield service
    finally:
        service.close()


def connect(service: Service) -> socket.socket:
    """Open a connection."""
    return socket.create_connection(("127.0.0.1", int(service.url.rpartition(":")[2])), timeout=10)


@contextmanager
def trickling(connections: list[socket.socket], data: bytes) -> Iterator[None]:
    """Send on each connection a byte now and then, for as long as the block lasts and bytes are taken."""
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
    """Check that requests are answered, also on new connections, before slow ones are given up."""
    for _ in range(5):
        began = time.monotonic()
        assert service.get("/watcher", **options).status_code == 200
        assert time.monotonic() - began < HEAD_SECONDS


@pytest.mark.slow
def test_clients_that_send_a_byte_now_and_then(service: Service) -> None:
    """More clients than threads that never end their request's head keep nobody out, and are hung up on in the end."""
    with ExitStack() as stack:
        slow = [stack.enter_context(connect(service)) for _ in range(THREADS * 10)]
        with trickling(slow, HEAD + b"X-Slow: " + b"x" * 1000):
            check_served(service)
            closed = wait_until(lambda: all(_is_closed(each) for each in slow), "all are closed", HEAD_SECONDS + 15)
    assert closed


def test_a_slow_client_is_answered_when_it_ends_in_time(service: Service) -> None:
    """A head that comes byte by byte, and another one on the same connection, get their answers."""
    with connect(service) as slow:
        for _ in range(2):
            for byte in HEAD + b"\r\n":
                slow.send(bytes([byte]))
                time.sleep(0.002)
            assert slow.recv(12) == b"HTTP/1.1 200"
            rest = slow.recv(65536)
            while not rest.endswith(b"}"):
                rest += slow.recv(65536)


def test_several_requests_in_one_piece(service: Service) -> None:
    """Requests that come together are answered one after another."""
    last = HEAD.replace(b"/watcher", b"/livez") + b"Connection: close\r\n\r\n"
    _, _, answers = raw(service, b"\r\n" + (HEAD + b"\r\n") * 3 + last)
    assert answers.count(b"HTTP/1.1 200 OK") == 3  # and the first one, whose head raw() has cut off
    assert answers.endswith(b'{"alive":true}')


def test_silent_connections(service: Service) -> None:
    """Connections on which nothing is said, before or after a request, take no thread."""
    with ExitStack() as stack:
        for _ in range(THREADS * 20):
            stack.enter_context(connect(service))
        for _ in range(THREADS * 5):
            session = stack.enter_context(requests.Session())
            assert session.get(f"{service.url}/livez", timeout=10).status_code == 200
        check_served(service)


def test_clients_that_do_not_close(service: Service) -> None:
    """Clients that keep their side open after an answer that ends the connection hold up nobody."""
    with ExitStack() as stack:
        for _ in range(THREADS * 5):
            stubborn = stack.enter_context(connect(service))
            stubborn.sendall(b"GET /livez HTTP/1.0\r\n\r\n")
            assert stubborn.recv(12) == b"HTTP/1.0 200"
        check_served(service)


@pytest.mark.parametrize("first", [b"", b"G", HEAD.replace(b"/watcher", b"/livez") + b"\r\n"])
def test_more_connections_than_there_may_be(watch: Start, first: bytes) -> None:
    """Clients that send nothing, begin a request, or idle after one, keep nobody out however many they are."""
    service = watch(*FEW, open_files=256)  # of which 132 are for connections
    service.wait_for("/watcher")
    worker = service.workers()
    with ExitStack() as stack:
        connections = []
        for _ in range(300):
            connections.append(stack.enter_context(connect(service)))
            connections[-1].sendall(first)
        check_served(service)
        wait_until(lambda: all(map(_is_closed, connections[:150])), "the oldest have made room")
        check_served(service)
    assert service.workers() == worker


@pytest.mark.parametrize("first", [b"", HEAD + b"\r\n"])
def test_more_connections_than_files(watch: Start, first: bytes) -> None:
    """At the limit of open files, which others of the process use too, the worker lives and everyone is served."""
    service = watch(*FEW, open_files=64)
    service.wait_for("/watcher")
    worker = service.workers()
    with ExitStack() as stack:
        for _ in range(200):
            stack.enter_context(connect(service)).sendall(first)
        check_served(service)
    assert service.workers() == worker


@pytest.mark.parametrize("line", [b"X-Slow: yes\r\n", b"\r\n"])
def test_clients_that_send_a_line_now_and_then(watch: Start, line: bytes) -> None:
    """Hundreds that send heads, or nothing but empty lines, line by line while others take their place kill no worker.

    A connection that makes room may have an event of its own in the batch that is being worked on.
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
    """A connection on which no request comes is not kept for as long as one that idles after a request."""
    with connect(service) as silent, requests.Session() as idle:
        assert idle.get(f"{service.url}/livez", timeout=10).status_code == 200
        wait_until(lambda: _is_closed(silent), "the silent one is closed", HEAD_SECONDS + 15)
        with connect(service) as beginning:
            beginning.sendall(b"GET /")
            wait_until(lambda: _is_closed(beginning), "so is the one that stopped in its request", HEAD_SECONDS + 15)


@pytest.fixture(params=["http", "https"])
def large(request: pytest.FixtureRequest, watch: Start, tmp_path: Path) -> tuple[Service, Connect, str]:
    """A service with one thread and answers of megabytes, how to connect to it, and what to trust."""
    settings = ["server.threads=1", "fake.nodes=5000"]
    context, trusted = None, ""
    if request.param == "https":
        authority = Authority(tmp_path, "authority")
        trusted = str(authority.certificate)
        context = ssl.create_default_context(cafile=trusted)
        settings.append(f"server.certificate={authority.issue('server')}")
    service = watch("--provider", "Fake", *(word for setting in settings for word in ("--set", setting)))
    service.url = service.url.replace("http:", f"{request.param}:")
    wait_until(lambda: service.get("/readyz", verify=trusted).ok, "it is ready", 60)

    def open_() -> socket.socket:
        plain = socket.socket()
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # so that little is on its way
        plain.settimeout(10)
        plain.connect(("127.0.0.1", int(service.url.rpartition(":")[2])))
        return context.wrap_socket(plain, server_hostname="127.0.0.1") if context else plain

    return service, open_, trusted


def test_clients_that_do_not_read(large: tuple[Service, Connect, str]) -> None:
    """Clients that do not take their answers have no thread, and get them whole when they do after all."""
    service, open_, trusted = large
    with ExitStack() as stack:
        takers = [stack.enter_context(open_()) for _ in range(10)]
        for taker in takers:
            taker.sendall((HEAD + b"\r\n") * 2 + HEAD + b"Connection: close\r\n\r\n")
        check_served(service, verify=trusted)
        answers = b""
        while chunk := takers[5].recv(1 << 20):
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
    """Only so many answers are kept for clients that do not take them: those that took nothing for longest go."""
    service, open_, trusted = large
    with ExitStack() as stack:
        takers = []
        for _ in range(80):
            takers.append(stack.enter_context(open_()))
            takers[-1].sendall((HEAD + b"\r\n") * 3)  # one answer may be on its way
        check_served(service, verify=trusted)
        worker = psutil.Process(service.workers()[0])

        def open_ones() -> int:
            return [each.status for each in worker.net_connections()].count("ESTABLISHED")

        wait_until(lambda: open_ones() <= 64, "some are closed")


POST = b"POST /watcher HTTP/1.1\r\nHost: x\r\n"


@pytest.mark.parametrize(
    "body",
    [
        b"Content-Length: 5\r\n\r\nabcde",
        b"Transfer-Encoding: chunked\r\n\r\n2;x=y\r\nab\r\n3\r\ncde\r\n0\r\nT: x\r\n\r\n",
    ],
)
def test_a_connection_is_kept_after_a_body(service: Service, body: bytes) -> None:
    """A body is read, also byte by byte, and what follows it is the next request."""
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
def test_a_body_that_is_too_large(service: Service, body: bytes) -> None:
    """A body that announces more than is read is refused at once, in the one shape, and ends the connection."""
    status, headers, answer = raw(service, POST + body)
    assert (status, headers["connection"], headers["content-type"]) == (413, "close", "application/json")
    assert json.loads(answer)["error"]["code"] == ErrorCode.TOO_LARGE
    check_served(service)


def test_a_large_body_that_comes_all_the_same(service: Service) -> None:
    """A client that sends megabytes without waiting gets its refusal whole."""
    check_error(requests.post(f"{service.url}/watcher", data=b"x" * 3_000_000, timeout=10), 413, "too_large")


def test_a_client_that_asks_whether_to_send_its_body(service: Service) -> None:
    """Expect: 100-continue is answered when the head is there, then the request, and the connection is kept."""
    with connect(service) as client:
        for _ in range(2):
            client.sendall(POST + b"Content-Length: 5\r\nExpect: 100-continue\r\n\r\n")
            assert client.recv(65536) == b"HTTP/1.1 100 Continue\r\n\r\n"
            client.sendall(b"abcde")
            answer = http.client.HTTPResponse(client, method="POST")
            answer.begin()
            assert (answer.status, bool(answer.read())) == (405, True)  # all of it: head and body may come apart


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
def test_chunks_that_are_none(service: Service, body: bytes) -> None:
    """What is not made of chunks, or of too many, is a 400 of the one shape that ends the connection."""
    status, headers, answer = raw(service, POST + b"Transfer-Encoding: chunked\r\n\r\n" + body)
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
    """Too many or too long headers, or a long path, are refused in the one shape, also when the head does not end."""
    got, headers, body = raw(service, request_)
    assert (got, headers["content-type"], headers["connection"]) == (status, "application/json", "close")
    assert headers["x-content-type-options"] == "nosniff"
    assert b'"code":"bad_request"' in body


def test_no_answer_names_a_version(service: Service) -> None:
    """The server's software may be told, its version not."""
    for path in ("/watcher", "/nowhere", "/metrics"):
        assert not any(character.isdigit() for character in service.get(path).headers.get("Server", ""))


def test_slow_clients_and_tls(watch: Start, tmp_path: Path) -> None:
    """Clients that stop within the handshake, or send a byte now and then after it, keep nobody out."""
    authority = Authority(tmp_path, "authority")
    certificate = authority.issue("server")
    service = watch(*FEW, "--set", f"server.certificate={certificate}", port=free_port())
    service.url = service.url.replace("http:", "https:")
    trusted = str(authority.certificate)
    wait_until(lambda: service.get("/watcher", verify=trusted).ok, "it is ready")
    context = ssl.create_default_context(cafile=trusted)
    with ExitStack() as stack:
        for index in range(THREADS * 4):
            unshaken = stack.enter_context(connect(service))
            unshaken.send(b"\x16\x03\x01\x02\x00" if index % 2 else b"GET / HTTP/1.1\r\n")
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


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere threads have no priority of their own")
def test_a_history_gives_way(service: Service) -> None:
    """What takes long is answered by threads that run when no others want to; all else at the usual priority."""
    (worker,) = service.workers()
    usual = os.getpriority(os.PRIO_PROCESS, worker)
    assert service.get("/findings").ok
    assert priorities(worker) == {usual}
    assert service.get("/history").ok
    assert priorities(worker) == {usual, 19}


def priorities(process: int) -> set[int]:
    """Return the niceness of each of its threads."""
    return {os.getpriority(os.PRIO_PROCESS, int(each.name)) for each in Path(f"/proc/{process}/task").iterdir()}
