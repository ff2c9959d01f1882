"""What recently placed pods use beyond the measurements: upstream's rule, and the linear one of the option."""

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
    TailRisk,
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
    TailRisk(**ON),
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
    """Over 900 s: upstream counts all or nothing, from 59 s before the end on; the linear rule the missing part."""
    nodes = table(placed_at)
    assert use(recent_pods.unmeasured, nodes) == unmeasured
    assert use(recent_pods.unreported, nodes) == pytest.approx(unreported)


@given(st.integers(START, END), st.integers(0, 4000), st.integers(0, 4000))
def test_the_linear_rule_completes_an_average(placed_at, before, own):
    """A pod that uses what is expected of it: the window's average plus what is unreported is the use of now."""
    nodes = table(placed_at)
    average = (before * (END - START) + own * (END - placed_at)) / (END - START)
    metrics = MetricsTable.align(snapshot(), nodes)
    unreported = recent_pods.unreported(nodes, metrics, lambda placed: own)[0]
    assert average + unreported == pytest.approx(before + own)
    assert 0 <= unreported <= own


def test_each_node_has_its_own_window():
    """Where the watcher served another window for a node, that one's span decides."""
    nodes = table(END - 150)
    assert use(recent_pods.unreported, nodes, snapshot(window_start=END - 300, window_end=END)) == pytest.approx(500)
    ended = snapshot(window_start=END - 1100, window_end=END - 200)
    assert use(recent_pods.unreported, nodes, ended) == use(recent_pods.unmeasured, nodes, ended) == 1000


@pytest.mark.parametrize("metadata", [{"window_end": END}, {"window_end": "soon", "window_start": 1}])
def test_a_window_that_is_none_is_refused(metadata):
    """The boundary names the node whose metadata has no meaning."""
    with pytest.raises(ValueError, match="node a: metadata window_start and window_end must be Unix seconds"):
        MetricsTable.align(snapshot(**metadata), table())


@pytest.mark.parametrize("plugin", PLUGINS[:4], ids=lambda plugin: plugin.name)
def test_with_the_option_each_plugin_counts_them_as_load(plugin):
    """A pod placed at the window's end changes a score as if its request had been measured: 25 and 12.5 points."""
    reserved = snapshot(20 + 25, 20 + 12.5)
    nodes = table(END)
    old = table(float("-inf"))  # LowRiskOverCommitment reads the pods' sums too, so the pod is there in both
    assert plugin.score(pod(), nodes, snapshot()).tolist() == plugin.score(pod(), old, reserved).tolist()


def test_tail_risk_counts_the_missing_part_as_demand():
    """TailRisk leaves the fitted distribution as it is and takes the missing part off the room that is left."""
    half, missing = table(START + 450), "cpu.missing"
    prepared = PLUGINS[4].prepare(half, snapshot(50))
    assert prepared.explain(pod(), "a").terms[missing] == pytest.approx(500)
    assert TailRisk().prepare(half, snapshot(50)).explain(pod(), "a").terms[missing] == 0
    assert prepared.score(pod())[0] < TailRisk().score(pod(), half, snapshot(50))[0]


def with_p90(received, value):
    node = received.data["a"]
    metrics = (*node.metrics, Metric("m", "CPU", "P90", "15m", float(value)))
    return replace(received, data={"a": replace(node, metrics=metrics)})


def test_percentiles_move_with_the_average():
    """LowRiskOverCommitment on measured percentiles moves them by as much as the average."""
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
    """Off by default: a score looks at measurements only, as upstream's does."""
    assert plugin.score(pod(), table(END), snapshot()) == plugin.score(pod(), table(START), snapshot())


@pytest.mark.parametrize("plugin", PLUGINS, ids=lambda plugin: plugin.name)
def test_the_option_has_a_key(plugin):
    """CountRecentPods in the arguments turns it on; what is neither true nor false is refused."""
    assert plugin_from_config(plugin.name, {"countRecentPods": True}).count_recent_pods
    assert not plugin_from_config(plugin.name, {}).count_recent_pods
    with pytest.raises(ValueError, match="countRecentPods: must be true or false, got 1"):
        plugin_from_config(plugin.name, {"countRecentPods": 1})


