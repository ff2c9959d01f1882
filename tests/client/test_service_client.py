"""ServiceClient against real HTTP servers, ours and one that speaks the Go dialect."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from urllib.parse import parse_qs, urlsplit

import pytest
from support import servers
from support.servers import reply

from client import (
    AccessDenied,
    BadAnswer,
    NoMetrics,
    ServiceClient,
    StaleMetrics,
    UnknownNode,
    UnknownWindow,
    WatcherUnavailable,
)
from watcher import wire
from watcher.model import Metric, NodeMetrics, WatcherMetrics, Window

Answer = tuple[int, dict[str, str], bytes]

# What load-watcher's Go service sends: gojay's field order, the extra level, empty tags and metadata.
GO_BODY = (
    b'{"timestamp":1556987522,"window":{"duration":"15m","start":1556986622,"end":1556987522},"source":"Prometheus",'
    b'"data":{"NodeMetricsMap":{"node-1":{"metrics":[{"name":"instance:node_cpu:ratio","type":"CPU","operator":"AVG",'
    b'"rollup":"15m","value":20.5}],"tags":{},"metadata":{"dataCenter":""}},'
    b'"node-2":{"metrics":[],"tags":{},"metadata":{}}}}}'
)


@contextmanager
def serving(answer: Callable[[BaseHTTPRequestHandler], Answer]) -> Iterator[str]:
    """Run a server that answers every GET with what the function returns, and yield its address."""

    def send(handler: BaseHTTPRequestHandler) -> None:
        status, headers, body = answer(handler)
        reply(handler, body, status, **headers)

    with servers.serving(send) as fake:
        yield fake.url


def error(status: int, code: str) -> Answer:
    """Return an error as the contract has it."""
    return status, {}, json.dumps({"error": {"code": code, "message": f"it is {code}"}}).encode()


def test_reads_the_go_dialect():
    """The answer of a bare Go-dialect server is read into the same objects as ours."""
    with serving(lambda _: (200, {}, GO_BODY)) as address, ServiceClient(address) as client:
        metrics = client.metrics()
    assert metrics == WatcherMetrics(
        1556987522,
        Window("15m", 1556986622, 1556987522),
        "Prometheus",
        {
            "node-1": NodeMetrics(
                (Metric("instance:node_cpu:ratio", "CPU", "AVG", "15m", 20.5),), metadata={"dataCenter": ""}
            ),
            "node-2": NodeMetrics(()),
        },
    )


def test_asks_go_services_for_a_node_as_they_know_it():
    """One node is asked for with ?host=, and a bare 404 means that there is no such node."""
    paths = []

    def answer(request: BaseHTTPRequestHandler) -> Answer:
        paths.append(request.path)
        return (200, {}, GO_BODY) if "node-1" in request.path else (404, {}, b"")

    with serving(answer) as address, ServiceClient(address) as client:
        assert "node-1" in client.node_metrics("node-1").data
        with pytest.raises(UnknownNode, match="no node 'a b'"):
            client.node_metrics("a b")
    assert paths == ["/watcher?host=node-1", "/watcher?host=a+b"]


def test_refuses_another_window_than_asked_for():
    """A service that ignores ?window= is not taken for one that answered it."""
    with serving(lambda _: (200, {}, GO_BODY)) as address, ServiceClient(address) as client:
        with pytest.raises(UnknownWindow, match="cannot be asked for '5m'"):
            client.metrics("5m")


def test_does_not_read_what_did_not_change():
    """With an ETag the second answer is a 304, and the same object is returned."""
    statuses = []

    def answer(request: BaseHTTPRequestHandler) -> Answer:
        known = request.headers.get("If-None-Match") == '"one"'
        statuses.append(304 if known else 200)
        return (304, {"ETag": '"one"'}, b"") if known else (200, {"ETag": '"one"'}, GO_BODY)

    with serving(answer) as address, ServiceClient(address) as client:
        assert client.metrics() is client.metrics()
    assert statuses == [200, 304]


def test_asks_for_columns_and_takes_what_comes():
    """It asks for the columnar form, with the dialects as second best, and reads either into equal objects."""
    accepted = []
    columnar = wire.encode_columns(wire.decode(GO_BODY))

    def answer(request: BaseHTTPRequestHandler) -> Answer:
        accepted.append(request.headers["Accept"])
        return 200, {}, GO_BODY if len(accepted) > 1 else columnar

    with serving(answer) as address, ServiceClient(address) as client:
        assert client.metrics() == client.metrics() == wire.decode(GO_BODY)
    assert accepted == [f"{wire.COLUMNS_TYPE}, application/json;q=0.9"] * 2


@pytest.mark.parametrize(
    "etag",
    ['"folded\r\n tag"', '"caf\xe9"', "no quotes", '"two" "tags"', "", '"' + "x" * 100, f'"{"x" * 5000}"'],
    ids=["folded", "not ASCII", "no quotes", "two", "empty", "no end", "huge"],
)
def test_an_etag_that_cannot_be_sent_back_is_dropped(etag: str):
    """A bad ETag costs that the next answer is read anew, not the client; a good one after it is used again."""
    sent = []

    def answer(request: BaseHTTPRequestHandler) -> Answer:
        sent.append(request.headers.get("If-None-Match"))
        return 200, {"ETag": '"good"' if len(sent) in {1, 3} else etag}, GO_BODY

    with serving(answer) as address, ServiceClient(address) as client:
        for _ in range(4):
            assert "node-1" in client.metrics().data
    assert sent == [None, '"good"', None, '"good"']


@pytest.mark.parametrize("name", ["NodeMetricsMap", "a/b?c#d", "\udcff", "\0", "é", "x" * 10_000])
def test_a_node_of_any_name_can_be_asked_for(name: str):
    """A name with odd characters is sent as it is; one that nobody can have is an unknown node."""

    def answer(request: BaseHTTPRequestHandler) -> Answer:
        asked = parse_qs(urlsplit(request.path).query)["host"][0]
        node = wire.decode(GO_BODY).data["node-1"]
        return 200, {}, wire.encode(WatcherMetrics(1, Window("15m", 0, 1), "x", {asked: node}))

    with serving(answer) as address, ServiceClient(address) as client:
        if name == "\udcff":
            with pytest.raises(UnknownNode):
                client.node_metrics(name)
        else:
            assert [*client.node_metrics(name).data] == [name]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (error(404, "no_metrics"), NoMetrics),
        (error(404, "stale"), StaleMetrics),
        (error(404, "unknown_window"), UnknownWindow),
        ((404, {}, b""), NoMetrics),
        ((401, {}, b""), AccessDenied),
        ((403, {}, b"<html>"), AccessDenied),
        ((500, {}, b"oops"), WatcherUnavailable),
        ((400, {}, b"[]"), BadAnswer),
        ((200, {}, b"<html>proxy login</html>"), BadAnswer),
        ((200, {}, b'{"data": {}}'), BadAnswer),
        ((200, {}, GO_BODY.replace(b"20.5", b"NaN")), BadAnswer),
        ((200, {}, GO_BODY.replace(b"20.5", b"1e999")), BadAnswer),
        ((204, {}, b""), BadAnswer),
        ((200, {"Content-Encoding": "gzip"}, GO_BODY), BadAnswer),
    ],
)
def test_names_what_went_wrong(answer: Answer, expected: type[Exception]):
    """Every kind of bad answer raises the one error that says what it is, with the address in it."""
    with serving(lambda _: answer) as address, ServiceClient(address) as client:
        with pytest.raises(expected, match=address) as caught:
            client.metrics()
    assert type(caught.value) is expected


def test_tries_again_when_the_watcher_is_overloaded():
    """A passing 503 is tried again, without waiting for as long as Retry-After says."""
    answers = [(503, {"Retry-After": "3600"}, b""), (503, {}, b""), (200, {}, GO_BODY)]
    with serving(lambda _: answers.pop(0)) as address, ServiceClient(address, retries=2) as client:
        assert client.metrics().source == "Prometheus"
    assert answers == []


def test_gives_up_after_its_retries():
    """The tries are bounded, and the last status is named."""
    count = []
    with serving(lambda _: count.append(1) or (503, {}, b"")) as address, ServiceClient(address, retries=1) as client:
        with pytest.raises(WatcherUnavailable, match="503"):
            client.metrics()
    assert len(count) == 2


def test_says_that_nobody_listens():
    """An address where nobody listens is WatcherUnavailable, with the reason."""
    with serving(lambda _: (200, {}, b"")) as address:
        pass
    with ServiceClient(address, retries=0) as client, pytest.raises(WatcherUnavailable, match="Connection refused"):
        client.metrics()


def test_does_not_wait_for_ever():
    """A server that accepts and says nothing is given up after the timeout."""
    release = threading.Event()

    def answer(_: BaseHTTPRequestHandler) -> Answer:
        release.wait(10)
        return 200, {}, b""

    with serving(answer) as address, ServiceClient(address, retries=0, timeout_seconds=0.2) as client:
        with pytest.raises(WatcherUnavailable, match="does not answer within"):
            client.metrics()
        release.set()


def test_sends_the_token_that_is_in_the_file_now(tmp_path):
    """A token file is read at every request, so that a rotated token is used."""
    seen = []
    file = tmp_path / "token"

    def answer(request: BaseHTTPRequestHandler) -> Answer:
        seen.append((request.headers["Authorization"], request.headers["X-Tenant"]))
        return 200, {}, GO_BODY

    with (
        serving(answer) as address,
        ServiceClient(address, token_file=file, headers={"X-Tenant": "blue"}) as client,
    ):
        for token in ("first\n", "second\n"):
            file.write_text(token)
            client.metrics()
    assert seen == [("Bearer first", "blue"), ("Bearer second", "blue")]


def test_sends_user_and_password_of_the_address_where_there_is_no_token():
    """As for providers: ``http://me:secret@host`` is basic authentication, and a token wins over it."""
    seen = []

    def answer(request: BaseHTTPRequestHandler) -> Answer:
        seen.append(request.headers["Authorization"])
        return 200, {}, GO_BODY

    with serving(answer) as address:
        for token in (None, "key"):
            with ServiceClient(address.replace("//", "//me:secret@"), token=token) as client:
                client.metrics()
    assert seen == ["Basic bWU6c2VjcmV0", "Bearer key"]


