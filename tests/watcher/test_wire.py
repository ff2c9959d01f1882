"""Encoding and decoding of the JSON in both dialects and in the columnar form."""

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
    """Return a snapshot with the given nodes."""
    return WatcherMetrics(1556987522, Window("15m", 1556986622, 1556987522), "Prometheus", data)


def payload(**changes: Any) -> dict[str, Any]:
    """Return the API contract's example with changes."""
    metric = {"name": "n", "type": "CPU", "operator": "AVG", "rollup": "15m", "value": 20.5}
    return {
        "timestamp": 1,
        "window": {"duration": "15m", "start": 0, "end": 900},
        "source": "x",
        "data": {"a": {"metrics": [metric], "tags": {}, "metadata": {}}},
        **changes,
    }


def test_example_of_the_contract() -> None:
    """A snapshot in the documented dialect equals the API contract's example."""
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
    """Go's dialect has the nodes under NodeMetricsMap, and no other difference."""
    metrics = snapshot(a=NodeMetrics((CPU,)))
    documented, go = json.loads(wire.encode(metrics)), json.loads(wire.encode(metrics, Dialect.GO))
    assert go == {**documented, "data": {"NodeMetricsMap": documented["data"]}}


def test_encoded_snapshots_are_valid_by_both_schemas() -> None:
    """Both schemas are valid, and accept a complete encoded snapshot."""
    KEP.check_schema(KEP.schema)
    OURS.check_schema(OURS.schema)
    node = NodeMetrics((CPU, STD), {"step": "15s"}, {"dataCenter": "dc", "pool": "p", "grade": "x", "coverage": 0.25})
    document = json.loads(wire.encode(snapshot(**{"node-1": node})))
    KEP.validate(document)
    OURS.validate(document)


def test_the_keps_schema_requires_integers_under_numeric_names() -> None:
    """The KEP's schema refuses fractions of a node whose name has digits only, as documented."""
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
def test_our_schema_is_strict(wrong: dict[str, Any]) -> None:
    """Our schema refuses documents that the encoder never writes."""
    OURS.validate(payload())
    assert not OURS.is_valid(wrong)


def test_values_have_at_most_ten_decimals() -> None:
    """Values are rounded to ten decimals, so that no long exponent is written."""
    values = [1 / 3, 1e-300, 100 - 1e-14, 5e-10]
    node = NodeMetrics(tuple(Metric("n", "CPU", "AVG", "15m", value) for value in values))
    written = json.loads(wire.encode(snapshot(a=node)), parse_float=str)["data"]["a"]["metrics"]
    assert [metric["value"] for metric in written] == ["0.3333333333", 0, 100, "5e-10"]


def test_numbers_of_numpy_are_written() -> None:
    """NumPy numbers in metrics are encoded."""
    node = NodeMetrics(
        (Metric("n", "CPU", "AVG", "15m", np.float64(1.5)), Metric("n", "CPU", "STD", "15m", np.float32(2)))
    )
    written = json.loads(wire.encode(snapshot(a=node)))["data"]["a"]["metrics"]
    assert [metric["value"] for metric in written] == [1.5, 2.0]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_values_that_are_not_finite_are_refused(value: float) -> None:
    """NaN and infinity raise an error that names the node and the metric."""
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
def test_texts_and_objects_that_are_not_json_are_refused(name: str, node: NodeMetrics) -> None:
    """Lone surrogates, NaN and foreign objects raise a WireError whose message can be printed."""
    with pytest.raises(WireError) as caught:
        wire.encode(snapshot(**{name: node}))
    str(caught.value).encode("ascii", "backslashreplace")


@given(st.text())
def test_any_message_is_a_valid_error_body(message: str) -> None:
    """An error body is valid JSON for any message."""
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
def test_empty_data_is_decoded(document: dict[str, Any]) -> None:
    """An empty map in either dialect, and Go's null, decode to a snapshot without nodes."""
    assert wire.decode(json.dumps(document)).data == {}


def test_gos_nulls_and_omissions_are_decoded() -> None:
    """Go's null for maps and slices, missing operators and rollups, and additional keys are accepted."""
    node = {"metrics": [{"name": "n", "type": "CPU", "value": 1}], "tags": None, "metadata": {"dataCenter": ""}, "x": 1}
    decoded = wire.decode(json.dumps(payload(data={"NodeMetricsMap": {"a": node, "b": {"metrics": None}}})))
    assert decoded.data["a"] == NodeMetrics((Metric("n", "CPU", "", "", 1.0),), {}, {"dataCenter": ""})
    assert decoded.data["b"] == NodeMetrics(())


