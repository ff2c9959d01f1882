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

from runtime.server.errors import encode_error
from watcher import wire
from watcher.api.openapi import schema
from watcher.model import Metric, NodeMetrics, WatcherMetrics, Window
from watcher.wire import Dialect, WireError, reading, typed

KEP = jsonschema.Draft4Validator(schema("kep"))
OURS = jsonschema.Draft202012Validator(schema("watcher"))
COLUMNS = jsonschema.Draft202012Validator(schema("columns"))
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
    body = json.loads(encode_error("code", message + "\udcff"))
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
    st.dictionaries(TEXTS | st.just("NodeMetricsMap"), NODES),
)


@given(SNAPSHOTS, st.sampled_from(Dialect))
def test_whatever_is_written_is_read_back(metrics: WatcherMetrics, dialect: Dialect) -> None:
    """Any snapshot, with any texts, comes back equal, in either dialect; ten decimals of a value are kept."""
    assert wire.decode(wire.encode(metrics, dialect)) == metrics


ODD = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | st.just([]) | st.just({})
METRIC = st.fixed_dictionaries(
    {"name": st.just("n") | ODD, "type": st.just("CPU") | ODD, "value": st.floats() | st.integers() | ODD},
    optional={"operator": st.just("AVG") | ODD, "rollup": st.just("15m") | ODD, "x": ODD},
)
SOUND = st.fixed_dictionaries({"name": st.just("n"), "type": st.just("CPU"), "value": st.floats(-1e9, 1e9)})
NODE = st.fixed_dictionaries(
    {}, optional={"metrics": st.lists(SOUND | METRIC, max_size=3) | ODD, "tags": st.dictionaries(TEXTS, ODD) | ODD}
)
DATA = st.dictionaries(st.sampled_from(["a", "b", "metrics", "NodeMetricsMap"]), NODE | st.none(), max_size=3)


@given(DATA | st.builds(lambda data: {"NodeMetricsMap": data}, DATA), st.sampled_from([None, *Dialect]), WHOLE | ODD)
def test_the_fast_way_to_read_reads_nothing_else(data: Any, dialect: Dialect | None, timestamp: Any) -> None:
    """What is read straight into structures is, to the last bit, what looking at it closely gives."""
    body = json.dumps(payload(data=data, timestamp=timestamp)).encode()
    fast = typed.decode(body, dialect)
    if fast is not None:
        slow = reading.examine(body, dialect)
        assert slow == fast
        assert [repr([*node.metrics]) for node in slow.data.values()] == [
            repr([*fast.data[name].metrics]) for name in slow.data
        ]


@pytest.mark.parametrize("dialect", Dialect)
def test_what_is_as_usual_is_read_the_fast_way(dialect: Dialect) -> None:
    """What a watcher writes, and what Go leaves out, needs no close look."""
    nodes = snapshot(a=NodeMetrics((CPU, STD), {"smoothing": "5m"}, {"pool": "x"}), b=NodeMetrics(()))
    assert typed.decode(wire.encode(nodes, dialect), None) == nodes
    sparse = {"a": {"metrics": [{"name": "n", "type": "CPU", "value": 1}], "tags": None}, "b": {"metrics": None}}
    data = {"NodeMetricsMap": sparse} if dialect is Dialect.GO else sparse
    assert typed.decode(json.dumps(payload(data=data)).encode(), None) is not None


# -- the columnar form --------------------------------------------------------------------------------------------


def columnar(**changes: Any) -> dict[str, Any]:
    """Return a small document in the columnar form with changes to its only group."""
    series = {"name": "n", "type": "CPU", "operator": "AVG", "rollup": "15m", "values": [20.5, 3]}
    group = {"nodes": ["a", "b"], "series": [series], "tags": {}, "metadata": {}, **changes}
    head = {key: value for key, value in payload().items() if key != "data"}
    return {**head, "groups": [group]}


