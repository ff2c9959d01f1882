"""Every route of the REST API, on top of a real watcher."""

import gzip

import jsonschema
import pytest
from support.api_routes import ROUTES, check_error
from support.bench import START, Api, unreachable

from watcher import wire
from watcher.api import node_views
from watcher.api.openapi import schema
from watcher.model import NodeMetrics
from watcher.providers.base import Fetched
from watcher.wire import COLUMNS_TYPE, Dialect

KEP = jsonschema.Draft4Validator(schema("kep"))
OURS = jsonschema.Draft202012Validator(schema("watcher"))


def test_routes(ready_api: Api) -> None:
    """The API has exactly these routes, and the index at / lists them."""
    assert sorted(rule.rule for rule in ready_api.app.url_map.iter_rules()) == list(ROUTES)
    assert ready_api.get("/").json["routes"] == list(ROUTES)


def test_all_nodes(ready_api: Api) -> None:
    """GET /watcher returns all nodes in the default window, valid by both schemas."""
    response = ready_api.get("/watcher")
    assert response.status_code == 200
    assert response.mimetype == "application/json"
    KEP.validate(response.json)
    OURS.validate(response.json)
    assert response.json["window"] == {"duration": "15m", "start": START - 900, "end": START}
    assert response.json["source"] == "Test"
    assert list(response.json["data"]) == ["a"]


@pytest.mark.parametrize("path", ["/watcher/a", "/watcher?host=a", "/watcher/a?window=5m", "/watcher?host=a&window=5m"])
def test_one_node(ready_api: Api, path: str) -> None:
    """A request for one node by path or ?host= returns the same document with that node alone, in any window."""
    response = ready_api.get(path)
    assert response.status_code == 200
    OURS.validate(response.json)
    KEP.validate(response.json)
    assert response.json == ready_api.get("/watcher" + ("?window=5m" if "window" in path else "")).json


@pytest.mark.parametrize("path", ["/watcher?host=", "/watcher?window=", "/watcher?host=&window="])
def test_empty_parameters_are_ignored(ready_api: Api, path: str) -> None:
    """An empty ?host= or ?window= is treated as absent."""
    assert ready_api.get(path).data == ready_api.get("/watcher").data


def test_requested_window(ready_api: Api) -> None:
    """?window= returns exactly that window."""
    assert ready_api.get("/watcher?window=5m").json["window"]["duration"] == "5m"


def test_grades_are_in_the_metadata(ready_api: Api) -> None:
    """Each node's metadata has the grade of values from a fallback, in answers for all nodes and for one."""
    ready_api.fail("15m", "10m", "5m")
    ready_api.watcher.fetch_once()
    for path in ("/watcher", "/watcher/a", "/watcher?window=10m"):
        document = ready_api.get(path).json
        OURS.validate(document)
        assert document["data"]["a"]["metadata"]["grade"] == "last_good"


@pytest.mark.parametrize(
    ("path", "code", "words"),
    [
        ("/watcher/b", "unknown_node", "'b'"),
        ("/watcher?host=b", "unknown_node", "'b'"),
        ("/compat/watcher/b", "unknown_node", "'b'"),
        ("/watcher?window=7m", "unknown_window", "15m, 10m, 5m"),
        ("/watcher/a?window=7m", "unknown_window", "15m, 10m, 5m"),
        ("/compat/watcher?window=7m", "unknown_window", "15m, 10m, 5m"),
        ("/nowhere", "not_found", "not found"),
        ("/watcher/a/b", "not_found", "not found"),
        ("/watcher/%22%0a%27%3Cb%3E", "unknown_node", "node"),
        ("/watcher/%00", "unknown_node", "node"),
        ("/watcher/%ff%fe", "unknown_node", "node"),
        ("/watcher?host=%ed%a0%80", "unknown_node", "node"),
        ("/watcher?host=" + "x" * 10_000, "unknown_node", "node"),
        ("/watcher?window=" + "x" * 10_000, "unknown_window", "15m, 10m, 5m"),
    ],
)
def test_unknown_nodes_windows_and_paths(ready_api: Api, path: str, code: str, words: str) -> None:
    """An unknown node, window or path is a 404 with its code and a short message, for any characters in the name."""
    message = check_error(ready_api.get(path), 404, code)
    assert words in message
    assert len(message) < 500


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/watcher?windw=5m", "'windw'; did you mean window? The parameters are: window, host"),
        ("/watcher?x=1", "'x'. The parameters are: window, host"),
        ("/watcher/a?host=a", "'host'. The parameters are: window"),
        ("/compat/watcher?Host=a", "'Host'; did you mean host?"),
        ("/watcher?" + "x" * 10_000, "The parameters are: window, host"),
    ],
)
def test_unknown_parameters(ready_api: Api, path: str, words: str) -> None:
    """A misspelled parameter is a 400 that names the valid ones, instead of being ignored."""
    message = check_error(ready_api.get(path), 400, "bad_request")
    assert words in message
    assert len(message) < 200


