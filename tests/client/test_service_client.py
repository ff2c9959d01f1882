"""ServiceClient against HTTP servers, including one that speaks the Go dialect."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from urllib.parse import parse_qs, urlsplit

import pytest
from support import servers
from support.ports import closed_port
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

# Response of load-watcher's Go service: gojay's order of fields, an extra level, empty tags and metadata.
GO_BODY = (
    b'{"timestamp":1556987522,"window":{"duration":"15m","start":1556986622,"end":1556987522},"source":"Prometheus",'
    b'"data":{"NodeMetricsMap":{"node-1":{"metrics":[{"name":"instance:node_cpu:ratio","type":"CPU","operator":"AVG",'
    b'"rollup":"15m","value":20.5}],"tags":{},"metadata":{"dataCenter":""}},'
    b'"node-2":{"metrics":[],"tags":{},"metadata":{}}}}}'
)


@contextmanager
def serving(answer: Callable[[BaseHTTPRequestHandler], Answer]) -> Iterator[str]:
    """Run a server that answers every GET with the function's result, and yield its URL."""

    def send(handler: BaseHTTPRequestHandler) -> None:
        status, headers, body = answer(handler)
        reply(handler, body, status, **headers)

    with servers.serving(send) as fake:
        yield fake.url


def error(status: int, code: str) -> Answer:
    """Return an error response in the form of the API."""
    return status, {}, json.dumps({"error": {"code": code, "message": f"it is {code}"}}).encode()


def test_the_go_dialect_is_read():
    """The response of a server with the Go dialect gives the same objects as that of a watcher."""
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


def test_a_node_is_requested_as_the_go_service_supports_it():
    """A node is requested with ?host=, and a 404 without a body means that the node is unknown."""
    paths = []

    def answer(request: BaseHTTPRequestHandler) -> Answer:
        paths.append(request.path)
        return (200, {}, GO_BODY) if "node-1" in request.path else (404, {}, b"")

    with serving(answer) as address, ServiceClient(address) as client:
        assert "node-1" in client.node_metrics("node-1").data
        with pytest.raises(UnknownNode, match="'a b'"):
            client.node_metrics("a b")
    assert paths == ["/watcher?host=node-1", "/watcher?host=a+b"]


def test_another_window_than_requested_is_refused():
    """The response of a service that ignores ?window= raises UnknownWindow."""
    with serving(lambda _: (200, {}, GO_BODY)) as address, ServiceClient(address) as client:
        with pytest.raises(UnknownWindow, match="'5m'"):
            client.metrics("5m")


def test_unchanged_metrics_are_not_sent_again():
    """With an ETag the second response is a 304, and the same object is returned."""
    statuses = []

    def answer(request: BaseHTTPRequestHandler) -> Answer:
        known = request.headers.get("If-None-Match") == '"one"'
        statuses.append(304 if known else 200)
        return (304, {"ETag": '"one"'}, b"") if known else (200, {"ETag": '"one"'}, GO_BODY)

    with serving(answer) as address, ServiceClient(address) as client:
        assert client.metrics() is client.metrics()
    assert statuses == [200, 304]


def test_columns_are_preferred_and_json_is_accepted():
    """The client prefers the columnar format, and reads it and JSON into equal objects."""
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
    """An invalid ETag is not sent back, so the next response is read in full; a later valid ETag is used."""
    sent = []

    def answer(request: BaseHTTPRequestHandler) -> Answer:
        sent.append(request.headers.get("If-None-Match"))
        return 200, {"ETag": '"good"' if len(sent) in {1, 3} else etag}, GO_BODY

    with serving(answer) as address, ServiceClient(address) as client:
        for _ in range(4):
            assert "node-1" in client.metrics().data
    assert sent == [None, '"good"', None, '"good"']


@pytest.mark.parametrize("name", ["NodeMetricsMap", "a/b?c#d", "\udcff", "\0", "é", "x" * 10_000])
def test_a_node_of_any_name_can_be_requested(name: str):
    """A name with any characters is sent unchanged; a name that is not valid Unicode is an unknown node."""

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


@pytest.mark.parametrize("status", [200, 503])
def test_the_windows_are_those_of_the_watcher(status: int):
    """The windows come from the watcher's health, also if it is unhealthy, in the watcher's order."""
    health = b'{"status": "ok", "reasons": [], "age_seconds": {"30m": 2.0, "1h": 3.5}}'
    with serving(lambda _: (status, {}, health)) as address, ServiceClient(address) as client:
        assert client.windows() == ("30m", "1h")


def test_the_window_of_a_go_service_is_that_of_its_metrics():
    """A service that does not list its windows has the window of its metrics."""

    def answer(handler: BaseHTTPRequestHandler) -> Answer:
        return 200, {}, b"" if handler.path == "/watcher/health" else GO_BODY

    with serving(answer) as address, ServiceClient(address) as client:
        assert client.windows() == ("15m",)


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
def test_each_invalid_response_has_its_exception(answer: Answer, expected: type[Exception]):
    """Every kind of invalid response raises its own exception, with the URL in the message."""
    with serving(lambda _: answer) as address, ServiceClient(address) as client:
        with pytest.raises(expected, match=address) as caught:
            client.metrics()
    assert type(caught.value) is expected


def test_status_503_is_retried():
    """A response of status 503 is retried soon, whatever its Retry-After."""
    answers = [(503, {"Retry-After": "3600"}, b""), (503, {}, b""), (200, {}, GO_BODY)]
    with serving(lambda _: answers.pop(0)) as address, ServiceClient(address, retries=2) as client:
        assert client.metrics().source == "Prometheus"
    assert answers == []