def test_the_columnar_form_to_the_letter() -> None:
    """Nodes that have the same series and tags are one group; its values stand by series, in the order of its nodes."""
    tags = {"smoothing": "5m"}
    data = {
        "a": NodeMetrics((CPU, STD), tags, {"pool": "x"}),
        "b": NodeMetrics((CPU, STD), tags),
        "c": NodeMetrics((CPU, STD)),
        "d": NodeMetrics((STD, CPU), tags),
    }
    cpu = {"name": CPU.name, "type": "CPU", "operator": "AVG", "rollup": "15m"}
    std = {**cpu, "operator": "STD"}
    document = json.loads(wire.encode_columns(snapshot(**data)))
    assert document["groups"] == [
        {"nodes": ["a", "b"], "tags": tags, "metadata": {"a": {"pool": "x"}},
         "series": [{**cpu, "values": [20.5, 20.5]}, {**std, "values": [5.1, 5.1]}]},
        {"nodes": ["c"], "tags": {}, "metadata": {}, "series": [{**cpu, "values": [20.5]}, {**std, "values": [5.1]}]},
        {"nodes": ["d"], "tags": tags, "metadata": {}, "series": [{**std, "values": [5.1]}, {**cpu, "values": [20.5]}]},
    ]  # fmt: skip
    assert {key: value for key, value in document.items() if key != "groups"} == {
        key: value for key, value in json.loads(wire.encode(snapshot())).items() if key != "data"
    }
    COLUMNS.validate(document)


@given(SNAPSHOTS)
def test_the_columnar_form_says_the_same(metrics: WatcherMetrics) -> None:
    """Any snapshot, with any texts, comes back equal from the columnar form, also when it was read before."""
    read = wire.decode(wire.encode_columns(metrics))
    assert read == metrics == wire.decode(wire.encode_columns(read))


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1))
def test_the_columnar_form_has_the_same_numbers(values: list[float]) -> None:
    """What is read from it is to the last bit what is read from a dialect."""
    metrics = snapshot(a=NodeMetrics(tuple(Metric(f"n{row}", "x", "", "", v) for row, v in enumerate(values))))
    columns, nodes = wire.decode(wire.encode_columns(metrics)), wire.decode(wire.encode(metrics))
    assert [repr(metric) for metric in columns.data["a"].metrics] == [
        repr(metric) for metric in nodes.data["a"].metrics
    ]


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_the_columnar_form_refuses_what_json_cannot_hold(value: float) -> None:
    """NaN and infinity raise an error that names node and metric, as do texts that are not valid Unicode."""
    with pytest.raises(WireError, match=r"data\.a: load AVG"):
        wire.encode_columns(
            snapshot(b=NodeMetrics((CPU,)), a=NodeMetrics((Metric("load", "CPU", "AVG", "1m", value),)))
        )
    with pytest.raises(WireError, match="metadata"):
        wire.encode_columns(snapshot(a=NodeMetrics((CPU,), metadata={"coverage": value})))
    with pytest.raises(WireError, match="groups"):
        wire.encode_columns(snapshot(**{"\ud800": NodeMetrics((CPU,))}))


def series(**changes: Any) -> dict[str, Any]:
    """Return a group's series, one of which has these changes."""
    whole = columnar()["groups"][0]["series"][0]
    return {"series": [whole, {**whole, **changes}]}


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({**columnar(), "groups": {}}, "groups must be an array"),
        ({**columnar(), "groups": None}, "groups must be an array"),
        ({**columnar(), "groups": [1]}, "groups[0] must be an object"),
        (columnar(nodes=None), "groups[0].nodes must be an array"),
        (columnar(nodes=["a", 1]), "groups[0].nodes must be strings"),
        (columnar(nodes=["a", None]), "groups[0].nodes must be strings"),
        (columnar(nodes=["a", "a"]), "node a occurs twice"),
        ({**columnar(), "groups": columnar()["groups"] * 2}, "node a occurs twice"),
        (columnar(series={}), "groups[0].series must be an array"),
        (columnar(series=["n"]), "groups[0].series[0] must be an object"),
        (columnar(**series(name=None)), "groups[0].series[1].name must be a string"),
        (columnar(**series(operator=["AVG"])), "groups[0].series[1].operator must be a string"),
        (columnar(**series(values=None)), "groups[0].series[1].values must be an array"),
        (columnar(**series(values=[1])), "groups[0].series[1].values has 1 values for 2 nodes"),
        (columnar(**series(values=[1, 2, 3])), "groups[0].series[1].values has 3 values for 2 nodes"),
        (columnar(**series(values=[1, None])), "groups[0].series[1].values must be finite numbers"),
        (columnar(**series(values=[1, True])), "groups[0].series[1].values must be finite numbers"),
        (columnar(**series(values=[1, "2"])), "groups[0].series[1].values must be finite numbers"),
        (columnar(**series(values=[1, [2]])), "groups[0].series[1].values must be finite numbers"),
        (columnar(**series(values=[1, math.nan])), "not JSON"),
        (columnar(tags=[]), "groups[0].tags must be an object"),
        (columnar(metadata=[]), "groups[0].metadata must be an object"),
        (columnar(metadata={"a": 1}), "groups[0].metadata.a must be an object"),
        (columnar(metadata={"c": {}}), "groups[0].metadata names c, which is not among its nodes"),
        ({**columnar(), "timestamp": None}, "timestamp must be an integer"),
    ],
)
def test_what_is_no_columnar_form(document: dict[str, Any], words: str) -> None:
    """Anything else raises a WireError that names the place."""
    assert wire.decode(json.dumps(columnar())).data["b"].metrics[0].value == 3
    with pytest.raises(WireError) as caught:
        wire.decode(json.dumps(document))
    assert words in str(caught.value)


