"""Tests of the checks of a fetch on its own."""

import math
from typing import Any

import pytest

from runtime import masking
from watcher.findings import Action, Finding, Kind
from watcher.model import Metric, NodeMetrics
from watcher.quality import analyzer


def metric(value: float, operator: str = "AVG", name: str = "cpu", type_: str = "CPU") -> Metric:
    """Return a metric with one value."""
    return Metric(name, type_, operator, "15m", value)


def clean(*metrics: Metric) -> tuple[tuple[Metric, ...], list[Finding]]:
    """Clean one node; return its remaining metrics and the findings."""
    nodes, findings = analyzer.clean({"a": NodeMetrics(metrics)}, "15m")
    return (nodes["a"].metrics if nodes else ()), findings


@pytest.mark.parametrize("value", [0, 0.0, 50, 99.99, 100])
def test_valid_values_are_kept(value: float) -> None:
    """Values from 0 to 100 percent are kept, and an unchanged node is the same object."""
    node = NodeMetrics((metric(value), metric(1, "STD")), {"step": "15s"}, {"größe": "groß", "coverage": 0.5})
    nodes, findings = analyzer.clean({"a": node}, "15m")
    assert nodes["a"] is node
    assert findings == []


@pytest.mark.parametrize("bad", [None, 5, NodeMetrics(None), NodeMetrics((None,)), NodeMetrics(5)])
def test_metrics_that_cannot_be_read_cost_their_node_only(bad: Any) -> None:
    """A provider that returns anything in place of one node's metrics keeps the other nodes, with a finding."""
    good = NodeMetrics((metric(20),))
    nodes, findings = analyzer.clean({"a": good, "bad": bad, "c": good}, "15m")
    assert set(nodes) == {"a", "c"}
    (finding,) = findings
    assert (finding.kind, finding.node, finding.action) == (Kind.BAD_VALUE, "bad", "dropped")
    assert finding.message.startswith("the provider's metrics of bad ")


def test_a_value_that_is_no_number_costs_no_other_metric() -> None:
    """A value of None is dropped, also where earlier nodes have the same metrics with numbers."""
    both = NodeMetrics((metric(20), metric(30, name="memory", type_="Memory")))
    wrong = NodeMetrics((metric(None), metric(30, name="memory", type_="Memory")))
    nodes, findings = analyzer.clean({"a": both, "b": wrong}, "15m")
    assert nodes["b"].metrics == wrong.metrics[1:]
    assert [(finding.kind, finding.node) for finding in findings] == [(Kind.BAD_VALUE, "b")]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_values_that_are_not_finite_are_dropped(value: float) -> None:
    """NaN and infinity are dropped, with a finding with window, node and metric; the node's other metrics are kept."""
    memory = metric(5, name="memory", type_="Memory")
    left, findings = clean(metric(value), memory)
    assert left == (memory,)
    assert [(f.kind, f.window, f.node, f.metric, f.action) for f in findings] == [
        (Kind.NOT_FINITE, "15m", "a", "cpu", "dropped")
    ]


@pytest.mark.parametrize("value", [-1e-3, -0.1, -5])
@pytest.mark.parametrize("operator", ["AVG", "Latest", "STD"])
def test_negative_values_are_dropped(value: float, operator: str) -> None:
    """A value below 0 is not replaced by 0, as an idle node attracts all pods: it is dropped, with a finding."""
    memory = metric(5, name="memory", type_="Memory")
    kept = metric(1), memory
    left, findings = clean(*kept, metric(value, operator, memory.name if operator == "STD" else "other"))
    assert left == kept
    assert [(f.kind, f.window, f.node, f.action) for f in findings] == [(Kind.OUT_OF_RANGE, "15m", "a", "dropped")]
    assert findings[0].message.startswith(f"{operator} is {value:g} percent of capacity")


@pytest.mark.parametrize(
    ("tags", "metadata", "bad"),
    [
        ({"pool": "x", "spare": None}, {}, "'spare': 'None'"),
        ({"pool": "x", "cores": 4}, {}, "'cores': '4'"),
        ({"pool": "x", 7: "seven"}, {}, "'7': 'seven'"),
        ({"pool": "x", "half": "\ud800"}, {}, "'half': '\\\\ud800'"),
        ({"pool": "x", "half": "\udfff"}, {}, "'half': '\\\\udfff'"),
        ({"pool": "x"}, {"zone": ["a"]}, "'zone': \"['a']\""),
        ({"pool": "x"}, {"spot": True}, "'spot': 'True'"),
        ({"pool": "x"}, {"coverage": math.nan}, "'coverage': 'nan'"),
    ],
)
def test_labels_that_are_not_text_are_dropped(tags: Any, metadata: Any, bad: str) -> None:
    """A label that is not text is dropped with a finding; the node and its other labels are kept."""
    nodes, findings = analyzer.clean({"a": NodeMetrics((metric(1),), tags, metadata)}, "15m")
    assert nodes == {"a": NodeMetrics((metric(1),), {"pool": "x"}, {})}
    assert [(f.kind, f.node, f.action) for f in findings] == [(Kind.BAD_LABEL, "a", "dropped")]
    assert findings[0].message == f"labels that are not text are dropped: {bad}"


