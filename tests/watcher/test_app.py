"""Every route of the REST API, over a real watcher."""

import gzip

import jsonschema
import pytest
from support.api_routes import ROUTES, check_error
from support.bench import START, Api, down

from watcher import wire
from watcher.api.openapi import schema
from watcher.model import NodeMetrics
from watcher.providers.base import Fetched
from watcher.wire import COLUMNS_TYPE, Dialect

KEP = jsonschema.Draft4Validator(schema("kep"))
OURS = jsonschema.Draft202012Validator(schema("watcher"))


def test_the_routes(full: Api) -> None:
    """These are the routes, and the index at / lists them."""
    assert sorted(rule.rule for rule in full.app.url_map.iter_rules()) == list(ROUTES)
    assert full.get("/").json["routes"] == list(ROUTES)


def test_all_nodes(full: Api) -> None:
    """GET /watcher answers the default window of all nodes, and both schemas accept it."""
    response = full.get("/watcher")
    assert response.status_code == 200
    assert response.mimetype == "application/json"
    KEP.validate(response.json)
    OURS.validate(response.json)
    assert response.json["window"] == {"duration": "15m", "start": START - 900, "end": START}
    assert response.json["source"] == "Test"
    assert list(response.json["data"]) == ["a"]


@pytest.mark.parametrize("path", ["/watcher/a", "/watcher?host=a", "/watcher/a?window=5m", "/watcher?host=a&window=5m"])
def test_one_node(full: Api, path: str) -> None:
    """One node is the same document with that node alone, by path and by ?host=, in any window."""
    response = full.get(path)
    assert response.status_code == 200
    OURS.validate(response.json)
    KEP.validate(response.json)
    assert response.json == full.get("/watcher" + ("?window=5m" if "window" in path else "")).json


@pytest.mark.parametrize("path", ["/watcher?host=", "/watcher?window=", "/watcher?host=&window="])
def test_empty_arguments_are_none(full: Api, path: str) -> None:
    """An empty ?host= or ?window= is as good as none."""
    assert full.get(path).data == full.get("/watcher").data


def test_a_window_asked_for(full: Api) -> None:
    """?window= answers exactly that window."""
    assert full.get("/watcher?window=5m").json["window"]["duration"] == "5m"


def test_grades_are_told(full: Api) -> None:
    """When values are not what was asked for, each node's metadata says so, for all and for one, within the schema."""
    full.fail("15m", "10m", "5m")
    full.watcher.fetch_once()
    for path in ("/watcher", "/watcher/a", "/watcher?window=10m"):
        document = full.get(path).json
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
        ("/watcher/%22%0a%27%3Cb%3E", "unknown_node", "there are no metrics for a node"),
        ("/watcher/%00", "unknown_node", "there are no metrics for a node"),
        ("/watcher/%ff%fe", "unknown_node", "there are no metrics for a node"),
        ("/watcher?host=%ed%a0%80", "unknown_node", "there are no metrics for a node"),
        ("/watcher?host=" + "x" * 10_000, "unknown_node", "there are no metrics for a node"),
        ("/watcher?window=" + "x" * 10_000, "unknown_window", "15m, 10m, 5m"),
    ],
)
def test_what_is_not_there(full: Api, path: str, code: str, words: str) -> None:
    """An unknown node, window or path is a 404 with its code and a short message, whatever the name is made of."""
    message = check_error(full.get(path), 404, code)
    assert words in message
    assert len(message) < 500


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/watcher?windw=5m", "'windw'; did you mean window? There are: window, host"),
        ("/watcher?x=1", "'x'. There are: window, host"),
        ("/watcher/a?host=a", "'host'. There are: window"),
        ("/compat/watcher?Host=a", "'Host'; did you mean host?"),
        ("/watcher?" + "x" * 10_000, "There are: window, host"),
    ],
)
def test_a_parameter_that_there_is_not(full: Api, path: str, words: str) -> None:
    """A misspelled parameter is a 400 that names the right ones: it would silently ask for something else."""
    message = check_error(full.get(path), 400, "bad_request")
    assert words in message
    assert len(message) < 200


@pytest.mark.parametrize("path", ["/watcher/", "/compat/watcher/", "/watcher/?window=5m"])
def test_a_slash_at_the_end(full: Api, path: str) -> None:
    """The list of nodes is the same with and without a slash behind it."""
    assert full.get(path).data == full.get(path.replace("/?", "?").removesuffix("/")).data
    assert 'route="/compat/watcher/"' not in full.get("/metrics").text


@pytest.mark.parametrize("path", ["/watcher", "/watcher/a", "/compat/watcher", "/livez", "/metrics"])
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_other_methods(full: Api, path: str, method: str) -> None:
    """Anything but reading is a 405 of the one shape that says what is allowed."""
    response = full.client.open(path, method=method)
    check_error(response, 405, "method_not_allowed")
    assert "GET" in response.headers["Allow"]


