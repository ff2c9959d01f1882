"""Streams and writes of a session over real sockets, and watches of the API server."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import requests
from support.fake_kubernetes import TOKEN, FakeKubernetes, node, run_fake_kubernetes
from support.servers import reply, run_server, serving

from runtime.http import session as transport_session
from runtime.http.errors import Canceled, TooLarge
from runtime.http.failures import FailureKind, describe
from runtime.http.gather import Deadline
from runtime.http.session import BoundedSession, UnexpectedResponse
from runtime.kubernetes.api import ApiServerConfig, KubernetesApi, ResourceExpired


@contextmanager
def opened() -> Iterator[BoundedSession]:
    session = BoundedSession(lambda _request: None)
    try:
        yield session
    finally:
        session.close()


def lines_of(session: BoundedSession, url: str, idle_seconds: float = 5) -> Iterator[bytes]:
    return session.lines(url, idle_seconds=idle_seconds, timeout=5)


def chunked(handler: BaseHTTPRequestHandler, *parts: bytes, then: Callable[[], Any] = lambda: None) -> None:
    """Send a response in chunks, call a function, and end the response."""
    handler.protocol_version = "HTTP/1.1"
    handler.send_response(200)
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()
    for part in parts:
        handler.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
    then()
    handler.wfile.write(b"0\r\n\r\n")
    handler.close_connection = True


def test_lines_are_joined_from_pieces() -> None:
    """Lines are joined from pieces without empty lines, and the last needs no line end."""
    with (
        serving(lambda handler: chunked(handler, b"on", b"e\ntwo\n\nth", b"ree\r\n", b"four")) as fake,
        opened() as session,
    ):
        assert list(lines_of(session, fake.url)) == [b"one", b"two", b"three\r", b"four"]


def test_a_line_is_yielded_before_the_stream_ends() -> None:
    """A line is yielded at once, while the stream goes on."""
    more = threading.Event()
    with serving(lambda handler: chunked(handler, b"one\n", then=lambda: more.wait(10))) as fake, opened() as session:
        lines = lines_of(session, fake.url)
        assert next(lines) == b"one"
        assert not more.is_set()
        more.set()
        assert list(lines) == []


def test_a_silent_stream_times_out() -> None:
    """A stream without data for the idle time fails as a timeout."""
    done = threading.Event()
    with serving(lambda handler: chunked(handler, b"one\n", then=lambda: done.wait(10))) as fake, opened() as session:
        lines = lines_of(session, fake.url, idle_seconds=1)
        assert next(lines) == b"one"
        with pytest.raises(requests.RequestException) as caught:
            next(lines)
        done.set()
    assert describe(caught.value).kind is FailureKind.TIMEOUT


def test_a_stream_with_data_has_no_time_limit() -> None:
    """A stream may take longer than the timeout of its head."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        chunked(handler, b"0\n", then=lambda: [pause(handler, number) for number in range(1, 8)])

    def pause(handler: BaseHTTPRequestHandler, number: int) -> None:
        time.sleep(0.4)
        handler.wfile.write(b"2\r\n%d\n\r\n" % number)

    with serving(answer) as fake, opened() as session:
        lines = session.lines(fake.url, idle_seconds=5, timeout=2)
        assert list(lines) == [b"%d" % number for number in range(8)]


@pytest.mark.parametrize("end", ["abort", "close"])
def test_a_stream_is_canceled_from_another_thread(end: str) -> None:
    """abort() and close() cancel a waiting stream."""
    done = threading.Event()
    with serving(lambda handler: chunked(handler, b"one\n", then=lambda: done.wait(10))) as fake, opened() as session:
        lines = lines_of(session, fake.url, idle_seconds=30)
        assert next(lines) == b"one"
        threading.Timer(0.1, getattr(session, end)).start()
        with pytest.raises(Canceled):
            next(lines)
        done.set()


def test_a_canceled_body_is_not_taken_for_a_complete_one() -> None:
    """A canceled body without a length is an error, not a short response."""
    done = threading.Event()

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n[1, 2]")
        handler.close_connection = True
        done.wait(10)

    with serving(answer) as fake, opened() as session:
        threading.Timer(0.2, session.abort).start()
        with pytest.raises(Canceled):
            session.get(fake.url, timeout=60)
        done.set()