@pytest.mark.parametrize("value", [-5, 250.5, 1e300, 2**70, 0])
def test_any_finite_value_is_decoded(value: float) -> None:
    """The decoder accepts any finite number and returns a float; only the encoder limits the range."""
    metric = {"name": "n", "type": "Unknown", "operator": "Median", "rollup": "1h", "value": value}
    decoded = wire.decode(json.dumps(payload(data={"a": {"metrics": [metric]}}))).data["a"].metrics[0]
    assert decoded == Metric("n", "Unknown", "Median", "1h", float(value))
    assert isinstance(decoded.value, float)


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
def test_invalid_documents_are_refused(body: bytes | str, words: str) -> None:
    """Any other document raises a WireError that names the place of the error."""
    with pytest.raises(WireError) as caught:
        wire.decode(body)
    assert words in str(caught.value)


KEYS = st.sampled_from(["timestamp", "window", "data", "metrics", "NodeMetricsMap", "value", "a"])
SCALARS = st.none() | st.booleans() | st.floats() | st.text()


@given(st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner)))
def test_reading_raises_nothing_but_wire_errors(document: Any) -> None:
    """Decoding any JSON returns a snapshot or raises WireError."""
    for body in (document, payload(data=document), payload(data={"a": document}), payload(window=document)):
        with contextlib.suppress(WireError):
            wire.decode(json.dumps(body))


@given(st.binary() | st.text())
def test_reading_bytes_raises_nothing_but_wire_errors(body: bytes | str) -> None:
    """Decoding any bytes or text returns a snapshot or raises WireError."""
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
def test_round_trip_of_any_snapshot(metrics: WatcherMetrics, dialect: Dialect) -> None:
    """Any snapshot, with any texts, round-trips in either dialect, with ten decimals of each value."""
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
def test_fast_decoder_agrees_with_the_examining_one(data: Any, dialect: Dialect | None, timestamp: Any) -> None:
    """The typed decoder returns exactly the examining decoder's result, or None."""
    body = json.dumps(payload(data=data, timestamp=timestamp)).encode()
    fast = typed.decode(body, dialect)
    if fast is not None:
        slow = reading.examine(body, dialect)
        assert slow == fast
        assert [repr([*node.metrics]) for node in slow.data.values()] == [
            repr([*fast.data[name].metrics]) for name in slow.data
        ]


@pytest.mark.parametrize("dialect", Dialect)
def test_common_documents_use_the_fast_decoder(dialect: Dialect) -> None:
    """Documents of a watcher, and Go's omissions, are decoded without the examining decoder."""
    nodes = snapshot(a=NodeMetrics((CPU, STD), {"smoothing": "5m"}, {"pool": "x"}), b=NodeMetrics(()))
    assert typed.decode(wire.encode(nodes, dialect), None) == nodes
    sparse = {"a": {"metrics": [{"name": "n", "type": "CPU", "value": 1}], "tags": None}, "b": {"metrics": None}}
    data = {"NodeMetricsMap": sparse} if dialect is Dialect.GO else sparse
    assert typed.decode(json.dumps(payload(data=data)).encode(), None) is not None


# -- the columnar form --------------------------------------------------------------------------------------------


def columnar(**changes: Any) -> dict[str, Any]:
    """Return a small document in the columnar form, with changes to its only group."""
    series = {"name": "n", "type": "CPU", "operator": "AVG", "rollup": "15m", "values": [20.5, 3]}
    group = {"nodes": ["a", "b"], "series": [series], "tags": {}, "metadata": {}, **changes}
    head = {key: value for key, value in payload().items() if key != "data"}
    return {**head, "groups": [group]}