@pytest.mark.parametrize("path", [*(route.replace("<host>", "a") for route in ROUTES), "/watcher/b", "/nowhere"])
def test_head(full: Api, path: str) -> None:
    """HEAD has the status and headers of GET on every route, and no body."""
    get, head = full.get(path), full.client.head(path)
    assert head.data == b""
    assert head.status_code == get.status_code
    if path == "/metrics":  # whose figures change from one request to the next
        get.headers["Content-Length"] = head.headers["Content-Length"]
    assert head.headers == get.headers


@pytest.mark.parametrize("path", ["/watcher", "/livez"])
def test_options_are_refused_as_other_methods_are(full: Api, path: str) -> None:
    """OPTIONS is no way round what is documented; the answer says what is allowed."""
    response = full.client.options(path)
    check_error(response, 405, "method_not_allowed")
    assert set(response.headers["Allow"].split(", ")) == {"GET", "HEAD"}


def test_before_the_first_fetch(api: Api) -> None:
    """Nothing yet: 404 no_metrics, not ready, not healthy, alive."""
    for path in ("/watcher", "/watcher/a", "/watcher?window=5m", "/compat/watcher/a"):
        assert "the first fetch is not done" in check_error(api.get(path), 404, "no_metrics")
    check_error(api.get("/readyz"), 503, "not_ready")
    check_error(api.get("/watcher/health"), 503, "unhealthy")
    assert api.get("/livez").json == {"alive": True}


def test_stale(full: Api) -> None:
    """After the expiry: 404 stale with the reason, not ready, not healthy, alive."""
    full.source.answers = dict.fromkeys(("15m", "10m", "5m"), down)
    full.now += 301
    full.watcher.fetch_once()
    for path in ("/watcher", "/watcher/a", "/watcher?window=5m"):
        message = check_error(full.get(path), 404, "stale")
        assert "301 s old" in message
        assert "no route" in message
    check_error(full.get("/readyz"), 503, "not_ready")
    assert "no route" in check_error(full.get("/watcher/health"), 503, "unhealthy")
    assert full.get("/livez").status_code == 200


def test_health(full: Api) -> None:
    """Healthy: 200 with ages; the body has status, reasons and warnings either way."""
    full.now += 12.34
    assert full.get("/watcher/health").json == {
        "status": "ok", "reasons": [], "warnings": [], "age_seconds": {"15m": 12.3, "10m": 12.3, "5m": 12.3},
    }  # fmt: skip
    full.fail("10m")
    full.watcher.fetch_once()
    body = full.get("/watcher/health").json
    assert (body["status"], body["reasons"]) == ("unhealthy", ["window 10m: no route (10m)"])
    assert full.get("/readyz").json == {"ready": True}


def test_a_node_named_health(full: Api) -> None:
    """/watcher/health is the route; a node of that name is reached by ?host=."""
    node = full.watcher.published().metrics.data["a"]
    full.source.answers = {"15m": lambda window: Fetched({"health": node})}
    full.watcher.fetch_once()
    assert "status" in full.get("/watcher/health").json
    assert list(full.get("/watcher?host=health").json["data"]) == ["health"]


def test_livez_when_the_loop_has_stopped(full: Api) -> None:
    """A loop that ended is a 503 on /livez."""
    full.watcher.stop()
    check_error(full.get("/livez"), 503, "not_alive")


# -- the Go dialect -----------------------------------------------------------------------------------------------


def test_compat_speaks_go(full: Api) -> None:
    """/compat/watcher has NodeMetricsMap with the nodes of /watcher, for all and for one."""
    documented = full.get("/watcher").json
    expected = {**documented, "data": {"NodeMetricsMap": documented["data"]}}
    for path in ("/compat/watcher", "/compat/watcher/a", "/compat/watcher?host=a"):
        assert full.get(path).json == expected


@pytest.mark.parametrize(("path", "dialect"), [("/compat/watcher", Dialect.DOCUMENTED), ("/watcher", Dialect.GO)])
def test_go_readers_get_200_without_nodes(path: str, dialect: Dialect) -> None:
    """When nothing is fresh Go's dialect answers 200 with an empty map: its readers keep old data on anything else."""
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
    """With the option, /watcher and its nodes speak Go as /compat does."""
    api = Api(Dialect.GO)
    api.watcher.fetch_once()
    for path in ("/watcher", "/watcher/a", "/watcher?host=a"):
        assert list(api.get(path).json["data"]["NodeMetricsMap"]) == ["a"]
        assert api.get(path).data == api.get(f"/compat{path}").data
    api.watcher.stop()