@pytest.mark.parametrize("path", ["/watcher/", "/compat/watcher/", "/watcher/?window=5m"])
def test_trailing_slash(ready_api: Api, path: str) -> None:
    """The list of nodes is the same with and without a trailing slash."""
    assert ready_api.get(path).data == ready_api.get(path.replace("/?", "?").removesuffix("/")).data
    assert 'route="/compat/watcher/"' not in ready_api.get("/metrics").text


@pytest.mark.parametrize("path", ["/watcher", "/watcher/a", "/compat/watcher", "/livez", "/metrics"])
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_other_methods(ready_api: Api, path: str, method: str) -> None:
    """Any method except GET and HEAD is a 405 in the common error format, with an Allow header that lists both."""
    response = ready_api.client.open(path, method=method)
    check_error(response, 405, "method_not_allowed")
    assert set(response.headers["Allow"].split(", ")) == {"GET", "HEAD"}


@pytest.mark.parametrize("path", [*(route.replace("<host>", "a") for route in ROUTES), "/watcher/b", "/nowhere"])
def test_head(ready_api: Api, path: str) -> None:
    """HEAD has the same status and headers as GET on every route, and an empty body."""
    get, head = ready_api.get(path), ready_api.client.head(path)
    assert head.data == b""
    assert head.status_code == get.status_code
    if path == "/metrics":  # its values change from one request to the next
        get.headers["Content-Length"] = head.headers["Content-Length"]
    assert head.headers == get.headers


def test_before_the_first_fetch(api: Api) -> None:
    """Before the first fetch, metrics are 404 no_metrics, and the watcher is alive but neither ready nor healthy."""
    for path in ("/watcher", "/watcher/a", "/watcher?window=5m", "/compat/watcher/a"):
        check_error(api.get(path), 404, "no_metrics")
    check_error(api.get("/readyz"), 503, "not_ready")
    check_error(api.get("/watcher/health"), 503, "unhealthy")
    assert api.get("/livez").json == {"alive": True}