def test_the_length_of_a_line_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """A too long line is an error, while any number of short lines is read."""
    monkeypatch.setattr(transport_session, "_MAX_LINE_BYTES", 100_000)
    with opened() as session:
        with serving(lambda handler: chunked(handler, *[b"x" * 9999 + b"\n"] * 50)) as fake:
            assert sum(map(len, lines_of(session, fake.url))) == 50 * 9999
        with serving(lambda handler: chunked(handler, *[b"x" * 9999] * 50)) as fake, pytest.raises(TooLarge):
            list(lines_of(session, fake.url))


def test_a_rejected_stream_has_the_reason() -> None:
    """A status of 400 or above raises with the body's message."""
    with serving(lambda handler: reply(handler, {"message": "not you"}, 403)) as fake, opened() as session:
        with pytest.raises(requests.HTTPError) as caught:
            next(lines_of(session, fake.url))
    assert describe(caught.value).reason == "403 Forbidden: not you"


def test_a_closed_session_sends_nothing() -> None:
    """A request after close() is not sent."""
    with serving(lambda handler: reply(handler, {})) as fake:
        with opened() as session:
            assert session.get(fake.url).json() == {}
        with pytest.raises(Canceled):
            session.get(fake.url)
    assert len(fake.requests) == 1


def test_the_timeout_covers_all_redirects() -> None:
    """The timeout covers all redirects of a call together."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        time.sleep(0.15)
        reply(handler, "", 302, Location="/again")

    with serving(answer) as fake, opened() as session, pytest.raises(requests.RequestException) as caught:
        session.get(fake.url, timeout=0.5)
    assert describe(caught.value).kind is FailureKind.TIMEOUT
    assert len(fake.requests) < 6


# -- the Kubernetes API -------------------------------------------------------------------------------------------


@pytest.fixture
def fake(kubernetes_folder: Path) -> Iterator[FakeKubernetes]:
    """Run a fake API server with one node."""
    with run_fake_kubernetes(kubernetes_folder) as fake:
        fake.put("nodes", node("a"))
        yield fake


@pytest.fixture
def api(fake: FakeKubernetes) -> Iterator[KubernetesApi]:
    """Return a client of the fake API server."""
    api = KubernetesApi(ApiServerConfig(address=fake.url, token=TOKEN, ca_file=fake.ca_file))
    yield api
    api.close()


def test_a_watch_continues_from_a_list(fake: FakeKubernetes, api: KubernetesApi) -> None:
    """A watch from a list's version yields all later changes, each with a version to continue from."""
    (page,) = api.pages("/api/v1/nodes", Deadline.after(10))
    assert [item["metadata"]["name"] for item in page.items] == ["a"]
    fake.put("nodes", node("b"))
    fake.delete("nodes", node("a"))
    events = api.watch("/api/v1/nodes", page.resource_version, idle_seconds=10)
    first, second = next(events), next(events)
    assert (first.type, first.object["metadata"]["name"]) == ("ADDED", "b")
    assert (second.type, second.object["metadata"]["name"]) == ("DELETED", "a")
    assert int(page.resource_version) < int(first.resource_version) < int(second.resource_version)
    again = api.watch("/api/v1/nodes", first.resource_version, idle_seconds=10)
    assert next(again) == second


def test_a_too_old_version_raises_resource_expired(fake: FakeKubernetes, api: KubernetesApi) -> None:
    """A version that is too old raises ResourceExpired."""
    fake.put("nodes", node("b"))
    fake.forget_history()
    with pytest.raises(ResourceExpired):
        next(api.watch("/api/v1/nodes", "1", idle_seconds=10))


def test_an_idle_watch_times_out_and_abort_cancels_it(api: KubernetesApi, fake: FakeKubernetes) -> None:
    """An idle watch fails as a timeout, and abort() cancels a watch."""
    (page,) = api.pages("/api/v1/nodes", Deadline.after(10))
    with pytest.raises(requests.RequestException) as caught:
        next(api.watch("/api/v1/nodes", page.resource_version, idle_seconds=0.2))
    assert describe(caught.value).kind is FailureKind.TIMEOUT
    threading.Timer(0.2, api.abort).start()
    with pytest.raises(Canceled):
        next(api.watch("/api/v1/nodes", page.resource_version, idle_seconds=30))


@contextmanager
def plain_api(answer: Callable[[BaseHTTPRequestHandler], None]) -> Iterator[KubernetesApi]:
    with serving(answer) as server:
        api = KubernetesApi(ApiServerConfig(address=server.url))
        with contextlib.closing(api):
            yield api


