"""The history over REST and in both clients."""

import gzip
import sys
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import numpy as np
import orjson
import pytest
from support.bench import START, Api
from support.servers import served_app

from client import LibraryClient, ServiceClient, UnknownNode
from watcher.api.openapi import document
from watcher.history import History, HistorySeries, Steps
from watcher.model import Metric, NodeMetrics, WatcherMetrics, Window
from watcher.providers.base import Fetched
from watcher.wire import WireError
from watcher.wire.history import decode_history, encode_history


def loads(window: Window) -> Fetched:
    """Return two nodes whose load is the minute of the hour."""
    minute = window.end // 60 % 60
    return Fetched(
        {
            name: NodeMetrics(
                (
                    Metric("cpu", "CPU", "AVG", window.duration, minute + extra),
                    Metric("cpu", "CPU", "STD", window.duration, 1.5),
                    Metric("memory", "Memory", "AVG", window.duration, 33.333),
                )
            )
            for name, extra in (("a", 0), ("b", 0.25))
        }
    )


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    """An API whose watcher has fetched for ten minutes."""
    api = Api(path=tmp_path / "watcher.sqlite")
    api.source.answers = dict.fromkeys(("15m", "10m", "5m"), loads)
    for _ in range(10):
        api.watcher.fetch_once()
        api.now += 60
    api.now -= 60
    yield api
    api.watcher.stop()


def test_one_node_has_all_its_metrics(api: Api) -> None:
    """?host= returns every metric of the node, one value per minute and null for a minute without a fetch."""
    body = api.get("/history?host=b&since=12m").json
    first = int(START) // 60
    assert (body["start"], body["step"], body["steps"], body["nodes"]) == ((first - 3) * 60, 60, 13, ["b"])
    values = {(series["type"], series["operator"]): series["values"] for series in body["series"]}
    assert set(values) == {("CPU", "AVG"), ("CPU", "STD"), ("Memory", "AVG")}
    assert values["CPU", "AVG"] == [[None] * 3 + [(first + minute) % 60 + 0.25 for minute in range(10)]]
    assert values["Memory", "AVG"][0][-1] == 33.33


def test_all_nodes_have_one_metric(api: Api) -> None:
    """Without ?host=, the history has the average CPU, or the requested metric, in at most 300 steps."""
    body = api.get("/history").json
    assert (body["nodes"], body["step"]) == (["a", "b"], 300)
    assert body["steps"] <= 300
    assert [(series["type"], series["operator"]) for series in body["series"]] == [("CPU", "AVG")]
    body = api.get("/history?type=Memory&operator=AVG&since=5m&step=60").json
    assert body["series"][0]["values"] == [[33.33] * 6] * 2


def test_answer_is_valid_and_compressed(api: Api) -> None:
    """The body is valid by the OpenAPI document, and compressed for clients that accept gzip."""
    response = api.get("/history", Accept_Encoding="gzip")
    body = orjson.loads(gzip.decompress(response.data))
    schema = {"$ref": "#/components/schemas/History", "components": document()["components"]}
    jsonschema.Draft202012Validator(schema).validate(body)
    assert body == api.get("/history").json


@pytest.mark.parametrize(
    ("query", "status", "words"),
    [
        ("host=nobody", 404, "node 'nobody' has no history"),
        ("host=nobody&type=CPU", 404, "node 'nobody' has no history"),
        ("type=cpu", 400, "no history of type 'cpu'; available: CPU AVG, CPU STD, Memory AVG"),
        ("type=Disk", 400, "no history of type 'Disk'; available: CPU AVG, CPU STD, Memory AVG"),
        ("type=GPU", 400, "no history of type 'GPU'; available: CPU AVG, CPU STD, Memory AVG"),
        ("operator=P99", 400, "no history of operator 'P99'; available: CPU AVG, CPU STD, Memory AVG"),
        ("host=a&type=Memory&operator=STD", 400, "no history of type 'Memory' and operator 'STD'; available: CPU"),
        ("step=60", 400, "use at least 300 s"),
        ("since=tomorrow", 400, "since must be Unix seconds or a duration before now"),
        ("since=99999999999", 400, "the parameter since"),
        ("step=61", 400, "whole minutes"),
        ("step=x", 400, "duration"),
        ("host=a&step=9999999999999999999999", 400, "whole minutes"),
        ("window=5m", 400, "unknown parameter 'window'"),
    ],
)
def test_bad_queries_get_a_helpful_error(api: Api, query: str, status: int, words: str) -> None:
    """A bad query gets its status and a message that names the valid values."""
    response = api.get(f"/history?{query}")
    assert response.status_code == status
    assert words in response.json["error"]["message"]


def test_an_empty_history_knows_types_and_operators() -> None:
    """Before the first fetch, known types and operators have an empty history, and other words are errors."""
    bench = Api()
    assert bench.get("/history?type=Memory&operator=P99").json["series"] == []
    for query, known in (("type=memory", "CPU, Memory, "), ("operator=avg", "AVG, STD, ")):
        response = bench.get(f"/history?{query}")
        assert response.status_code == 400
        assert f"; available: {known}" in response.json["error"]["message"]
    bench.watcher.stop()