# -- caching and compression --------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/watcher", "/compat/watcher", "/watcher?window=5m"])
def test_an_entity_tag_saves_the_body(full: Api, path: str) -> None:
    """If-None-Match with the current tag, among others or as *, is a 304 without body, until a new snapshot comes."""
    first = full.get(path)
    tag = first.headers["ETag"]
    for header in (tag, f'"other", {tag}', "*", tag.removeprefix("W/")):
        response = full.get(path, If_None_Match=header)
        assert (response.status_code, response.data) == (304, b"")
        assert response.headers["ETag"] == tag
        assert response.headers["Vary"] == "Accept, Accept-Encoding"
    for header in ('W/"other"', "nonsense", ""):
        assert full.get(path, If_None_Match=header).status_code == 200
    full.now += 60
    full.watcher.fetch_once()
    assert full.get(path, If_None_Match=tag).status_code == 200


@pytest.mark.parametrize("path", ["/watcher", "/compat/watcher"])
@pytest.mark.parametrize(
    ("accepted", "compressed"),
    [("gzip", True), ("gzip, deflate, br", True), ("*", True), ("gzip;q=0.1", True), ("gzip;q=0", False),
     ("identity", False), ("br", False), ("", False)],
)  # fmt: skip
def test_compression(full: Api, path: str, accepted: str, compressed: bool) -> None:
    """The body is compressed exactly for those who accept gzip, and is the same one."""
    plain = full.get(path)
    response = full.get(path, Accept_Encoding=accepted)
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
def test_columns_are_for_those_who_prefer_them(full: Api, path: str, accepted: str, columnar: bool) -> None:
    """Who prefers the columnar form gets the same in it, with a tag of its own; everybody else gets the dialect."""
    plain, response = full.get(path), full.get(path, Accept=accepted)
    assert response.status_code == 200
    assert response.content_type == (COLUMNS_TYPE if columnar else "application/json")
    assert (response.data != plain.data) is (response.headers["ETag"] != plain.headers["ETag"]) is columnar
    assert wire.decode(response.data) == wire.decode(plain.data)
    assert response.headers["Vary"] == "Accept, Accept-Encoding"
    compressed = full.get(path, Accept=accepted, Accept_Encoding="gzip")
    assert gzip.decompress(compressed.data) == response.data
    tag = response.headers["ETag"]
    assert full.get(path, Accept=accepted, If_None_Match=tag).status_code == 304
    assert full.get(path, Accept="application/json", If_None_Match=tag).status_code == (200 if columnar else 304)


def test_one_node_has_no_columns(full: Api) -> None:
    """The answer about one node is in the dialect whatever is asked for."""
    for path in ("/watcher/a", "/watcher?host=a"):
        assert full.get(path, Accept=COLUMNS_TYPE).data == full.get(path).data


def test_requests_encode_nothing(full: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fetch encodes each node once a window, for all that is served and stored; requests hand the same bytes out."""
    encoded: list[str] = []
    encode = wire.encode_node

    def counted(name: str, node: NodeMetrics) -> bytes:
        encoded.append(name)
        return encode(name, node)

    monkeypatch.setattr(wire, "encode_node", counted)
    full.now += 60
    full.watcher.fetch_once()
    assert encoded == ["a"] * 3
    for _ in range(3):
        for path in ("/watcher", "/watcher/a", "/compat/watcher", "/compat/watcher/a", "/watcher?window=5m"):
            assert full.get(path).status_code == 200
    assert encoded == ["a"] * 3
    published = full.watcher.published()
    assert published.body(Dialect.DOCUMENTED).identity is full.watcher.published().body(Dialect.DOCUMENTED).identity


# -- the rest -----------------------------------------------------------------------------------------------------


def test_findings(full: Api) -> None:
    """/findings lists what was wrong with the last fetch, each with all its fields."""
    assert full.get("/findings").json == {"findings": [], "counts": {}}
    full.fail("15m")
    full.watcher.fetch_once()
    assert full.get("/findings").json == {
        "findings": [
            {"kind": "fetch_failed", "message": "no route (15m)", "window": "15m", "node": "", "metric": "",
             "action": "reported", "since": START}
        ],
        "counts": {"fetch_failed": 1},
    }  # fmt: skip


def test_metrics(full: Api) -> None:
    """/metrics is Prometheus' text format and counts requests by route, never by node."""
    full.get("/watcher/a")
    full.get("/watcher/" + "x" * 100)
    full.get("/nowhere")
    response = full.get("/metrics")
    assert response.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert 'trimaran_http_requests_total{route="/watcher/<host>",status="200"} 1.0' in response.text
    assert 'trimaran_http_requests_total{route="/watcher/<host>",status="404"} 1.0' in response.text
    assert 'trimaran_http_requests_total{route="none",status="404"} 1.0' in response.text
    assert "xxxx" not in response.text


def test_a_defect_is_a_500_that_tells_nothing(
    full: Api, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An exception of our own is an error of the one shape, with the reason in the log and not in the answer."""

    def fail() -> None:
        raise RuntimeError("inner secret")

    monkeypatch.setattr(full.watcher, "findings", fail)
    assert "inner secret" not in check_error(full.get("/findings"), 500, "internal")
    assert "inner secret" in caplog.text
