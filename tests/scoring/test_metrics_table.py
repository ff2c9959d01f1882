"""Snapshots aligned to the rows of a table."""

import math
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scoring import MetricsTable, Node, NodeTable, Pod, TargetLoadPacking
from watcher import wire
from watcher.model import Metric, NodeColumns, NodeMetrics, WatcherMetrics, Window

NODES = NodeTable([Node("a"), Node("b"), Node("c")])


def snapshot(**by_node):
    data = {
        name: NodeMetrics(tuple(Metric("m", kind, operator, "15m", value) for kind, operator, value in metrics))
        for name, metrics in by_node.items()
    }
    return WatcherMetrics(900, Window("15m", 0, 900), "test", data)


def test_values_are_in_the_rows_of_their_nodes():
    """Each value is in its node's row, missing percentiles are NaN, and other nodes are left out."""
    received = snapshot(
        c=[("CPU", "AVG", 30.0), ("CPU", "P95", 60.0)], a=[("Memory", "STD", 4.0)], z=[("CPU", "AVG", 9.0)]
    )
    metrics = MetricsTable.align(received, NODES)
    assert metrics.present.tolist() == [True, False, True]
    assert metrics.of("CPU").valid.tolist() == [False, False, True]
    assert metrics.of("CPU").average.tolist() == [0, 0, 30]
    assert np.array_equal(metrics.of("CPU").percentiles["P95"], [np.nan, np.nan, 60], equal_nan=True)
    assert metrics.of("Memory").deviation.tolist() == [4, 0, 0]
    assert not metrics.of("Energy").valid.any()


def test_host_names_match_in_any_case():
    """Metrics of A are those of node a if nothing else can be meant, also for a node that joins; an exact name wins."""
    received = snapshot(
        A=[("CPU", "AVG", 10.0)], b=[("CPU", "AVG", 20.0)], B=[("CPU", "AVG", 21.0)],
        Cd=[("CPU", "AVG", 30.0)], cD=[("CPU", "AVG", 31.0)], E=[("CPU", "AVG", 50.0)],
    )  # fmt: skip
    metrics = MetricsTable.align(received, NodeTable([Node("a"), Node("b"), Node("cd")]))
    assert metrics.of("CPU").average.tolist() == [10, 20, 0]
    assert metrics.present.tolist() == [True, True, False]
    followed = metrics.follow(NodeTable([Node("e"), Node("a")]))
    assert followed.of("CPU").average.tolist() == [50, 10]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_values_that_are_not_finite_are_refused(value):
    """The error names node, metric, type and operator."""
    with pytest.raises(ValueError, match="node b: metric m "):
        MetricsTable.align(snapshot(b=[("CPU", "AVG", value)]), NODES)


def test_values_below_zero_count_as_zero():
    """Slightly negative values, which rate arithmetic yields for idle nodes, become 0 unless passed on as received."""
    received = snapshot(a=[("CPU", "AVG", -0.25)])
    assert MetricsTable.align(received, NODES).of("CPU").average[0] == 0
    assert MetricsTable.align(received, NODES, as_received=True).of("CPU").average[0] == -0.25


def test_metrics_of_other_nodes_are_refused():
    """Aligned metrics work with a table of the same nodes only."""
    metrics = MetricsTable.align(snapshot(), NODES)
    assert TargetLoadPacking().score(Pod(), NodeTable(NODES.nodes), metrics).tolist() == [0, 0, 0]
    with pytest.raises(ValueError, match="aligned"):
        TargetLoadPacking().score(Pod(), NodeTable([Node("x")]), metrics)


def test_arrays_are_read_only():
    """Aligned metrics cannot be modified, since threads share them."""
    metrics = MetricsTable.align(snapshot(a=[("CPU", "AVG", 1.0)]), NODES)
    with pytest.raises(ValueError, match="read-only"):
        metrics.of("CPU").average[0] = 2