@pytest.mark.parametrize("plugin", PLUGINS, ids=lambda plugin: plugin.name)
def test_what_a_plan_assumes_counts_at_once(plugin):
    """A prepared plugin sees an assumed pod in its next score."""
    nodes = table()
    with nodes.transaction() as plan:
        prepared = plugin.prepare(plan, snapshot())
        prepared.score(pod())
        plan.assume(pod("first"), "a")
        assert prepared.score(pod()).tolist() == plugin.score(pod(), table(float("inf")), snapshot()).tolist()


LASTS = END - START
moments = st.integers(START - 500, END + 300)


@given(
    moments, st.integers(1, 1200), st.integers(0, 4000), st.integers(0, 4000),
    st.lists(st.tuples(moments, st.integers(0, 2000)), max_size=4),
)  # fmt: skip
def test_a_pod_that_moves_is_where_it_is(placed_at, stayed, base, own, others):
    """What metrics show and what is unreported is what the pods use that are there, after one moved from a to b."""
    moved_at, use_of = placed_at + stayed, {"moves": own}
    amounts = ResourceList({"cpu": 4000, "memory": 8 * GIB})
    nodes = NodeTable([Node("a", amounts, amounts), Node("b", amounts, amounts)])
    for number, (at, milli) in enumerate(others):
        nodes.add(pod(f"p{number}"), "b", at)
        use_of[f"p{number}"] = milli
    mover = pod("moves")
    nodes.add(mover, "a", placed_at)
    nodes.remove(mover, left_at=moved_at)
    nodes.add(mover, "b", moved_at)

    def shown(came, left):
        return max(0, min(left, END) - max(came, START)) / LASTS

    averages = [
        base + own * shown(placed_at, moved_at),
        base + own * shown(moved_at, END) + sum(milli * shown(at, END) for at, milli in others),
    ]
    truth = [base, base + own + sum(milli for _, milli in others)]
    missing = recent_pods.unreported(nodes, of_both(nodes), lambda placed: use_of[placed.name])
    assert (averages + missing).tolist() == pytest.approx(truth, abs=1e-6)
    assert recent_pods.unmeasured(nodes, of_both(nodes), lambda placed: 1)[0] == 0, "upstream knows of no departed pods"


def of_both(nodes):
    """Return metrics of both nodes over the window."""
    received = snapshot()
    data = {"a": received.data["a"], "b": received.data["a"]}
    return MetricsTable.align(replace(received, data=data), nodes)


def test_departed_pods_are_forgotten_back_again_and_copied():
    """One that was never away is not taken off, neither is one that was only assumed; old ones go as others leave."""
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
def test_a_departed_pod_is_taken_off_the_use_but_never_below_none(plugin, measured, left):
    """A pod that left at the window's end: as if 25 points of CPU and 12.5 of memory less had been measured."""
    departed, gone = table(START - 100, START), table(START)
    departed.remove(pod("p0"), left_at=END)
    assert (
        plugin.score(pod(), departed, snapshot(*measured)).tolist()
        == plugin.score(pod(), gone, snapshot(*left)).tolist()
    )


def test_tail_risk_takes_off_no_more_than_the_mean():
    """A departed pod makes room in TailRisk too, at most as much as is measured."""
    departed = table(START - 100)
    departed.remove(pod("p0"), left_at=END)
    for percent, missing in ((40, -1000), (20, -800)):
        terms = PLUGINS[4].prepare(departed, snapshot(percent)).explain(pod(), "a").terms
        assert terms["cpu.missing"] == pytest.approx(missing)


def test_percentiles_do_not_fall_below_zero():
    """What is taken off measured percentiles leaves them at 0 at least."""
    plugin, departed, gone = LowRiskOverCommitment(distribution="measured", **ON), table(START - 1, START), table(START)
    departed.remove(pod("p0"), left_at=END)
    small, none = with_p90(snapshot(10), 20), with_p90(snapshot(0), 0)
    shown, nothing = (plugin.prepare(n, m).explain(pod(), "a").terms for n, m in ((departed, small), (gone, none)))
    assert shown["cpu.risk_load"] == pytest.approx(nothing["cpu.risk_load"])
