"""The JSON of both dialects, in and out."""

import contextlib
import json
import math
from typing import Any

import jsonschema
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from watcher import wire
from watcher.model import Metric, NodeMetrics, WatcherMetrics, Window
from watcher.server.openapi import schema
from watcher.wire import Dialect, WireError

KEP = jsonschema.Draft4Validator(schema("kep"))
OURS = jsonschema.Draft202012Validator(schema("watcher"))
CPU = Metric("instance:node_cpu:ratio", "CPU", "AVG", "15m", 20.5)
STD = Metric("instance:node_cpu:ratio", "CPU", "STD", "15m", 5.1)


def snapshot(**data: NodeMetrics) -> WatcherMetrics:
    """Return a snapshot of some nodes."""
    return WatcherMetrics(1556987522, Window("15m", 1556986622, 1556987522), "Prometheus", data)


def payload(**changes: Any) -> dict[str, Any]:
    """Return the contract's example with changes."""
    metric = {"name": "n", "type": "CPU", "operator": "AVG", "rollup": "15m", "value": 20.5}
    return {
        "timestamp": 1,
        "window": {"duration": "15m", "start": 0, "end": 900},
        "source": "x",
        "data": {"a": {"metrics": [metric], "tags": {}, "metadata": {}}},
        **changes,
    }


def test_the_contracts_example() -> None:
    """The documented dialect is the contract's example to the letter."""
    node = NodeMetrics((CPU, STD), {}, {"dataCenter": "dc-1", "pool": "critical-apps"})
    assert json.loads(wire.encode(snapshot(**{"node-1": node}))) == {
        "timestamp": 1556987522,
        "window": {"duration": "15m", "start": 1556986622, "end": 1556987522},
        "source": "Prometheus",
        "data": {
            "node-1": {
                "metrics": [
                    {"name": CPU.name, "type": "CPU", "operator": "AVG", "rollup": "15m", "value": 20.5},
                    {"name": CPU.name, "type": "CPU", "operator": "STD", "rollup": "15m", "value": 5.1},
                ],
                "tags": {},
                "metadata": {"dataCenter": "dc-1", "pool": "critical-apps"},
            }
        },
    }  # fmt: skip


def test_the_go_dialect_has_one_more_level() -> None:
    """In Go's dialect the nodes stand under NodeMetricsMap, and nothing else differs."""
    metrics = snapshot(a=NodeMetrics((CPU,)))
    documented, go = json.loads(wire.encode(metrics)), json.loads(wire.encode(metrics, Dialect.GO))
    assert go == {**documented, "data": {"NodeMetricsMap": documented["data"]}}


@pytest.mark.parametrize("dialect", Dialect)
def test_what_is_written_is_read_back(dialect: Dialect) -> None:
    """Reading what was written gives an equal snapshot, in either dialect."""
    node = NodeMetrics((CPU, STD), {"smoothing": "5m"}, {"pool": "a", "grade": "last_good", "coverage": 0.5})
    metrics = snapshot(a=node, b=NodeMetrics((CPU,)))
    assert wire.decode(wire.encode(metrics, dialect)) == metrics


def test_both_schemas_accept_what_is_written() -> None:
    """The KEP's schema and ours accept a full payload; both are valid schemas themselves."""
    KEP.check_schema(KEP.schema)
    OURS.check_schema(OURS.schema)
    node = NodeMetrics((CPU, STD), {"step": "15s"}, {"dataCenter": "dc", "pool": "p", "grade": "x", "coverage": 0.25})
    document = json.loads(wire.encode(snapshot(**{"node-1": node})))
    KEP.validate(document)
    OURS.validate(document)


def test_an_all_digit_name_meets_the_keps_integer_rule() -> None:
    """The KEP's schema wants whole values under an all-digit name: a fraction is refused there, as documented."""
    whole = Metric("n", "CPU", "AVG", "15m", 20.0)
    KEP.validate(json.loads(wire.encode(snapshot(**{"17": NodeMetrics((whole, whole))}))))
    assert not KEP.is_valid(json.loads(wire.encode(snapshot(**{"17": NodeMetrics((CPU, STD))}))))


