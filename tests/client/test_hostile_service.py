"""ServiceClient against services that misbehave: limits on time, size and redirects."""

import socket
import ssl
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler

import pytest
from support.certificates import Authority
from support.ports import nowhere
from support.servers import Fake, reply, serving

from client import AccessDenied, BadAnswer, ServiceClient, WatcherUnavailable
from runtime.http import session
from runtime.server.errors import encode_error
from watcher import wire
from watcher.model import WatcherMetrics, Window

EMPTY = wire.encode(WatcherMetrics(900, Window("15m", 0, 900), "Prometheus", {}))
HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n"


@contextmanager
def trickling(start: bytes, rest: bytes) -> Iterator[tuple[str, threading.Event]]:
    """Send a start, then the rest byte by byte, repeatedly; yield the URL, and an event for a client that is gone."""
    gone = threading.Event()

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(start)
        try:
            for _ in range(600):
                for number in range(len(rest)):
                    handler.wfile.write(rest[number : number + 1])
                    gone.wait(0.05)
        finally:
            gone.set()

    with serving(answer) as fake:
        yield fake.url, gone
        assert gone.wait(10)


@pytest.mark.parametrize(
    ("start", "rest"),
    [
        (b"", b" "),
        (b"HTTP/1.1 200 OK\r\n", b"X-A: b\r\n"),
        (HEAD + b"\r\n", b" "),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
        (HEAD + b"Content-Encoding: gzip\r\n\r\n\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff", b"\x00\x00\x00\xff\xff"),
    ],
    ids=["status line", "headers", "body", "chunks", "gzip"],
)
def test_a_response_in_single_bytes_ends_at_the_time_limit(start: bytes, rest: bytes):
    """A call ends at its time limit, although each byte restarts the read timeout."""
    with trickling(start, rest) as (address, _):
        with ServiceClient(address, timeout_seconds=0.4, retries=2) as client:
            with pytest.raises(WatcherUnavailable, match=r"0\.4 s"):
                client.metrics()


def test_the_time_limit_covers_all_retries():
    """Retries end when the time limit of the call is over."""
    with serving(lambda handler: reply(handler, b"", 503)) as fake:
        with ServiceClient(fake.url, timeout_seconds=3, retries=100) as client:
            with pytest.raises(WatcherUnavailable, match="503"):
                client.metrics()
    assert 2 <= len(fake.requests) <= 4


def test_a_connection_that_breaks_in_a_response_is_retried():
    """A response that ends in the middle is retried."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        if len(fake.requests) == 1:
            handler.wfile.write(HEAD + b"\r\nhalf")
            handler.close_connection = True
        else:
            reply(handler, EMPTY)

    with serving(answer) as fake, ServiceClient(fake.url, retries=1) as client:
        assert client.metrics().timestamp == 900


def test_close_cancels_a_current_call():
    """close() from another thread cancels the current call, and later calls are not sent."""
    with trickling(HEAD + b"\r\n", b" ") as (address, gone):
        client = ServiceClient(address, timeout_seconds=60)
        failures: list[Exception] = []

        def read() -> None:
            try:
                client.metrics()
            except WatcherUnavailable as error:
                failures.append(error)

        reader = threading.Thread(target=read)
        reader.start()
        assert not gone.wait(0.2)
        client.close()
        reader.join(timeout=60)
        assert not reader.is_alive()
    assert "is closed" in str(failures[0])
    with pytest.raises(WatcherUnavailable, match="closed"):
        client.metrics()


def spaces(handler: BaseHTTPRequestHandler, packed: bool) -> None:
    """Send 3 MiB of spaces, with or without gzip."""
    body = b" " * (3 << 20)
    if not packed:
        reply(handler, body)
        return
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    reply(handler, packer.compress(body) + packer.flush(), Content_Encoding="gzip")


@pytest.mark.parametrize("packed", [True, False])
def test_a_too_large_body_is_given_up(monkeypatch: pytest.MonkeyPatch, packed: bool):
    """A body above the size limit, counted after decompression, raises BadAnswer."""
    monkeypatch.setattr(session, "_MAX_BYTES", 2 << 20)
    with serving(lambda handler: spaces(handler, packed)) as fake, ServiceClient(fake.url) as client:
        with pytest.raises(BadAnswer, match="2 MiB"):
            client.metrics()
    assert len(fake.requests) == 1


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects_are_not_followed(status: int):
    """A redirect is not followed, so no credentials go to another host, and the error names the target."""
    with serving(lambda handler: reply(handler, EMPTY)) as other:
        target = f"{other.url.replace('//', '//me:hush@')}/login?key=hush"
        with serving(lambda handler: reply(handler, b"", status, Location=target)) as fake:
            with ServiceClient(fake.url, token="t" * 20, headers={"X-Api-Key": "secret"}) as client:
                with pytest.raises(BadAnswer, match=f"'{other.url}/login'") as caught:
                    client.metrics()
                assert "redirects to" in client.health()[0]
    assert other.requests == []
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize("location", ["http://[::1", "ftp://x", "//", "\x00", "?"])
def test_a_redirect_to_an_invalid_url_is_reported(location: str):
    """A redirect to an invalid URL raises the same error as any redirect."""
    with serving(lambda handler: reply(handler, b"", 302, Location=location)) as fake:
        with ServiceClient(fake.url) as client, pytest.raises(BadAnswer, match="redirects"):
            client.metrics()


def test_a_rejection_has_the_services_message():
    """The error has the service's message, shortened and without credentials that the service repeats."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        sent = f"{handler.headers['Authorization']} and {handler.headers['X-Api-Key']}"
        reply(handler, encode_error("unauthorized", f"a bearer token is needed, not {sent}{' so' * 1000}"), 401)

    with serving(answer) as fake:
        with ServiceClient(fake.url, token="token-of-mine", headers={"X-Api-Key": "key-of-mine"}) as client:
            with pytest.raises(AccessDenied, match=r"401 .*token") as caught:
                client.metrics()
    assert "of-mine" not in str(caught.value)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    "value", [{"timeout_seconds": value} for value in (-1, 0, float("nan"), float("inf"), True, "10", None)]
    + [{"retries": value} for value in (-1, 1.5, True, "2", None, 10**9)],
)  # fmt: skip
def test_numbers_out_of_range_are_rejected(value: dict[str, object]):
    """A number that urllib3 would reject at the first call is rejected at once, with its name."""
    (name,) = value
    with pytest.raises(ValueError, match=name):
        ServiceClient("http://127.0.0.1:9", **value)