def test_example_of_the_columnar_form() -> None:
    """Nodes with the same series and tags form one group, whose values stand by series in the order of its nodes."""
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
def test_columnar_round_trip(metrics: WatcherMetrics) -> None:
    """Any snapshot, with any texts, round-trips through the columnar form, also when it was decoded before."""
    decoded = wire.decode(wire.encode_columns(metrics))
    assert decoded == metrics == wire.decode(wire.encode_columns(decoded))


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1))
def test_the_columnar_form_has_the_same_numbers(values: list[float]) -> None:
    """Numbers decoded from the columnar form and from a dialect are identical to the last bit."""
    metrics = snapshot(a=NodeMetrics(tuple(Metric(f"n{row}", "x", "", "", v) for row, v in enumerate(values))))
    columns, nodes = wire.decode(wire.encode_columns(metrics)), wire.decode(wire.encode(metrics))
    assert [repr(metric) for metric in columns.data["a"].metrics] == [
        repr(metric) for metric in nodes.data["a"].metrics
    ]


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_the_columnar_form_refuses_invalid_values(value: float) -> None:
    """NaN, infinity and invalid Unicode raise an error that names the place."""
    with pytest.raises(WireError, match=r"data\.a: load AVG"):
        wire.encode_columns(
            snapshot(b=NodeMetrics((CPU,)), a=NodeMetrics((Metric("load", "CPU", "AVG", "1m", value),)))
        )
    with pytest.raises(WireError, match="metadata"):
        wire.encode_columns(snapshot(a=NodeMetrics((CPU,), metadata={"coverage": value})))
    with pytest.raises(WireError, match="groups"):
        wire.encode_columns(snapshot(**{"\ud800": NodeMetrics((CPU,))}))


def series(**changes: Any) -> dict[str, Any]:
    """Return a group's two series, the second one with these changes."""
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
        (columnar(metadata={"c": {}}), "groups[0].metadata has node c, which is not in groups[0].nodes"),
        ({**columnar(), "timestamp": None}, "timestamp must be an integer"),
    ],
)
def test_invalid_columnar_documents_are_refused(document: dict[str, Any], words: str) -> None:
    """Any other document raises a WireError that names the place of the error."""
    assert wire.decode(json.dumps(columnar())).data["b"].metrics[0].value == 3
    with pytest.raises(WireError) as caught:
        wire.decode(json.dumps(document))
    assert words in str(caught.value)


def test_numbers_beyond_a_float_are_refused() -> None:
    """A number beyond a float's range is refused in either form, and not decoded as infinity."""
    for document in (payload(), columnar()):
        with pytest.raises(WireError, match="not JSON"):
            wire.decode(json.dumps(document).replace("20.5", "1e999"))


COLUMN_KEYS = st.sampled_from(["nodes", "series", "values", "tags", "metadata", "name", "type", "a"])


@given(st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(COLUMN_KEYS, inner)))
def test_reading_columns_raises_nothing_but_wire_errors(part: Any) -> None:
    """Any JSON in a part of the columnar form decodes to a snapshot or raises WireError."""
    parts = [{key: part} for key in ("nodes", "series", "tags", "metadata")]
    bodies = [
        {**columnar(), "groups": part},
        *(columnar(**changes) for changes in parts),
        columnar(**series(values=part)),
    ]
    for body in bodies:
        with contextlib.suppress(WireError):
            wire.decode(json.dumps(body)).data.items()


# -- ambiguous names and numbers ----------------------------------------------------------------------------------

NAMED = NodeMetrics((CPU,), {"smoothing": "5m"}, {"pool": "x"})


@pytest.mark.parametrize("others", [{}, {"b": NodeMetrics((STD,))}], ids=["alone", "among others"])
@pytest.mark.parametrize("name", ["NodeMetricsMap", "metrics", "data", "groups", "nodes", "", "a/b?c#d", "é\n\0🙂"])
@pytest.mark.parametrize("dialect", Dialect)
def test_a_node_may_have_any_name(dialect: Dialect, name: str, others: dict[str, NodeMetrics]) -> None:
    """A node named like a key of the contract is decoded as a node, in every form, with and without a given dialect."""
    metrics = snapshot(**{name: NAMED, **others})
    body = wire.encode(metrics, dialect)
    assert wire.decode(body) == wire.decode(body, dialect) == wire.decode(wire.encode_columns(metrics)) == metrics


def test_a_node_without_metrics_named_as_gos_key() -> None:
    """Go's key NodeMetricsMap is distinguished from a node of that name, also without metrics or nodes."""
    for metrics in ([], None):
        decoded = wire.decode(json.dumps(payload(data={"NodeMetricsMap": {"metrics": metrics, "tags": {}}})))
        assert dict(decoded.data) == {"NodeMetricsMap": NodeMetrics(())}
    assert not wire.decode(json.dumps(payload(data={"NodeMetricsMap": {}}))).data


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, 2**64 - 1, 2**64, 10**30])
@pytest.mark.parametrize("place", ["timestamp", "start", "end"])
def test_times_have_64_bits(place: str, value: int) -> None:
    """A time beyond 64 bits is refused by the decoder."""
    document = payload()
    (document if place == "timestamp" else document["window"])[place] = value
    with pytest.raises(WireError, match=f"{place} "):
        wire.decode(json.dumps(document))