@pytest.mark.parametrize(
    "wrong",
    [
        payload(timestamp=1.5),
        payload(source=""),
        payload(extra=1),
        payload(window={"duration": "15m", "start": 0}),
        payload(data={"a": {"metrics": [], "tags": {}, "metadata": {}}}),
        payload(
            data={"a": {"metrics": [{"name": "n", "type": "CPU", "operator": "AVG", "rollup": "15m", "value": 101}]}}
        ),
    ],
)
def test_our_schema_refuses(wrong: dict[str, Any]) -> None:
    """Our schema is strict enough to refuse what we never write."""
    OURS.validate(payload())
    assert not OURS.is_valid(wrong)


def test_values_have_at_most_ten_decimals() -> None:
    """Values are rounded to ten decimals, so that no long exponent is ever written."""
    values = [1 / 3, 1e-300, 100 - 1e-14, 5e-10]
    node = NodeMetrics(tuple(Metric("n", "CPU", "AVG", "15m", value) for value in values))
    written = json.loads(wire.encode(snapshot(a=node)), parse_float=str)["data"]["a"]["metrics"]
    assert [metric["value"] for metric in written] == ["0.3333333333", 0, 100, "5e-10"]


def test_numbers_of_numpy_are_written() -> None:
    """A provider may hand over numpy's numbers."""
    node = NodeMetrics(
        (Metric("n", "CPU", "AVG", "15m", np.float64(1.5)), Metric("n", "CPU", "STD", "15m", np.float32(2)))
    )
    written = json.loads(wire.encode(snapshot(a=node)))["data"]["a"]["metrics"]
    assert [metric["value"] for metric in written] == [1.5, 2.0]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_json_cannot_hold_is_refused(value: float) -> None:
    """NaN and infinity raise an error that names node and metric."""
    node = NodeMetrics((Metric("load", "CPU", "AVG", "15m", value),))
    with pytest.raises(WireError, match=r"data\.a: load AVG"):
        wire.encode(snapshot(a=node))


@pytest.mark.parametrize(
    ("name", "node"),
    [
        ("\ud800", NodeMetrics((CPU,))),
        ("a", NodeMetrics((Metric("\ud800", "CPU", "AVG", "15m", 1.0),))),
        ("a", NodeMetrics((CPU,), metadata={"coverage": object()})),  # type: ignore[dict-item]
        ("a", NodeMetrics((CPU,), metadata={"coverage": math.nan})),
    ],
)
def test_texts_json_cannot_hold_are_refused(name: str, node: NodeMetrics) -> None:
    """Half a surrogate pair, NaN and foreign objects raise a WireError, which itself can be printed."""
    with pytest.raises(WireError) as caught:
        wire.encode(snapshot(**{name: node}))
    str(caught.value).encode("ascii", "backslashreplace")


@given(st.text())
def test_any_message_is_a_valid_error_body(message: str) -> None:
    """An error body is JSON of the one shape whatever the message quotes."""
    body = json.loads(wire.encode_error("code", message + "\udcff"))
    assert body.keys() == {"error"}
    assert body["error"].keys() == {"code", "message"}


@pytest.mark.parametrize(
    "document",
    [
        payload(data={"NodeMetricsMap": None}),
        payload(data={"NodeMetricsMap": {}}),
        payload(data={}),
    ],
)
def test_no_nodes_are_read_as_none(document: dict[str, Any]) -> None:
    """An empty map in either dialect, and Go's null, are a snapshot without nodes."""
    assert wire.decode(json.dumps(document)).data == {}


def test_what_go_leaves_out_is_read() -> None:
    """Go writes null for nil maps and slices, may leave operator and rollup out, and adds keys of its own."""
    node = {"metrics": [{"name": "n", "type": "CPU", "value": 1}], "tags": None, "metadata": {"dataCenter": ""}, "x": 1}
    read = wire.decode(json.dumps(payload(data={"NodeMetricsMap": {"a": node, "b": {"metrics": None}}})))
    assert read.data["a"] == NodeMetrics((Metric("n", "CPU", "", "", 1.0),), {}, {"dataCenter": ""})
    assert read.data["b"] == NodeMetrics(())