@pytest.mark.parametrize("content", [None, b"\xff\xfe", b"hush\nhush", "hüsh".encode()])
def test_a_token_file_that_cannot_be_used_is_named(tmp_path, content: bytes | None):
    """A token that cannot be read or sent is AccessDenied with the file's name, never with what is in it."""
    file = tmp_path / "token"
    if content is not None:
        file.write_bytes(content)
    with ServiceClient("http://127.0.0.1:9", token_file=file, retries=0) as client:
        with pytest.raises(AccessDenied, match="token") as caught:
            client.metrics()
    assert str(file) in str(caught.value)
    assert "sh" not in str(caught.value).replace(str(file), "")


def test_a_token_that_cannot_be_sent_is_refused_at_once():
    """A token with a line break or beyond ASCII is a ValueError that does not quote it; a newline at its end goes."""
    for token in ("one\ntwo", "hüsh"):
        with pytest.raises(ValueError, match="printable ASCII") as caught:
            ServiceClient("http://127.0.0.1:9", token=token)
        assert token not in str(caught.value)
    ServiceClient("http://127.0.0.1:9", token="key\n").close()


def test_health_is_what_the_watcher_says():
    """health() returns the reasons of a 503, nothing for a 200, and why when nobody can be asked."""
    answers = [
        (200, {}, b'{"status": "ok"}'),
        (503, {}, b'{"reasons": ["window 5m: no metrics yet"]}'),
        (503, {}, b"<html>"),
    ]
    with serving(lambda _: answers.pop(0)) as address:
        client = ServiceClient(address, retries=0)
        assert client.health() == ()
        assert client.health() == ("window 5m: no metrics yet",)
        assert "503" in client.health()[0]
    assert "cannot be reached" in client.health()[0]
    client.close()
    assert "this client is closed" in client.health()[0]


@pytest.mark.parametrize(
    "address",
    [
        "trimaran:2020",
        "ftp://trimaran",
        "http://",
        "/watcher",
        "",
        "http://a:99999",
        "http://a:x",
        "http://a b",
        "http://a?x",
        "http://[::1",
    ],
)
def test_refuses_what_is_no_address(address: str):
    """An address without http and a host is refused at once."""
    with pytest.raises(ValueError, match="looks like"):
        ServiceClient(address)


@pytest.mark.parametrize("suffix", ["", "/", "/watcher", "/watcher/"])
def test_forgives_how_the_address_ends(suffix: str):
    """A slash or /watcher at the end is what people paste."""
    paths = []
    with serving(lambda request: paths.append(request.path) or (200, {}, GO_BODY)) as address:
        with ServiceClient(address + suffix) as client:
            client.metrics()
    assert paths == ["/watcher"]


def test_never_shows_credentials_of_the_address():
    """User and password in the address are not in any error."""
    with serving(lambda _: (500, {}, b"")) as address:
        with ServiceClient(address.replace("//", "//me:secret@"), retries=0) as client:
            with pytest.raises(WatcherUnavailable) as caught:
                client.metrics()
    assert "secret" not in str(caught.value)