@pytest.mark.parametrize("labels", [None, ["pool"], "pool"])
def test_labels_that_are_not_a_mapping_are_dropped(labels: Any) -> None:
    """Tags or metadata that are not a mapping are dropped, with a finding."""
    for node in (NodeMetrics((metric(1),), labels), NodeMetrics((metric(1),), metadata=labels)):
        nodes, findings = analyzer.clean({"a": node}, "15m")
        assert nodes == {"a": NodeMetrics((metric(1),))}
        assert [(f.kind, f.window, f.node) for f in findings] == [(Kind.BAD_LABEL, "15m", "a")]


@pytest.mark.parametrize(
    "bad",
    [
        Metric("memory", "Memory", "AVG", "15m", None),  # type: ignore[arg-type]
        Metric("memory", "Memory", "AVG", "15m", "17"),  # type: ignore[arg-type]
        Metric("mem\ud800", "Memory", "AVG", "15m", 17),
        Metric("memory", None, "AVG", "15m", 17),  # type: ignore[arg-type]
        Metric("memory", "Memory", ["AVG"], "15m", 17),  # type: ignore[arg-type]
    ],
)
def test_invalid_metrics_are_dropped(bad: Metric) -> None:
    """A value that is not a number and a name that is not text are dropped with a finding; other metrics are kept."""
    left, findings = clean(metric(1), bad)
    assert left == (metric(1),)
    assert [(f.kind, f.window, f.node, f.action) for f in findings] == [(Kind.BAD_VALUE, "15m", "a", "dropped")]
    assert findings[0].message.isascii()


@pytest.mark.parametrize(("value", "kept"), [(100.0000001, 100), (105, 100), (-1e-9, 0), (-1e-6, 0)])
def test_small_overshoot_is_clamped(value: float, kept: float) -> None:
    """A value slightly above 100, as from rates over counters, becomes 100; a rounding error below 0 becomes 0."""
    left, findings = clean(metric(value))
    assert [each.value for each in left] == [kept]
    assert findings == []


@pytest.mark.parametrize("value", [105.1, 2050, -5.1, 1e300])
def test_values_in_another_unit_are_dropped(value: float) -> None:
    """A value far outside 0 to 100 is dropped, and the finding mentions the query's scale."""
    left, findings = clean(metric(value))
    assert left == ()
    assert [(f.kind, f.action) for f in findings] == [(Kind.OUT_OF_RANGE, "dropped")]
    assert "scale" in findings[0].message


@pytest.mark.parametrize(
    ("others", "kind"), [((), "no_average"), ((metric(math.nan),), "not_finite"), ((metric(2050),), "out_of_range")]
)
def test_deviation_without_an_average_is_dropped(others: tuple[Metric, ...], kind: str) -> None:
    """A deviation without an average, which plugins would read as an idle node, is dropped with one finding."""
    memory = metric(5, name="memory", type_="Memory")
    left, findings = clean(*others, metric(3, "STD"), memory)
    assert left == (memory,)
    assert [(f.kind, f.window, f.node, f.metric, f.action) for f in findings] == [(kind, "15m", "a", "cpu", "dropped")]


def test_result_does_not_depend_on_other_nodes() -> None:
    """A node's result does not depend on the metrics of its neighbors."""
    kinds = [(metric(5, name=f"cpu{number}"), metric(3, "STD", name=f"cpu{number}")) for number in range(12)]
    nodes = {f"node-{number}": NodeMetrics(kinds[number % 12]) for number in range(48)}
    nodes["node-40"] = NodeMetrics((metric(500, name="cpu4"), metric(3, "STD", name="cpu4")))
    kept, findings = analyzer.clean(nodes, "5m")
    assert kept == {name: node for name, node in nodes.items() if name != "node-40"}
    assert [(f.kind, f.node) for f in findings] == [("out_of_range", "node-40")]