# -- the wrong scheme ---------------------------------------------------------------------------------------------


@contextmanager
def accepting(answer: Callable[[socket.socket], None]) -> Iterator[str]:
    """Accept connections and pass each to a function; yield host and port."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    answer(connection)

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        try:
            yield f"127.0.0.1:{server.getsockname()[1]}"
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


def message_of(address: str, seconds: float = 5) -> str:
    """Return the error message of a client for a URL."""
    with ServiceClient(address, retries=0, timeout_seconds=seconds) as client:
        with pytest.raises(WatcherUnavailable) as caught:
            client.metrics()
    return str(caught.value)


def test_https_to_a_plain_http_server_that_answers():
    """A server that answers a TLS handshake with HTTP gets the hint to use http://."""
    with accepting(lambda peer: (peer.recv(4096), peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n"))) as host:
        message = message_of(f"https://{host}")
    assert "does not speak TLS: should the address begin with http://?" in message


def test_https_to_a_plain_http_server_that_waits():
    """A server that does not answer the TLS handshake gets the hint to use http://."""
    done = threading.Event()
    with accepting(lambda _: done.wait(10)) as host:
        message = message_of(f"https://{host}", 0.3)
        assert "should the address begin with http://" in message
        assert "http://" not in message_of(f"http://{host}", 0.3).replace(f"http://{host}", "")
        done.set()


@pytest.mark.parametrize("last_words", [b"", b"\x15\x03\x03\x00\x02\x02\x46"])
def test_http_to_a_tls_server(last_words: bytes):
    """A server that resets the connection or answers with a TLS alert gets the hint to use https://."""
    with accepting(lambda peer: (peer.recv(4096), peer.sendall(last_words))) as host:
        message = message_of(f"http://{host}")
    assert message.endswith("https://?")
    assert message.isprintable()


def test_a_refused_connection_has_no_hint():
    """A refused connection has no hint about the scheme."""
    assert message_of(nowhere()).endswith("Connection refused")


def test_the_limits_hold_over_tls(tmp_path):
    """The time limit holds over TLS, and an untrusted certificate is reported in one line."""
    authority = Authority(tmp_path, "authority")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(authority.issue("service"))

    def answer(handler: BaseHTTPRequestHandler) -> None:
        if len(fake.requests) == 1:
            reply(handler, EMPTY)
            return
        handler.wfile.write(HEAD + b"\r\n")
        for _ in range(600):
            handler.wfile.write(b" ")
            gone.wait(0.05)

    gone = threading.Event()
    fake: Fake
    with serving(answer, context) as fake:
        address = fake.url.replace("http:", "https:")
        assert "TLS failed: [SSL: CERTIFICATE_VERIFY_FAILED]" in message_of(address)
        with ServiceClient(address, ca_file=authority.certificate, timeout_seconds=1) as client:
            assert client.metrics().timestamp == 900
            with pytest.raises(WatcherUnavailable, match=r"1 s$"):
                client.metrics()
        gone.set()
