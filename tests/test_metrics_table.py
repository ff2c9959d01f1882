"""A snapshot beside the rows of a table."""

import pickle

import numpy as np
import pytest

from scoring import MetricsTable, Node, NodeTable, Pod, TargetLoadPacking
from watcher.model import Metric, NodeMetrics, WatcherMetrics, Window

NODES = NodeTable([Node("a"), Node("b"), Node("c")])


def snapshot(**by_node):
    data = {
        name: NodeMetrics(tuple(Metric("m", kind, operator, "15m", value) for kind, operator, value in metrics))
        for name, metrics in by_node.items()
    }
    return WatcherMetrics(900, Window("15m", 0, 900), "test", data)


def test_values_stand_beside_their_nodes():
    """Each value is in its node's row, percentiles are NaN where absent, other nodes are left out."""
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


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_values_that_are_not_finite_are_refused(value):
    """The error names node, metric, type and operator."""
    with pytest.raises(ValueError, match="node b: metric m \\(CPU AVG\\) is"):
        MetricsTable.align(snapshot(b=[("CPU", "AVG", value)]), NODES)


def test_values_below_zero_count_as_zero():
    """Rate arithmetic makes an idle node slightly negative: the boundary raises it, unless asked not to."""
    received = snapshot(a=[("CPU", "AVG", -0.25)])
    assert MetricsTable.align(received, NODES).of("CPU").average[0] == 0
    assert MetricsTable.align(received, NODES, as_received=True).of("CPU").average[0] == -0.25


def test_metrics_of_other_nodes_are_refused():
    """Aligned metrics go with the table they were aligned to, or one with the same rows."""
    metrics = MetricsTable.align(snapshot(), NODES)
    assert TargetLoadPacking().score(Pod(), NodeTable(NODES.nodes), metrics).tolist() == [0, 0, 0]
    with pytest.raises(ValueError, match="aligned to other nodes"):
        TargetLoadPacking().score(Pod(), NodeTable([Node("x")]), metrics)


def test_arrays_cannot_be_written():
    """Threads share aligned metrics, so nobody can change them."""
    metrics = MetricsTable.align(snapshot(a=[("CPU", "AVG", 1.0)]), NODES)
    with pytest.raises(ValueError, match="read-only"):
        metrics.of("CPU").average[0] = 2


def test_aligned_metrics_can_be_sent_to_other_processes():
    """They come out of pickle as they went in."""
    metrics = MetricsTable.align(snapshot(a=[("CPU", "AVG", 1.0), ("CPU", "P95", 2.0)]), NODES)
    received = pickle.loads(pickle.dumps(metrics))
    assert repr(received.use) == repr(metrics.use)
    assert received.names == metrics.names