def test_aligned_metrics_can_be_pickled():
    """Aligned metrics are equal after pickling."""
    metrics = MetricsTable.align(snapshot(a=[("CPU", "AVG", 1.0), ("CPU", "P95", 2.0)]), NODES)
    received = pickle.loads(pickle.dumps(metrics))
    assert repr(received.use) == repr(metrics.use)
    assert received.names == metrics.names


OPERATORS = ("AVG", "STD", "Latest", "", "P95", "MAX", "Median")
LABELS = st.tuples(st.sampled_from(["m", "n"]), st.sampled_from(["CPU", "Memory"]), st.sampled_from(OPERATORS))
METRICS = st.lists(
    st.builds(lambda label, value: Metric(*label, "15m", value), LABELS, st.integers(-5, 100).map(float)), max_size=6
).map(tuple)
DATA = st.dictionaries(st.sampled_from("abcdez"), st.builds(NodeMetrics, METRICS))


def expected(metrics, metric_type):
    """Return one node's statistics of a type, computed as upstream does, metric by metric."""
    of_type = [metric for metric in metrics if metric.type == metric_type]
    level = [metric.value for metric in of_type if metric.operator in {"AVG", "Latest"}]
    average = [metric.value for metric in of_type if metric.operator == "AVG"]
    average = average or [metric.value for metric in of_type if metric.operator in {"", "Latest"}]
    deviation = [metric.value for metric in of_type if metric.operator == "STD"]
    last = {metric.operator: metric.value for metric in of_type}
    return {
        "valid": bool(of_type), "averaged": bool(level), "average": (average or [0])[-1], "first": (level or [0])[0],
        "last": (level or [0])[-1], "deviation": (deviation or [0])[-1],
        "percentiles": {name: value for name, value in last.items() if name in {"P95", "MAX", "Median"}},
    }  # fmt: skip


@given(DATA, st.booleans())
def test_every_order_of_metrics_equals_upstream(data, as_objects):
    """All statistics equal upstream's for any metrics in any order."""
    received = WatcherMetrics(900, Window("15m", 0, 900), "test", data)
    if not as_objects:
        received = wire.decode(wire.encode(received))
    nodes = NodeTable([Node(name) for name in "edcba"])
    metrics = MetricsTable.align(received, nodes, as_received=True)
    assert metrics.present.tolist() == [name in data for name in nodes.names]
    assert set(metrics.use) == {each.type for name in nodes.names if name in data for each in data[name].metrics}
    for metric_type in ("CPU", "Memory"):
        use = metrics.of(metric_type)
        for row, name in enumerate(nodes.names):
            wanted = expected(data[name].metrics if name in data else (), metric_type)
            percentiles = {each: values[row] for each, values in use.percentiles.items() if not math.isnan(values[row])}
            assert percentiles == wanted.pop("percentiles")
            assert {field: getattr(use, field)[row] for field in wanted} == wanted
        assert not any(np.isnan(values).all() for values in use.percentiles.values())


def test_decoded_snapshots_are_aligned_without_objects():
    """Aligning a decoded snapshot creates no metric objects."""
    received = wire.decode(wire.encode(snapshot(a=[("CPU", "AVG", 1.0)], c=[("CPU", "P95", 2.0)])))
    assert isinstance(received.data, NodeColumns)
    MetricsTable.align(received, NODES)
    assert not received.data._created


def test_values_of_other_nodes_are_not_checked():
    """NaN of a node that is not in the table is ignored."""
    metrics = MetricsTable.align(snapshot(z=[("CPU", "AVG", float("nan"))], a=[("CPU", "AVG", 1.0)]), NODES)
    assert metrics.of("CPU").average.tolist() == [1, 0, 0]


@pytest.mark.parametrize("window", [{}, *({"window_start": 0, "window_end": end} for end in ("soon", math.inf, 2**63))])
def test_an_invalid_window_of_a_node_is_refused(window):
    """The error names the node, also for numbers out of range."""
    node = NodeMetrics((), {}, {"window_end": 900, **window})
    with pytest.raises(ValueError, match="node b: metadata window_start"):
        MetricsTable.align(WatcherMetrics(900, Window("15m", 0, 900), "test", {"b": node}), NODES)
