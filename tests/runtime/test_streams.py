"""Streams and writes: what a session does beyond whole answers to GET, on real sockets; watches of the API server."""

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
from support.servers import reply, serving

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
    """Answer with chunks, do something, and end."""
    handler.protocol_version = "HTTP/1.1"
    handler.send_response(200)
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()
    for part in parts:
        handler.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
    then()
    handler.wfile.write(b"0\r\n\r\n")
    handler.close_connection = True


def test_lines_come_whole_however_they_are_cut() -> None:
    """Lines are put together from pieces, empty ones left out, and the last needs no end."""
    with (
        serving(lambda handler: chunked(handler, b"on", b"e\ntwo\n\nth", b"ree\r\n", b"four")) as fake,
        opened() as session,
    ):
        assert list(lines_of(session, fake.url)) == [b"one", b"two", b"three\r", b"four"]


def test_a_line_comes_before_the_stream_ends() -> None:
    """What was sent is there at once, while the server has more to say."""
    more = threading.Event()
    with serving(lambda handler: chunked(handler, b"one\n", then=lambda: more.wait(10))) as fake, opened() as session:
        lines = lines_of(session, fake.url)
        assert next(lines) == b"one"
        assert not more.is_set()
        more.set()
        assert list(lines) == []


def test_a_silent_stream_ends_by_the_idle_time() -> None:
    """A server that goes silent without closing is given up, as late."""
    done = threading.Event()
    with serving(lambda handler: chunked(handler, b"one\n", then=lambda: done.wait(10))) as fake, opened() as session:
        lines = lines_of(session, fake.url, idle_seconds=0.2)
        assert next(lines) == b"one"
        with pytest.raises(requests.RequestException) as caught:
            next(lines)
        done.set()
    assert describe(caught.value).kind is FailureKind.TIMEOUT


def test_a_lively_stream_has_no_end() -> None:
    """A stream goes on beyond the time that its head was given, as long as something comes."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        chunked(handler, b"0\n", then=lambda: [pause(handler, number) for number in range(1, 8)])

    def pause(handler: BaseHTTPRequestHandler, number: int) -> None:
        time.sleep(0.1)
        handler.wfile.write(b"2\r\n%d\n\r\n" % number)

    with serving(answer) as fake, opened() as session:
        lines = session.lines(fake.url, idle_seconds=5, timeout=0.4)
        assert list(lines) == [b"%d" % number for number in range(8)]


@pytest.mark.parametrize("end", ["abort", "close"])
def test_a_stream_is_ended_from_another_thread(end: str) -> None:
    """abort() and close() end a waiting stream, and it says so."""
    done = threading.Event()
    with serving(lambda handler: chunked(handler, b"one\n", then=lambda: done.wait(10))) as fake, opened() as session:
        lines = lines_of(session, fake.url, idle_seconds=30)
        assert next(lines) == b"one"
        threading.Timer(0.1, getattr(session, end)).start()
        with pytest.raises(Canceled):
            next(lines)
        done.set()


def test_half_a_body_never_passes_for_a_whole_one() -> None:
    """A body without a length ends with its connection: ended by us, it is an error and not a short answer."""
    done = threading.Event()

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n[1, 2]")
        handler.close_connection = True
        done.wait(10)

    with serving(answer) as fake, opened() as session:
        threading.Timer(0.2, session.abort).start()
        with pytest.raises(Canceled):
            session.get(fake.url, timeout=10)
        done.set()


def test_a_line_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line is bounded, while any number of short ones passes."""
    monkeypatch.setattr(transport_session, "_MAX_LINE_BYTES", 100_000)
    with opened() as session:
        with serving(lambda handler: chunked(handler, *[b"x" * 9999 + b"\n"] * 50)) as fake:
            assert sum(map(len, lines_of(session, fake.url))) == 50 * 9999
        with serving(lambda handler: chunked(handler, *[b"x" * 9999] * 50)) as fake, pytest.raises(TooLarge):
            list(lines_of(session, fake.url))


def test_a_refused_stream_tells_why() -> None:
    """A status of 400 and above raises with its body, which is bounded as any."""
    with serving(lambda handler: reply(handler, {"message": "not you"}, 403)) as fake, opened() as session:
        with pytest.raises(requests.HTTPError) as caught:
            next(lines_of(session, fake.url))
    assert describe(caught.value).reason == "403 Forbidden: not you"


def test_a_closed_session_asks_nobody() -> None:
    """After close() a request ends before it begins."""
    with serving(lambda handler: reply(handler, {})) as fake:
        with opened() as session:
            assert session.get(fake.url).json() == {}
        with pytest.raises(Canceled):
            session.get(fake.url)
    assert len(fake.requests) == 1


def test_the_time_limit_is_over_all_redirects() -> None:
    """A timeout is for the whole call: redirects that each come in time do not add up beyond it."""

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
    """A cluster of one node."""
    with run_fake_kubernetes(kubernetes_folder) as fake:
        fake.put("nodes", node("a"))
        yield fake


@pytest.fixture
def api(fake: FakeKubernetes) -> Iterator[KubernetesApi]:
    """A way to it."""
    api = KubernetesApi(ApiServerConfig(address=fake.url, token=TOKEN, ca_file=fake.ca_file))
    yield api
    api.close()


def test_a_watch_goes_on_from_a_list(fake: FakeKubernetes, api: KubernetesApi) -> None:
    """What happens after a list comes as events, each with the version to go on from; nothing is lost between."""
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


def test_a_version_that_is_too_old_has_expired(fake: FakeKubernetes, api: KubernetesApi) -> None:
    """410, as a status or as an event, says to list anew."""
    fake.put("nodes", node("b"))
    fake.forget_history()
    with pytest.raises(ResourceExpired):
        next(api.watch("/api/v1/nodes", "1", idle_seconds=10))


def test_an_idle_watch_is_late_and_an_aborted_one_ended(api: KubernetesApi, fake: FakeKubernetes) -> None:
    """Both end a watch in which nothing happens."""
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
        yield api
        api.close()


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
def test_what_is_no_event_is_an_error(line: bytes, error: type[Exception]) -> None:
    """An ERROR event raises, as does whatever else a watch does not send."""
    with plain_api(lambda handler: chunked(handler, line + b"\n")) as api, pytest.raises(error):
        next(api.watch("/api/v1/nodes", "1", idle_seconds=5))


def test_a_bookmark_has_a_version() -> None:
    """Bookmarks are asked for, and tell where to go on."""
    seen = []

    def answer(handler: BaseHTTPRequestHandler) -> None:
        seen.append(handler.path)
        chunked(handler, b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"7"}}}\n')

    with plain_api(answer) as api:
        (event,) = api.watch("/api/v1/pods", "5", idle_seconds=5, fieldSelector="spec.nodeName!=")
    assert (event.type, event.resource_version) == ("BOOKMARK", "7")
    assert "allowWatchBookmarks=true" in seen[0]
    assert "fieldSelector=spec.nodeName%21%3D" in seen[0]


def test_writes_carry_their_json_and_its_type() -> None:
    """POST, PUT, PATCH and DELETE send a body as JSON, a patch under the type of its kind, and read the answer."""
    seen: list[tuple[str, str, bytes]] = []

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"] or 0))
            seen.append((self.command, self.headers["Content-Type"], body))
            reply(self, {"done": self.path})

        do_POST = do_PUT = do_PATCH = do_DELETE = answer  # noqa: N815

        def log_message(self, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
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
        server.shutdown()
