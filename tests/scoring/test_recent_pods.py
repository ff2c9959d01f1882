"""Use of recently placed pods that measurements do not show: upstream's rule and the option's linear rule."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scoring import (
    Container,
    LoadVariationRiskBalancing,
    LowRiskOverCommitment,
    MetricsTable,
    Node,
    NodeTable,
    Peaks,
    Pod,
    PowerModel,
    ResourceList,
    TargetLoadPacking,
    plugin_from_config,
)
from scoring.load import recent_pods
from watcher.model import Metric, NodeMetrics, WatcherMetrics, Window

START, END = 1000, 1900
GIB = 2**30
ON = {"count_recent_pods": True}
PLUGINS = (
    TargetLoadPacking(default_requests_multiplier=1, **ON),
    LoadVariationRiskBalancing(**ON),
    LowRiskOverCommitment(**ON),
    Peaks({"a": PowerModel(100, 1, 0.05)}, **ON),
)


def pod(name="pending", cpu=1000, memory=GIB, **fields):
    return Pod(name=name, containers=(Container(ResourceList({"cpu": cpu, "memory": memory})),), **fields)


def table(*placed_at):
    amounts = ResourceList({"cpu": 4000, "memory": 8 * GIB})
    nodes = NodeTable([Node("a", amounts, amounts)])
    for number, at in enumerate(placed_at):
        nodes.add(pod(f"p{number}"), "a", at)
    return nodes


def snapshot(cpu=20.0, memory=20.0, deviation=5.0, **metadata):
    values = [
        Metric("m", kind, operator, "15m", value)
        for kind, average in (("CPU", cpu), ("Memory", memory))
        for operator, value in (("AVG", average), ("STD", deviation))
    ]
    node = NodeMetrics(tuple(values), {}, metadata)
    return WatcherMetrics(END, Window("15m", START, END), "test", {"a": node})


def use(rule, nodes, received=None):
    metrics = MetricsTable.align(received or snapshot(), nodes)
    return float(rule(nodes, metrics, lambda placed: 1000)[0])


@pytest.mark.parametrize(
    ("placed_at", "unmeasured", "unreported"),
    [
        (float("-inf"), 0, 0),
        (START - 1, 0, 0),
        (START, 0, 0),
        (START + 225, 0, 250),
        (START + 450, 0, 500),
        (END - 90, 0, 900),
        (END - 60, 0, 1000 * 840 / 900),
        (END - 59, 1000, 1000 * 841 / 900),
        (END, 1000, 1000),
        (END + 60, 1000, 1000),
        (float("inf"), 1000, 1000),
    ],
)
def test_both_rules_by_example(placed_at, unmeasured, unreported):
    """Upstream counts all of a pod from 59 s before the window's end on; the linear rule counts the missing part."""
    nodes = table(placed_at)
    assert use(recent_pods.unmeasured, nodes) == unmeasured
    assert use(recent_pods.unreported, nodes) == pytest.approx(unreported)


@given(st.integers(START, END), st.integers(0, 4000), st.integers(0, 4000))
def test_the_linear_rule_completes_an_average(placed_at, base, pod_use):
    """For a pod with exactly its expected use, average plus unreported use is the current use."""
    nodes = table(placed_at)
    average = (base * (END - START) + pod_use * (END - placed_at)) / (END - START)
    metrics = MetricsTable.align(snapshot(), nodes)
    unreported = recent_pods.unreported(nodes, metrics, lambda placed: pod_use)[0]
    assert average + unreported == pytest.approx(base + pod_use)
    assert 0 <= unreported <= pod_use


def test_each_node_has_its_own_window():
    """A node's own window in its metadata replaces the snapshot's window."""
    nodes = table(END - 150)
    assert use(recent_pods.unreported, nodes, snapshot(window_start=END - 300, window_end=END)) == pytest.approx(500)
    ended = snapshot(window_start=END - 1100, window_end=END - 200)
    assert use(recent_pods.unreported, nodes, ended) == use(recent_pods.unmeasured, nodes, ended) == 1000