def test_numbers_that_are_too_large_are_no_json() -> None:
    """A number beyond a float's range is refused in either form, not read as infinity."""
    for document in (payload(), columnar()):
        with pytest.raises(WireError, match="not JSON"):
            wire.decode(json.dumps(document).replace("20.5", "1e999"))


COLUMN_KEYS = st.sampled_from(["nodes", "series", "values", "tags", "metadata", "name", "type", "a"])


@given(st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(COLUMN_KEYS, inner)))
def test_reading_columns_raises_nothing_but_wire_errors(part: Any) -> None:
    """Whatever JSON stands in its places, the answer is a snapshot or a WireError."""
    parts = [{key: part} for key in ("nodes", "series", "tags", "metadata")]
    bodies = [{**columnar(), "groups": part}, *(columnar(**each) for each in parts), columnar(**series(values=part))]
    for body in bodies:
        with contextlib.suppress(WireError):
            wire.decode(json.dumps(body)).data.items()


# -- names and numbers that could be taken for something else -----------------------------------------------------

NAMED = NodeMetrics((CPU,), {"smoothing": "5m"}, {"pool": "x"})


@pytest.mark.parametrize("others", [{}, {"b": NodeMetrics((STD,))}], ids=["alone", "among others"])
@pytest.mark.parametrize("name", ["NodeMetricsMap", "metrics", "data", "groups", "nodes", "", "a/b?c#d", "é\n\0🙂"])
@pytest.mark.parametrize("dialect", Dialect)
def test_a_node_may_have_any_name(dialect: Dialect, name: str, others: dict[str, NodeMetrics]) -> None:
    """A node that is named as a key of the contract is read as a node, in every form, known or not."""
    metrics = snapshot(**{name: NAMED, **others})
    body = wire.encode(metrics, dialect)
    assert wire.decode(body) == wire.decode(body, dialect) == wire.decode(wire.encode_columns(metrics)) == metrics


def test_a_node_without_metrics_may_be_called_as_gos_key() -> None:
    """Go's key is told from a node of that name, also where that has no metric, or null, and where Go has no node."""
    for metrics in ([], None):
        read = wire.decode(json.dumps(payload(data={"NodeMetricsMap": {"metrics": metrics, "tags": {}}})))
        assert dict(read.data) == {"NodeMetricsMap": NodeMetrics(())}
    assert not wire.decode(json.dumps(payload(data={"NodeMetricsMap": {}}))).data


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, 2**64 - 1, 2**64, 10**30])
@pytest.mark.parametrize("place", ["timestamp", "start", "end"])
def test_times_have_64_bits(place: str, value: int) -> None:
    """A time that no reader's integer can hold is refused where it is read."""
    document = payload()
    (document if place == "timestamp" else document["window"])[place] = value
    with pytest.raises(WireError, match=rf"{place} must be an integer of 64 bits"):
        wire.decode(json.dumps(document))