@pytest.mark.parametrize("value", [-5, 250.5, 1e300, 2**70, 0])
def test_any_finite_value_is_read(value: float) -> None:
    """Reading keeps any finite number, as a float; the range is the writer's promise."""
    metric = {"name": "n", "type": "Unknown", "operator": "Median", "rollup": "1h", "value": value}
    read = wire.decode(json.dumps(payload(data={"a": {"metrics": [metric]}}))).data["a"].metrics[0]
    assert read == Metric("n", "Unknown", "Median", "1h", float(value))
    assert isinstance(read.value, float)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "not JSON"),
        (b"<html>", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", "the document must be an object"),
        (b"null", "the document must be an object"),
        (json.dumps(payload(timestamp="1")), "timestamp must be an integer"),
        (json.dumps(payload(timestamp=True)), "timestamp must be an integer"),
        (json.dumps(payload(window=None)), "window must be an object"),
        (json.dumps(payload(window={"duration": 1, "start": 0, "end": 1})), "window.duration must be a string"),
        (json.dumps(payload(window={"duration": "1m", "start": "0", "end": 1})), "window.start must be an integer"),
        (json.dumps(payload(source=None)), "the document.source must be a string"),
        (json.dumps(payload(data=None)), "data must be an object"),
        (json.dumps(payload(data={"a": None})), "data.a must be an object"),
        (json.dumps(payload(data={"a": {"metrics": {}}})), "data.a.metrics must be an array"),
        (json.dumps(payload(data={"a": {"metrics": [1]}})), "data.a.metrics[] must be an object"),
        (json.dumps(payload(data={"a": {"metrics": [{"name": "n", "type": "CPU", "value": "1"}]}})), "finite number"),
        (json.dumps(payload(data={"a": {"metrics": [{"name": "n", "type": "CPU"}]}})), "finite number"),
        (json.dumps(payload(data={"a": {"metrics": [{"name": 1, "type": "", "value": 1}]}})), "name must be a string"),
        (json.dumps(payload(data={"a": {"metrics": [], "tags": []}})), "data.a.tags must be an object"),
        (b'{"timestamp": 1, "x": NaN}', "not JSON"),
    ],
)  # fmt: skip
def test_what_is_no_payload(body: bytes | str, words: str) -> None:
    """Anything else raises a WireError that names the place."""
    with pytest.raises(WireError) as caught:
        wire.decode(body)
    assert words in str(caught.value)


KEYS = st.sampled_from(["timestamp", "window", "data", "metrics", "NodeMetricsMap", "value", "a"])
SCALARS = st.none() | st.booleans() | st.floats() | st.text()


@given(st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner)))
def test_reading_raises_nothing_but_wire_errors(document: Any) -> None:
    """Whatever JSON comes, the answer is a snapshot or a WireError."""
    for body in (document, payload(data=document), payload(data={"a": document}), payload(window=document)):
        with contextlib.suppress(WireError):
            wire.decode(json.dumps(body))


@given(st.binary() | st.text())
def test_reading_bytes_raises_nothing_but_wire_errors(body: bytes | str) -> None:
    """Whatever bytes or text come, too, JSON or not."""
    with contextlib.suppress(WireError):
        wire.decode(body)


TEXTS = st.text(st.characters(codec="utf-8"))
VALUES = st.integers(-(10**6), 10**6).map(lambda number: number / 1024)  # ten decimals hold them exactly
NODES = st.builds(
    NodeMetrics,
    st.lists(st.builds(Metric, TEXTS, TEXTS, TEXTS, TEXTS, VALUES)).map(tuple),
    st.dictionaries(TEXTS, TEXTS),
    st.dictionaries(TEXTS, TEXTS | st.floats(allow_nan=False, allow_infinity=False)),
)
WHOLE = st.integers(-(2**63), 2**63 - 1)
SNAPSHOTS = st.builds(
    WatcherMetrics,
    WHOLE,
    st.builds(Window, TEXTS, WHOLE, WHOLE),
    TEXTS,
    st.dictionaries(TEXTS.filter(lambda name: name != "NodeMetricsMap"), NODES),
)


@given(SNAPSHOTS, st.sampled_from(Dialect))
def test_whatever_is_written_is_read_back(metrics: WatcherMetrics, dialect: Dialect) -> None:
    """Any snapshot, with any texts, comes back equal, in either dialect; ten decimals of a value are kept."""
    assert wire.decode(wire.encode(metrics, dialect)) == metrics