@pytest.mark.parametrize("plugin", PLUGINS[:4], ids=lambda plugin: plugin.name)
def test_with_the_option_recent_pods_count_as_load(plugin):
    """A pod placed at the window's end changes a score as if its request, 25 and 12.5 percent, had been measured."""
    reserved = snapshot(20 + 25, 20 + 12.5)
    nodes = table(END)
    old = table(float("-inf"))  # with the same pod, because LowRiskOverCommitment also reads the sums of requests
    assert plugin.score(pod(), nodes, snapshot()).tolist() == plugin.score(pod(), old, reserved).tolist()


def with_p90(received, value):
    node = received.data["a"]
    metrics = (*node.metrics, Metric("m", "CPU", "P90", "15m", float(value)))
    return replace(received, data={"a": replace(node, metrics=metrics)})


def test_percentiles_move_with_the_average():
    """LowRiskOverCommitment shifts measured percentiles by the same amount as the average."""
    plugin = LowRiskOverCommitment(distribution="measured", **ON)
    limited = Pod(containers=(Container(ResourceList({"cpu": 1000}), ResourceList({"cpu": 4000})),))
    recent, old = table(), table()
    recent.add(limited, "a", END)
    old.add(limited, "a", START)
    moved = plugin.prepare(recent, with_p90(snapshot(10), 20)).explain(pod(), "a").terms
    measured = plugin.prepare(old, with_p90(snapshot(35), 45)).explain(pod(), "a").terms
    assert moved["cpu.risk_load"] == pytest.approx(measured["cpu.risk_load"])
    assert 0 < moved["cpu.risk_load"] < 1


@pytest.mark.parametrize(
    "plugin", [LoadVariationRiskBalancing(), LowRiskOverCommitment(), Peaks({"a": PowerModel(100, 1, 0.05)})]
)
def test_without_the_option_nothing_is_added(plugin):
    """By default, a score depends on measurements only, as upstream."""
    assert plugin.score(pod(), table(END), snapshot()) == plugin.score(pod(), table(START), snapshot())


@pytest.mark.parametrize("plugin", PLUGINS, ids=lambda plugin: plugin.name)
def test_the_option_has_a_key(plugin):
    """The argument countRecentPods enables the option and must be a boolean."""
    assert plugin_from_config(plugin.name, {"countRecentPods": True}).count_recent_pods
    assert not plugin_from_config(plugin.name, {}).count_recent_pods
    with pytest.raises(ValueError, match="countRecentPods:"):
        plugin_from_config(plugin.name, {"countRecentPods": 1})


@pytest.mark.parametrize("plugin", PLUGINS, ids=lambda plugin: plugin.name)
def test_an_assumed_pod_counts_immediately(plugin):
    """A prepared plugin includes an assumed pod in its next score."""
    nodes = table()
    with nodes.transaction() as plan:
        prepared = plugin.prepare(plan, snapshot())
        prepared.score(pod())
        plan.assume(pod("first"), "a")
        assert prepared.score(pod()).tolist() == plugin.score(pod(), table(float("inf")), snapshot()).tolist()


LENGTH = END - START
moments = st.integers(START - 500, END + 300)