def test_both_clients_return_the_same(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """The service client and the library client return the same arrays and raise the same errors."""
    library = LibraryClient.__new__(LibraryClient)
    monkeypatch.setattr(library, "_watcher", api.watcher, raising=False)
    with served_app(api.app) as url, ServiceClient(url, retries=0) as service:
        for query in ({}, {"node": "a"}, {"node": "a", "type": "CPU", "since": START, "step": "2m"}):
            remote, embedded = service.history(**query), library.history(**query)
            assert (remote.nodes, remote.steps) == (embedded.nodes, embedded.steps)
            for one, other in zip(remote.series, embedded.series, strict=True):
                assert (one.name, one.type, one.operator) == (other.name, other.type, other.operator)
                np.testing.assert_array_equal(one.values, other.values)
        for client in (service, library):
            with pytest.raises(UnknownNode, match="nobody"):
                client.history("nobody")
            with pytest.raises(ValueError, match="300 s"):
                client.history(step=60)


def test_wire_round_trip() -> None:
    """Decoding an encoded history returns its names, times, values and gaps."""
    values = np.array([[1.25, np.nan], [100, 0]] * 20, np.float32)
    names = tuple(f"node-{number:02}" for number in range(40))
    history = History(names, Steps(600, 60, 2), (HistorySeries("cpu", "CPU", "AVG", values),))
    decoded = decode_history(b"".join(encode_history(history)))
    assert (decoded.nodes, decoded.steps) == (history.nodes, history.steps)
    np.testing.assert_array_equal(decoded.of("CPU"), values)
    assert decoded.times.tolist() == [600, 660]
    with pytest.raises(KeyError, match=r"GPU AVG; .*CPU AVG"):
        decoded.of("GPU")
    empty = History((), Steps(0, 60, 5), ())
    assert decode_history(b"".join(encode_history(empty))).series == ()


HEAD = b'{"start":0,"step":60,"steps":2,"nodes":["a"],"series":[{"name":"","type":"","operator":"","values":'


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{}", HEAD + b"[[1,2],[3,4]]}]}", HEAD + b"[[1],[3,4]]}]}", HEAD + b"[[1]]}]}"]
)
def test_invalid_histories_are_refused(body: bytes) -> None:
    """Other documents, and arrays of the wrong shape, raise WireError."""
    with pytest.raises(WireError):
        decode_history(body)


def test_data_frames_and_notebook_output() -> None:
    """A history and a snapshot convert to data frames; their representation is one line for any number of nodes."""
    pytest.importorskip("pandas")
    values = np.array([[1, 2], [3, np.nan]], np.float32)
    history = History(("a", "b"), Steps(1_700_000_040, 60, 2), (HistorySeries("cpu", "CPU", "AVG", values),))
    frame = history.to_frame()
    assert frame.index.names == ["node", "time"]
    assert frame.loc["a", "CPU AVG"].tolist() == [1, 2]
    assert str(frame.index[0][1]) == "2023-11-14 22:14:00+00:00"
    assert repr(history) == "History(CPU AVG of 2 nodes, 2 x 60 s from 2023-11-14 22:14Z)"
    assert "<p>History(CPU AVG of 2 nodes" in history._repr_html_()
    assert "<td>3.00</td>" in history._repr_html_()
    window = Window("15m", 0, 900)
    nodes = loads(window).nodes
    metrics = WatcherMetrics(900, window, "Test", {**nodes, "c": NodeMetrics((), {}, {"grade": "last_good"})})
    frame = metrics.to_frame()
    assert frame.loc["b", ["CPU AVG", "CPU STD", "Memory AVG"]].tolist() == [15.25, 1.5, 33.333]
    assert frame.loc["c", "grade"] == "last_good"
    assert repr(metrics) == "WatcherMetrics(15m of 3 nodes from Test, 1970-01-01 00:15:00Z)"
    assert "<td>last_good</td>" in metrics._repr_html_()


def test_notebook_output_has_ten_rows(monkeypatch) -> None:
    """A notebook shows ten rows of a large cluster, escapes names, and falls back to the one line without pandas."""
    pytest.importorskip("pandas")
    window = Window("15m", 0, 900)
    node = NodeMetrics((Metric("cpu", "CPU", "AVG", "15m", 20.5),))
    metrics = WatcherMetrics(900, window, "<b>", {f"node-{number}": node for number in range(5000)})
    shown = metrics._repr_html_()
    assert shown.count("<td>20.50</td>") == 10
    assert "from &lt;b&gt;" in shown
    monkeypatch.setitem(sys.modules, "pandas", None)
    assert metrics._repr_html_() is None


def test_metrics_are_attributes_of_a_node() -> None:
    """``snapshot["node-1"].cpu.avg`` is the value; absent metrics are None, and Latest is returned as the average."""
    window = Window("15m", 0, 900)
    metrics = WatcherMetrics(900, window, "Test", loads(window).nodes)
    assert (metrics["a"].cpu.avg, metrics["a"].cpu.std, metrics["a"].cpu.p95) == (15, 1.5, None)
    latest = NodeMetrics((Metric("memory", "Memory", "Latest", "15m", 7.0), Metric("m", "Memory", "P95", "15m", 9.0)))
    assert (latest.memory.avg, latest.memory.p95, latest.cpu.avg) == (7.0, 9.0, None)
    with pytest.raises(KeyError):
        metrics["nobody"]
