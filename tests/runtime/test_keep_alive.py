"""Keep-alive connection: every framing of a response, and no request that is sent twice."""

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest
import requests

from runtime.http.gather import Deadline
from runtime.http.session import UnexpectedResponse
from runtime.kubernetes.api import ApiServerConfig, KubernetesApi
from runtime.kubernetes.keep_alive import KeepAliveConnection

OK = b'HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n{"a": 1}'
CLOSE = b""
"""Answer of a server that closes the connection."""


class ScriptedServer:
    """An HTTP server that gives each request the next of its answers, as bytes."""

    def __init__(self) -> None:
        self.answers: list[bytes] = []
        self.requests: list[bytes] = []
        self.connections = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)  # ends accept(), which closing does not
        self._listener.close()
        self._thread.join()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError):  # the client closes the connection
            while True:
                head = b""
                while b"\r\n\r\n" not in head:
                    data = client.recv(65536)
                    if not data:
                        return
                    head += data
                self.requests.append(head)
                answer = self.answers.pop(0)
                if answer == CLOSE:
                    return
                for part in answer.split(b"|"):  # in parts, as the network may deliver them
                    client.sendall(part)
                    time.sleep(0.01)
                if b"x-then-close" in answer:
                    return


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with contextlib.closing(ScriptedServer()) as server:
        yield server


@pytest.fixture
def send(server: ScriptedServer) -> Iterator[Callable[..., object]]:
    """Yield a function that sends a request by one connection."""
    connection = KeepAliveConnection(KubernetesApi(ApiServerConfig(address=server.url, token="secret-token")))

    def send(body: object = None, seconds: float = 5) -> object:
        return connection.send("POST", "/pods", Deadline.after(seconds), body)

    yield send
    connection.close()


def test_requests_share_a_connection(server: ScriptedServer, send: Callable[..., object]) -> None:
    """Each request has the token and the length of its body."""
    server.answers = [OK, OK]
    assert send({"b": 2}) == send() == {"a": 1}
    assert server.connections == 1
    first = server.requests[0]
    assert first.startswith(b"POST /pods HTTP/1.1\r\n")
    assert b"Authorization: Bearer secret-token\r\n" in first
    assert b"Content-Length: 7\r\n" in first
    assert first.endswith(b'\r\n\r\n{"b":2}')


@pytest.mark.parametrize(
    "answer",
    [
        b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n{"a|\r\n5;x=y\r\n": 1}|\r\n0\r\nTrailer: x\r\n\r\n',
        b'HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n|HTTP/1.1 200 OK\r\ncontent-length: 8\r\n\r\n{"a"|: 1}',
        b'HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 8\r\n\r\n{"a": 1}|',
    ],
    ids=["chunked", "early hints", "close"],
)
def test_framings_of_responses(server: ScriptedServer, send: Callable[..., object], answer: bytes) -> None:
    """The response is read to its end, so that the next one begins where it should."""
    server.answers = [answer, OK]
    assert send() == send() == {"a": 1}


def test_a_connection_that_the_server_closed_is_opened_again(
    server: ScriptedServer, send: Callable[..., object]
) -> None:
    """An idle connection may end at any time; the request is sent on a new one."""
    server.answers = [OK.replace(b"200 OK", b"200 x-then-close"), OK]
    send()
    time.sleep(0.1)
    assert send() == {"a": 1}
    assert server.connections == 2


def test_a_request_without_an_answer_is_not_sent_again(server: ScriptedServer, send: Callable[..., object]) -> None:
    """The API server may have executed it."""
    server.answers = [CLOSE, OK]
    with pytest.raises(ConnectionResetError):
        send()
    assert len(server.requests) == 1
    assert send() == {"a": 1}


def test_a_late_response_is_not_taken_for_the_next_one(server: ScriptedServer, send: Callable[..., object]) -> None:
    """After a time-out the connection is closed."""
    server.answers = [b'HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n|{"late":|', OK]
    with pytest.raises(TimeoutError):
        send(seconds=0.2)
    assert send() == {"a": 1}
    assert server.connections == 2


def test_a_refusal_is_raised_as_requests_does(server: ScriptedServer, send: Callable[..., object]) -> None:
    """Callers classify it by its status and message; the connection stays open."""
    body = b'{"kind": "Status", "message": "already assigned"}'
    server.answers = [b"HTTP/1.1 409 Conflict\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body), OK]
    with pytest.raises(requests.HTTPError) as refused:
        send()
    assert refused.value.response.status_code == 409
    assert refused.value.response.json()["message"] == "already assigned"
    send()
    assert server.connections == 1


HEADS = (
    b"HTTP/1.1 0200 OK\r\nContent-Length: 8", b"HTTP/1.1 20 OK\r\nContent-Length: 8",
    b"HTTP/1.1 %s OK\r\nContent-Length: 8" % (b"9" * 5000), b"HTTP/1.1 200 OK\r\nContent-Length: +8",
    b"HTTP/1.1 200 OK\r\nContent-Length: %s" % (b"9" * 5000),
    b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\nContent-Length: 9",
    b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\nTransfer-Encoding: chunked",
    b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\nTransfer-Encoding: gzip",
)  # fmt: skip
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
REST = b'{"a": 1}\r\n0\r\n\r\n'
CHUNKS = (  # a size has hexadecimal digits only; int() reads more (RFC 9112, 7.1)
    *(each + REST for each in (b"-5\r\n", b"+8\r\n", b"0x8\r\n", b"0_8\r\n", b" 8\r\n", b"\xb2\r\n", b"\r\n")),
    b'8\r\n{"a": 1} \r\n0\r\n\r\n', b"8\n" + REST,
)  # fmt: skip


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"SSH-2.0-OpenSSH\r\n\r\n", None),
        (b"HTTP/1.1 200 OK\r\n\r\n", None),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nnone", None),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n", None),
        (CHUNKED + b"x\r\n", None),
        *((head + b'\r\n\r\n{"a": 1}', None) for head in HEADS),
        *((CHUNKED + chunks, r"chunk size|its size") for chunks in CHUNKS),
    ],
)
def test_unusable_responses(
    server: ScriptedServer, send: Callable[..., object], answer: bytes, why: str | None
) -> None:
    """They are errors, as is what two programs could read differently; the next request has a new connection."""
    server.answers = [answer, OK]
    with pytest.raises(UnexpectedResponse, match=why):
        send()
    assert send() == {"a": 1}


def test_a_closed_connection_sends_nothing(server: ScriptedServer) -> None:
    """Closing ends a request of another thread, and refuses later ones."""
    connection = KeepAliveConnection(KubernetesApi(ApiServerConfig(address=server.url)))
    server.answers = [b"HTTP/1.1 200 OK\r\n|" * 300]
    threading.Timer(0.2, connection.close).start()
    with pytest.raises(ConnectionResetError):
        connection.send("GET", "/", Deadline.after(5))
    with pytest.raises(ConnectionAbortedError):
        connection.send("GET", "/", Deadline.after(5))
    assert len(server.requests) == 1