@pytest.mark.parametrize(
    ("line", "error"),
    [
        (b'{"type":"ERROR","object":{"code":410,"message":"too old"}}', ResourceExpired),
        (b'{"type":"ERROR","object":{"code":500,"message":"etcd"}}', UnexpectedResponse),
        (b"<html>", UnexpectedResponse),
        (b"[]", UnexpectedResponse),
        (b'{"type":"ADDED"}', UnexpectedResponse),
    ],
)
def test_an_invalid_event_is_an_error(line: bytes, error: type[Exception]) -> None:
    """An ERROR event, and anything that is not an event, raises."""
    with plain_api(lambda handler: chunked(handler, line + b"\n")) as api, pytest.raises(error):
        next(api.watch("/api/v1/nodes", "1", idle_seconds=5))


def test_a_bookmark_has_a_version() -> None:
    """A watch requests bookmarks, and a bookmark has the version to continue from."""
    seen = []

    def answer(handler: BaseHTTPRequestHandler) -> None:
        seen.append(handler.path)
        chunked(handler, b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"7"}}}\n')

    with plain_api(answer) as api:
        (event,) = api.watch("/api/v1/pods", "5", idle_seconds=5, fieldSelector="spec.nodeName!=")
    assert (event.type, event.resource_version) == ("BOOKMARK", "7")
    assert "allowWatchBookmarks=true" in seen[0]
    assert "fieldSelector=spec.nodeName%21%3D" in seen[0]


def test_writes_send_json_with_its_content_type() -> None:
    """POST, PUT, PATCH and DELETE send JSON with the given content type and return the response."""
    seen: list[tuple[str, str, bytes]] = []

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"] or 0))
            seen.append((self.command, self.headers["Content-Type"], body))
            reply(self, {"done": self.path})

        do_POST = do_PUT = do_PATCH = do_DELETE = answer  # noqa: N815

        def log_message(self, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server, run_server(server):
        api = KubernetesApi(ApiServerConfig(address=f"http://127.0.0.1:{server.server_port}"))
        for method, kind in {
            "POST": "application/json",
            "PUT": "application/json",
            "PATCH": "application/strategic-merge-patch+json",
            "DELETE": "application/json",
        }.items():
            answer = api.send(method, "/it", Deadline.after(5), {"a": 1}, kind, {"fieldManager": "trimaran"})
            assert answer == {"done": "/it?fieldManager=trimaran"}
            assert seen.pop() == (method, kind, b'{"a":1}')
        api.close()


@pytest.mark.parametrize(
    ("content_type", "body", "text"),
    [
        ("application/json", b'{"status": "error", "errorType": "bad_data", "error": "parse error"}', ": parse error"),
        ("application/json", b'{"errors": ["Forbidden", "no such key"]}', ": Forbidden; no such key"),
        ("application/json", b'{"errors": [{"code": 7, "message": "bad token"}]}', ": bad token"),
        ("application/json", b'{"error": {"code": "expired", "message": "token expired"}}', ": token expired"),
        ("application/json", b'{"error": "invalid_token", "error_description": "expired"}', ": invalid_token"),
        ("application/json", b'"no org id"', ": no org id"),
        ("application/json", b"[[[[[[1]]]]]]", ""),
        ("application/json", b"null", ""),
        ("text/plain", b"no org id\n", ": no org id"),
        ("text/plain", b"two\nlines", ": two lines"),
        ("", b"unauthorized", ": unauthorized"),
        ("text/plain", b"Unauthorized", ""),  # as the status line
        ("text/html; charset=utf-8", b"please log in", ""),
        ("", b"<html><body>log in</body></html>", ""),
        ("application/octet-stream", b"\x00\xff\xfe", ""),
        ("text/plain", b"x" * 1000, ": " + "x" * 300),
    ],
)
def test_the_text_of_an_error_reply_is_quoted(content_type: str, body: bytes, text: str) -> None:
    """The reason has the message of a JSON body in its common forms, and a plain text; not a page or bytes."""
    response = requests.Response()
    response.status_code, response.reason, response._content = 401, "Unauthorized", body
    response.headers["Content-Type"] = content_type
    assert describe(requests.HTTPError(response=response)).reason == f"401 Unauthorized{text}"