def test_readiness_needs_a_working_response(ready_api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """With fresh metrics that cannot be answered with, the watcher is not ready."""

    def fail(_encodings: str) -> bool:
        raise ImportError("cannot import name 'Accept' from partially initialized module 'werkzeug.datastructures'")

    assert ready_api.get("/readyz").json == {"ready": True}
    monkeypatch.setattr(node_views, "_accepts_gzip", fail)
    check_error(ready_api.get("/readyz"), 500, "internal")


def test_stale(ready_api: Api) -> None:
    """After the expiry, metrics are 404 stale with the reason; the watcher is alive but not ready or healthy."""
    ready_api.source.answers = dict.fromkeys(("15m", "10m", "5m"), unreachable)
    ready_api.now += 301
    ready_api.watcher.fetch_once()
    for path in ("/watcher", "/watcher/a", "/watcher?window=5m"):
        message = check_error(ready_api.get(path), 404, "stale")
        assert "301 s old" in message
        assert "no route" in message
    check_error(ready_api.get("/readyz"), 503, "not_ready")
    assert "no route" in check_error(ready_api.get("/watcher/health"), 503, "unhealthy")
    assert ready_api.get("/livez").status_code == 200


def test_health(ready_api: Api) -> None:
    """A healthy watcher answers 200 with the windows' ages; the body always has a status, reasons and warnings."""
    ready_api.now += 12.34
    assert ready_api.get("/watcher/health").json == {
        "status": "ok", "reasons": [], "warnings": [], "age_seconds": {"15m": 12.3, "10m": 12.3, "5m": 12.3},
    }  # fmt: skip
    ready_api.fail("10m")
    ready_api.watcher.fetch_once()
    body = ready_api.get("/watcher/health").json
    assert (body["status"], body["reasons"]) == ("unhealthy", ["window 10m: no route (10m)"])
    assert ready_api.get("/readyz").json == {"ready": True}


def test_a_node_named_health(ready_api: Api) -> None:
    """/watcher/health stays the health route when a node is named health; ?host=health returns the node."""
    node = ready_api.watcher.published().metrics.data["a"]
    ready_api.source.answers = {"15m": lambda window: Fetched({"health": node})}
    ready_api.watcher.fetch_once()
    assert "status" in ready_api.get("/watcher/health").json
    assert list(ready_api.get("/watcher?host=health").json["data"]) == ["health"]


def test_livez_when_the_loop_has_stopped(ready_api: Api) -> None:
    """/livez is a 503 after the fetch loop has stopped."""
    ready_api.watcher.stop()
    check_error(ready_api.get("/livez"), 503, "not_alive")


# -- the Go dialect -----------------------------------------------------------------------------------------------


def test_compat_uses_gos_dialect(ready_api: Api) -> None:
    """/compat/watcher has the nodes of /watcher under NodeMetricsMap, for all nodes and for one."""
    documented = ready_api.get("/watcher").json
    expected = {**documented, "data": {"NodeMetricsMap": documented["data"]}}
    for path in ("/compat/watcher", "/compat/watcher/a", "/compat/watcher?host=a"):
        assert ready_api.get(path).json == expected


@pytest.mark.parametrize(("path", "dialect"), [("/compat/watcher", Dialect.DOCUMENTED), ("/watcher", Dialect.GO)])
def test_go_readers_get_200_without_nodes(path: str, dialect: Dialect) -> None:
    """Without fresh metrics, Go's dialect is a 200 with an empty map: Go clients keep old data on any other status."""
    api = Api(dialect)
    for timestamp in (None, START):
        response = api.get(path)
        assert response.status_code == 200
        assert response.json["data"] == {"NodeMetricsMap": {}}
        assert isinstance(response.json["timestamp"], int)
        assert timestamp is None or response.json["timestamp"] == timestamp
        api.watcher.fetch_once()
        api.now += 301
    check_error(api.get(path.replace("/watcher", "/watcher/a")), 404, "stale")
    api.watcher.stop()


def test_go_as_the_default_dialect() -> None:
    """With Go as the default dialect, /watcher and its nodes have the same bodies as /compat."""
    api = Api(Dialect.GO)
    api.watcher.fetch_once()
    for path in ("/watcher", "/watcher/a", "/watcher?host=a"):
        assert list(api.get(path).json["data"]["NodeMetricsMap"]) == ["a"]
        assert api.get(path).data == api.get(f"/compat{path}").data
    api.watcher.stop()


# -- caching and compression --------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/watcher", "/compat/watcher", "/watcher?window=5m"])
def test_matching_entity_tag_gets_304(ready_api: Api, path: str) -> None:
    """If-None-Match with the current tag, in a list or as *, is a 304 without a body until the next snapshot."""
    first = ready_api.get(path)
    tag = first.headers["ETag"]
    for header in (tag, f'"other", {tag}', "*", tag.removeprefix("W/")):
        response = ready_api.get(path, If_None_Match=header)
        assert (response.status_code, response.data) == (304, b"")
        assert response.headers["ETag"] == tag
        assert response.headers["Vary"] == "Accept, Accept-Encoding"
    for header in ('W/"other"', "nonsense", ""):
        assert ready_api.get(path, If_None_Match=header).status_code == 200
    ready_api.now += 60
    ready_api.watcher.fetch_once()
    assert ready_api.get(path, If_None_Match=tag).status_code == 200


@pytest.mark.parametrize("path", ["/watcher", "/compat/watcher"])
@pytest.mark.parametrize(
    ("accepted", "compressed"),
    [("gzip", True), ("gzip, deflate, br", True), ("*", True), ("gzip;q=0.1", True), ("gzip;q=0", False),
     ("identity", False), ("br", False), ("", False)],
)  # fmt: skip
def test_compression(ready_api: Api, path: str, accepted: str, compressed: bool) -> None:
    """The body is compressed exactly for clients that accept gzip, and decompresses to the plain body."""
    plain = ready_api.get(path)
    response = ready_api.get(path, Accept_Encoding=accepted)
    assert (response.headers.get("Content-Encoding") == "gzip") is compressed
    assert response.headers["Vary"] == "Accept, Accept-Encoding"
    assert (gzip.decompress(response.data) if compressed else response.data) == plain.data


@pytest.mark.parametrize("path", ["/watcher", "/compat/watcher", "/watcher?window=5m"])
@pytest.mark.parametrize(
    ("accepted", "columnar"),
    [(COLUMNS_TYPE, True), (f"{COLUMNS_TYPE}, application/json;q=0.9", True), (COLUMNS_TYPE.upper(), True),
     (f"application/json;q=0.9, {COLUMNS_TYPE};q=0.95, */*;q=0.1", True), ("*/*", False), ("", False),
     (f"application/json, {COLUMNS_TYPE};q=0.9", False), (f"{COLUMNS_TYPE};q=0", False), ("application/*", False),
     (f"{COLUMNS_TYPE};q=0, */*", False), ("text/html", False), ("application/json", False), (";;,q=", False)],
)  # fmt: skip
def test_columnar_form_by_accept_header(ready_api: Api, path: str, accepted: str, columnar: bool) -> None:
    """Clients that prefer the columnar form get it, with its own tag; all other clients get the dialect."""
    plain, response = ready_api.get(path), ready_api.get(path, Accept=accepted)
    assert response.status_code == 200
    assert response.content_type == (COLUMNS_TYPE if columnar else "application/json")
    assert (response.data != plain.data) is (response.headers["ETag"] != plain.headers["ETag"]) is columnar
    assert wire.decode(response.data) == wire.decode(plain.data)
    assert response.headers["Vary"] == "Accept, Accept-Encoding"
    compressed = ready_api.get(path, Accept=accepted, Accept_Encoding="gzip")
    assert gzip.decompress(compressed.data) == response.data
    tag = response.headers["ETag"]
    assert ready_api.get(path, Accept=accepted, If_None_Match=tag).status_code == 304
    assert ready_api.get(path, Accept="application/json", If_None_Match=tag).status_code == (200 if columnar else 304)


def test_one_node_has_no_columnar_form(ready_api: Api) -> None:
    """An answer about one node is in the dialect, whatever the Accept header asks for."""
    for path in ("/watcher/a", "/watcher?host=a"):
        assert ready_api.get(path, Accept=COLUMNS_TYPE).data == ready_api.get(path).data


def test_requests_reuse_encoded_bodies(ready_api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fetch encodes each node once per window for serving and storing; requests return those bytes."""
    encoded: list[str] = []
    encode = wire.encode_node

    def counted(name: str, node: NodeMetrics) -> bytes:
        encoded.append(name)
        return encode(name, node)

    monkeypatch.setattr(wire, "encode_node", counted)
    ready_api.now += 60
    ready_api.watcher.fetch_once()
    assert encoded == ["a"] * 3
    for _ in range(3):
        for path in ("/watcher", "/watcher/a", "/compat/watcher", "/compat/watcher/a", "/watcher?window=5m"):
            assert ready_api.get(path).status_code == 200
    assert encoded == ["a"] * 3
    published = ready_api.watcher.published()
    assert (
        published.body(Dialect.DOCUMENTED).identity is ready_api.watcher.published().body(Dialect.DOCUMENTED).identity
    )


# -- the rest -----------------------------------------------------------------------------------------------------


def test_findings(ready_api: Api) -> None:
    """/findings lists the findings of the last fetch with all their fields."""
    assert ready_api.get("/findings").json == {"findings": [], "counts": {}}
    ready_api.fail("15m")
    ready_api.watcher.fetch_once()
    assert ready_api.get("/findings").json == {
        "findings": [
            {"kind": "fetch_failed", "message": "no route (15m)", "window": "15m", "node": "", "metric": "",
             "action": "reported", "since": START}
        ],
        "counts": {"fetch_failed": 1},
    }  # fmt: skip


def test_metrics(ready_api: Api) -> None:
    """/metrics has Prometheus' text format and counts requests by route, never by node."""
    ready_api.get("/watcher/a")
    ready_api.get("/watcher/" + "x" * 100)
    ready_api.get("/nowhere")
    response = ready_api.get("/metrics")
    assert response.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert 'trimaran_http_requests_total{route="/watcher/<host>",status="200"} 1.0' in response.text
    assert 'trimaran_http_requests_total{route="/watcher/<host>",status="404"} 1.0' in response.text
    assert 'trimaran_http_requests_total{route="none",status="404"} 1.0' in response.text
    assert "xxxx" not in response.text


def test_unexpected_errors_reveal_nothing(
    ready_api: Api, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An unexpected exception is a 500 in the common error format; its message is in the log and not in the answer."""

    def fail() -> None:
        raise RuntimeError("inner secret")

    monkeypatch.setattr(ready_api.watcher, "findings", fail)
    assert "inner secret" not in check_error(ready_api.get("/findings"), 500, "internal")
    assert "inner secret" in caplog.text