@given(
    moments, st.integers(1, 1200), st.integers(0, 4000), st.integers(0, 4000),
    st.lists(st.tuples(moments, st.integers(0, 2000)), max_size=4),
)  # fmt: skip
def test_a_moved_pod_counts_on_its_current_node(placed_at, stayed, base, pod_use, others):
    """Averages plus unreported use equal the use of the current pods after a pod moved from a to b."""
    moved_at, use_of = placed_at + stayed, {"moves": pod_use}
    amounts = ResourceList({"cpu": 4000, "memory": 8 * GIB})
    nodes = NodeTable([Node("a", amounts, amounts), Node("b", amounts, amounts)])
    for number, (at, milli) in enumerate(others):
        nodes.add(pod(f"p{number}"), "b", at)
        use_of[f"p{number}"] = milli
    mover = pod("moves")
    nodes.add(mover, "a", placed_at)
    nodes.remove(mover, left_at=moved_at)
    nodes.add(mover, "b", moved_at)

    def share(placed, left):
        return max(0, min(left, END) - max(placed, START)) / LENGTH

    averages = [
        base + pod_use * share(placed_at, moved_at),
        base + pod_use * share(moved_at, END) + sum(milli * share(at, END) for at, milli in others),
    ]
    truth = [base, base + pod_use + sum(milli for _, milli in others)]
    missing = recent_pods.unreported(nodes, of_both(nodes), lambda placed: use_of[placed.name])
    assert (averages + missing).tolist() == pytest.approx(truth, abs=1e-6)
    assert recent_pods.unmeasured(nodes, of_both(nodes), lambda placed: 1)[0] == 0, "upstream ignores departed pods"


def of_both(nodes):
    """Return metrics of both nodes over the window."""
    received = snapshot()
    data = {"a": received.data["a"], "b": received.data["a"]}
    return MetricsTable.align(replace(received, data=data), nodes)


def test_departures_are_remembered_and_forgotten():
    """A pod that returns or was only assumed is not subtracted; later departures of other pods drop old ones."""
    nodes = table(START - 100)
    first, assumed = pod("p0"), pod("assumed")
    nodes.assume(assumed, "a")
    nodes.remove(assumed, left_at=START + 450)
    assert use(recent_pods.unreported, nodes) == 0
    nodes.remove(first, left_at=START + 450)
    assert use(recent_pods.unreported, nodes) == -500
    assert use(recent_pods.unreported, nodes.copy()) == use(recent_pods.unreported, nodes.take(np.array([0]))) == -500
    nodes.add_nodes([Node("a"), Node("b")])
    nodes.remove_nodes(["b"])
    assert use(recent_pods.unreported, nodes) == -500
    nodes.add(first, "a", START - 100)
    assert use(recent_pods.unreported, nodes) == 0
    nodes.remove(first, left_at=START + 450)
    nodes.add(pod("p1"), "a", START)
    nodes.remove(pod("p1"), left_at=START + 450 + 10_000, keep_seconds=9_000)
    assert [left.pod.name for _, left in nodes.left_since(np.array([0.0]))] == ["p1"]


@pytest.mark.parametrize("plugin", PLUGINS[:4], ids=lambda plugin: plugin.name)
@pytest.mark.parametrize(
    ("measured", "left"), [((40.0, 40.0), (15.0, 27.5)), ((20.0, 30.0), (0.0, 17.5)), ((20.0, 10.0), (0.0, 0.0))]
)
def test_a_departed_pod_lowers_use_to_zero_at_most(plugin, measured, left):
    """A pod that left at the window's end lowers the use by 25 percent of CPU and 12.5 of memory, at most to 0."""
    departed, gone = table(START - 100, START), table(START)
    departed.remove(pod("p0"), left_at=END)
    assert (
        plugin.score(pod(), departed, snapshot(*measured)).tolist()
        == plugin.score(pod(), gone, snapshot(*left)).tolist()
    )


def test_percentiles_do_not_fall_below_zero():
    """Subtracting departed pods lowers measured percentiles to 0 at most."""
    plugin, departed, gone = LowRiskOverCommitment(distribution="measured", **ON), table(START - 1, START), table(START)
    departed.remove(pod("p0"), left_at=END)
    small, none = with_p90(snapshot(10), 20), with_p90(snapshot(0), 0)
    shown, nothing = (plugin.prepare(n, m).explain(pod(), "a").terms for n, m in ((departed, small), (gone, none)))
    assert shown["cpu.risk_load"] == pytest.approx(nothing["cpu.risk_load"])