def test_forked_processes_wait_for_different_times():
    """Processes forked from one that has a client retry at different times, so that they do not come all at once."""
    program = """
import os, threading
from client import ServiceClient, WatcherUnavailable

client = ServiceClient("http://127.0.0.1:1", retries=1)
threading.Event.wait = lambda _event, seconds=None: print(seconds, flush=True)
for _ in range(3):
    if not (child := os.fork()):
        try:
            client.metrics()
        except WatcherUnavailable:
            os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
"""
    output = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    assert len(set(output.split())) == 3


def test_the_number_of_retries_is_limited():
    """After the last retry, the error has the status."""
    count = []
    with serving(lambda _: count.append(1) or (503, {}, b"")) as address, ServiceClient(address, retries=1) as client:
        with pytest.raises(WatcherUnavailable, match="503"):
            client.metrics()
    assert len(count) == 2


def test_the_token_file_is_read_at_every_request(tmp_path):
    """The token file is read at every request, so that a rotated token is used."""
    file = tmp_path / "token"
    with servers.serving(lambda handler: reply(handler, GO_BODY)) as fake:
        with ServiceClient(fake.url, token_file=file, headers={"X-Tenant": "blue"}) as client:
            for token in ("first\n", "second\n"):
                file.write_text(token)
                client.metrics()
    seen = [(headers["Authorization"], headers["X-Tenant"]) for _, headers in fake.requests]
    assert seen == [("Bearer first", "blue"), ("Bearer second", "blue")]


def test_user_and_password_of_the_url_are_sent_without_a_token():
    """User and password of the URL are sent as basic authentication, unless there is a token."""
    with servers.serving(lambda handler: reply(handler, GO_BODY)) as fake:
        for token in (None, "key"):
            with ServiceClient(fake.url.replace("//", "//me:secret@"), token=token) as client:
                client.metrics()
    assert [headers["Authorization"] for _, headers in fake.requests] == ["Basic bWU6c2VjcmV0", "Bearer key"]


@pytest.mark.parametrize("content", [None, b"\xff\xfe", b"hush\nhush", "hüsh".encode()])
def test_an_unusable_token_file_is_named(tmp_path, content: bytes | None):
    """A token that cannot be read or sent raises AccessDenied with the file's name, but not its content."""
    file = tmp_path / "token"
    if content is not None:
        file.write_bytes(content)
    with ServiceClient("http://127.0.0.1:9", token_file=file, retries=0) as client:
        with pytest.raises(AccessDenied, match="token") as caught:
            client.metrics()
    assert str(file) in str(caught.value)
    assert "sh" not in str(caught.value).replace(str(file), "")


def test_a_token_that_cannot_be_sent_is_rejected_at_once():
    """A token with a line break or beyond ASCII is a ValueError without the token; a newline at its end is allowed."""
    for token in ("one\ntwo", "hüsh"):
        with pytest.raises(ValueError, match="token") as caught:
            ServiceClient("http://127.0.0.1:9", token=token)
        assert token not in str(caught.value)
    ServiceClient("http://127.0.0.1:9", token="key\n").close()


def test_health_returns_the_watchers_reasons():
    """health() returns the reasons of a 503, nothing for a 200, and the failure if the watcher does not answer."""
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
    assert "is closed" in client.health()[0]


@pytest.mark.parametrize(
    "address",
    ["trimaran:2020", "ftp://trimaran", "http://", "/watcher", "", "http://a:99999", "http://a:x", "http://a b",
     "http://a?x", "http://[::1"],
)  # fmt: skip
def test_an_invalid_url_is_rejected(address: str):
    """A URL without http:// or a host is rejected at once."""
    with pytest.raises(ValueError, match="URL"):
        ServiceClient(address)


@pytest.mark.parametrize("suffix", ["", "/", "/watcher", "/watcher/"])
def test_a_slash_or_watcher_at_the_end_of_the_url_is_ignored(suffix: str):
    """A slash or /watcher at the end of the URL is ignored."""
    paths = []
    with serving(lambda request: paths.append(request.path) or (200, {}, GO_BODY)) as address:
        with ServiceClient(address + suffix) as client:
            client.metrics()
    assert paths == ["/watcher"]


def test_credentials_of_the_url_are_in_no_error():
    """User and password of the URL are in no error message."""
    with serving(lambda _: (500, {}, b"")) as address:
        with ServiceClient(address.replace("//", "//me:secret@"), retries=0) as client:
            with pytest.raises(WatcherUnavailable) as caught:
                client.metrics()
    assert "secret" not in str(caught.value)


def test_a_proxy_is_named_in_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors name the proxy of the environment: one that cannot be reached, and one that answers for the watcher."""
    monkeypatch.setenv("HTTP_PROXY", f"http://user:pr0xy-pass@127.0.0.1:{closed_port()}")
    client = ServiceClient("http://watcher.example.com:2020", retries=0)
    with client, pytest.raises(WatcherUnavailable) as down:
        client.metrics()
    assert "through the proxy http://127.0.0.1:" in str(down.value)
    assert "pr0xy-pass" not in str(down.value)
    with servers.serving(lambda handler: reply(handler, b"blocked", 403)) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        client = ServiceClient("http://watcher.example.com:2020", retries=0)
        with client, pytest.raises(AccessDenied) as refused:
            client.metrics()
    assert f"through the proxy {proxy.url} refuses" in str(refused.value)