@pytest.mark.parametrize("operator", ["AVG", "Latest"])
def test_deviation_with_an_average_is_kept(operator: str) -> None:
    """A deviation is kept if the same metric has an AVG or Latest."""
    metrics = (metric(3, "STD"), metric(5, operator))
    assert clean(*metrics) == (metrics, [])


def test_repeated_metric_is_used_once() -> None:
    """Of two metrics with the same name and operator the first is used, with a finding."""
    left, findings = clean(metric(1), metric(2), metric(3, "STD"))
    assert [each.value for each in left] == [1, 3]
    message = "there are two values of AVG; the first is used"
    assert findings == [Finding(Kind.DUPLICATE, message, "15m", "a", "cpu", Action.MERGED)]


@pytest.mark.parametrize(
    "name",
    ["", " ", "a b", 'a"b', "a'b", "a\nb", "a\x00b", "a\\b", "a/b", "../etc", "\u202e", "\ud800", "n" * 254,
     "n" * 10_000, 17, None],
)  # fmt: skip
def test_invalid_node_names_are_dropped(name: Any) -> None:
    """An invalid node name is dropped, and the finding has a bounded, printable form of it."""
    nodes, findings = analyzer.clean({name: NodeMetrics((metric(1),)), "good": NodeMetrics((metric(1),))}, "15m")
    assert list(nodes) == ["good"]
    assert [(f.kind, f.window, f.node, f.action) for f in findings] == [(Kind.BAD_NODE_NAME, "15m", "", "dropped")]
    assert not analyzer.is_node_name(name)
    assert len(findings[0].message) < 1100
    assert findings[0].message.isascii()
    assert findings[0].message.isprintable()


def test_node_named_by_a_secret_is_dropped() -> None:
    """A token in place of a node's name is dropped and not repeated in the finding; other nodes are kept."""
    masking.register_secret("s3cr3t-t0ken")
    node = NodeMetrics((metric(1),))
    nodes, findings = analyzer.clean({"a": node, "s3cr3t-t0ken": node, "b": node}, "15m")
    assert list(nodes) == ["a", "b"]
    assert [(f.kind, f.node, f.action) for f in findings] == [(Kind.BAD_NODE_NAME, "", "dropped")]
    assert "s3cr3t" not in findings[0].message


@pytest.mark.parametrize("name", ["a", "node-1.example.com", "10.0.0.1", "fe80::1", "17", "n" * 253])
def test_valid_node_names_are_kept(name: str) -> None:
    """Names, addresses and numbers of up to 253 characters are kept."""
    assert list(analyzer.clean({name: NodeMetrics((metric(1),))}, "15m")[0]) == [name]
    assert analyzer.is_node_name(name)


def test_nodes_without_metrics_are_left_out() -> None:
    """A node without metrics, from the start or after cleaning, is left out."""
    nodes, _ = analyzer.clean({"empty": NodeMetrics(()), "bad": NodeMetrics((metric(math.nan),))}, "15m")
    assert nodes == {}


def test_missing_cpu_has_the_reason_of_its_query() -> None:
    """Of the findings, a failed query of CPU is the reason; without one the source has no CPU yet."""
    nodes = {"a": NodeMetrics((metric(5, name="memory", type_="Memory"),))}
    failed = (Finding(Kind.QUERY_FAILED, f"no series of {type_}") for type_ in ("Memory", "CPU"))
    findings = [Finding(Kind.STALE, "CPU is old"), *failed]
    for found, reason in ((findings, "no series of CPU"), (findings[:2], "Fake has no CPU of any node yet")):
        explained = analyzer.explain_missing_cpu(nodes, found, "Fake")
        assert explained["a"].metadata == {"missing": f"CPU: {reason}"}


def test_cpu_of_one_node_is_enough() -> None:
    """If any node has CPU, no node is marked as without it."""
    memory = metric(5, name="memory", type_="Memory")
    nodes = {"a": NodeMetrics((memory,)), "b": NodeMetrics((memory, metric(5)))}
    assert analyzer.explain_missing_cpu(nodes, [], "Fake") is nodes


def test_input_is_not_modified() -> None:
    """Cleaning returns new mappings and does not modify the fetched ones."""
    given: dict[str, Any] = {"a": NodeMetrics((metric(104), metric(math.nan, "MAX")), {"step": "15s"}, {"pool": "x"})}
    before = dict(given)
    cleaned, _ = analyzer.clean(given, "15m")
    assert given == before
    assert cleaned["a"] == NodeMetrics((metric(100),), {"step": "15s"}, {"pool": "x"})
