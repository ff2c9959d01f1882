"""The service against slow, silent and greedy clients: everyone else is served."""

import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import requests
from certificates import Authority
from servers import Service, check_error, free_port, raw, wait_until

from watcher.connections import ANSWER_SECONDS, HEAD_SECONDS

Start = Callable[..., Service]
HEAD = b"GET /watcher HTTP/1.1\r\nHost: x\r\n"
THREADS = 2
FEW = ("--provider", "Fake", "--set", f"server.threads={THREADS}")


@pytest.fixture
def service(watch: Start) -> Service:
    """A service with few threads."""
    service = watch(*FEW)
    service.wait_for("/watcher")
    return service


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
    """Check that requests are answered, also on new connections, long before slow ones are given up."""
    for _ in range(5):
        began = time.monotonic()
        assert service.get("/watcher", **options).status_code == 200
        assert time.monotonic() - began < 1.5


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


def test_clients_that_do_not_read(watch: Start) -> None:
    """A client that does not take its answer keeps a thread for a while and no longer."""
    service = watch("--provider", "Fake", "--set", "server.threads=1", "--set", "fake.nodes=3000")
    wait_until(lambda: service.get("/readyz").ok, "it is ready", 60)
    with connect(service) as greedy:
        greedy.sendall((HEAD + b"\r\n") * 50)
        wait_until(lambda: _is_stuck(service), "the only thread waits for the client")
        assert requests.get(f"{service.url}/livez", timeout=ANSWER_SECONDS + 20).status_code == 200
        assert b"HTTP/1.1 200 OK" in greedy.recv(65536)


@pytest.mark.parametrize(
    "framing",
    [b"Content-Length: 1000000000000", b"Transfer-Encoding: chunked", b"Content-Length: 5\r\nExpect: 100-continue"],
)
def test_a_body_is_not_read(service: Service, framing: bytes) -> None:
    """A request that announces a body is answered at once, without it, and ends the connection."""
    status, headers, _ = raw(service, HEAD + framing + b"\r\n\r\n")
    assert status in {100, 200}  # 100 only for those who ask for it
    assert status == 100 or headers["connection"] == "close"
    check_served(service)


def test_a_body_that_comes_all_the_same(service: Service) -> None:
    """A client that sends megabytes gets its answer whole."""
    response = requests.post(f"{service.url}/watcher", data=b"x" * 3_000_000, timeout=10)
    check_error(response, 405, "method_not_allowed")
    assert service.get("/watcher", data=b"x" * 3_000_000).status_code == 200


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


def _is_stuck(service: Service) -> bool:
    try:
        requests.get(f"{service.url}/livez", timeout=1)
    except requests.ReadTimeout:
        return True
    return False


def _is_closed(connection: socket.socket) -> bool:
    connection.settimeout(0.01)
    try:
        return connection.recv(1) == b""
    except TimeoutError:
        return False
    except OSError:
        return True
