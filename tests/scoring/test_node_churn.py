"""Changing nodes: a table, and profiles prepared for it, stay equal to newly built ones."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.clusters import IMAGES, makers, plugins

from runtime.kubernetes.objects import CachedRequests
from scoring import (
    Container,
    FallbackPolicy,
    ImageLocality,
    LoadVariationRiskBalancing,
    MetricsTable,
    Node,
    NodeTable,
    Pod,
    Profile,
    ResourceList,
    WeightedPlugin,
)
from watcher.model import Metric, NodeMetrics, WatcherMetrics, Window

NAMES = tuple(f"n{i}" for i in range(8))
NOW = 950


class Churn:
    """A table under random changes, and a plain record of its contents."""

    def __init__(self, maker):
        self.maker = maker
        self.table, self.snapshot = maker.cluster()
        data = {name: maker.metrics() for name in NAMES if maker.chance(0.8)}
        self.snapshot = WatcherMetrics(900, Window("15m", 0, 900), "test", data)
        self.nodes = {node.name: node for node in self.table.nodes}
        self.placed = {placed.pod.uid: (row, placed) for row, placed in self.table.placed_pods()}
        self.placed = {uid: (self.table.names[row], placed) for uid, (row, placed) in self.placed.items()}
        self.nominated = {}
        self.table.remove_nodes([])
        for name in self.table.names:
            if self.table.nominated_counts[self.table.row(name)]:
                self.table.remove(maker.pod("nominated"))
        self.pods_made = 0

    def node(self, name):
        sizes = {image: 2**30 + i for i, image in enumerate(IMAGES)}
        images = {image: sizes[image] for image in IMAGES if self.maker.chance(0.4)}
        created_at = float(self.maker.rng.integers(0, NOW)) if self.maker.chance(0.7) else None
        return Node(name, self.maker.amounts(), self.maker.amounts(), images, created_at)

    def step(self, table):
        """Apply one random change to the table and to the record."""
        kind = self.maker.rng.choice(["add", "add", "remove", "change", "place", "place", "take", "nominate"])
        self.pods_made += 1
        pod = self.maker.pod(f"pod-{self.pods_made}")
        names = [str(name) for name in self.maker.rng.permutation(NAMES)[: self.maker.rng.integers(1, 3)]]
        here = [name for name in names if name in self.nodes]
        if kind == "add":
            added = [self.node(name) for name in names]
            table.add_nodes(added)
            self.nodes |= {node.name: node for node in added}
        elif kind == "remove":
            table.remove_nodes(here)
            for name in here:
                del self.nodes[name]
            self.placed = {uid: at for uid, at in self.placed.items() if at[0] in self.nodes}
            self.nominated = {uid: at for uid, at in self.nominated.items() if at[0] in self.nodes}
        elif kind == "change" and here:
            self.nodes[here[0]] = self.node(here[0])
            table.add_nodes([self.nodes[here[0]]])
        elif kind == "place" and here:
            at = float(self.maker.rng.choice([-np.inf, 100, 600, 860, 899, np.inf]))
            table.add(pod, here[0], at)
            self.placed[pod.uid] = here[0], table.find(pod)[1]
        elif kind == "take" and self.placed:
            uid = str(self.maker.rng.choice(list(self.placed)))
            table.remove(self.placed.pop(uid)[1].pod)
        elif kind == "nominate" and here:
            table.nominate(pod, here[0])
            self.nominated[pod.uid] = here[0], pod

    def rebuilt(self):
        """Build an equal table from the record, with the nodes in the same rows."""
        fresh = NodeTable(self.nodes[name] for name in self.table.names)
        for name, placed in self.placed.values():
            fresh.add(placed.pod, name, placed.placed_at)
        for name, pod in self.nominated.values():
            fresh.nominate(pod, name)
        return fresh


def columns(table):
    kinds = [table.capacity, table.allocatable, table.requests, table.limits, table.in_tree_requests]
    amounts = {(kind.__name__, name): kind(name).tolist() for kind in kinds for name in table.resources}
    for name in ("cpu", "memory"):
        amounts["non_zero", name] = table.in_tree_requests(name, non_zero=True).tolist()
    counts = table.pod_counts, table.terminating_counts, table.nominated_counts, table.newest
    images = {name: [array.tolist() for array in table.image(name)] for name in IMAGES}
    return amounts, [array.tolist() for array in counts], images


@given(makers)
def test_a_changed_table_equals_a_new_one(maker):
    """Columns, counts, images and pods of a changed table equal those of a new table."""
    churn = Churn(maker)
    for _ in range(12):
        churn.step(churn.table)
        table, fresh = churn.table, churn.rebuilt()
        assert set(table.names) == churn.nodes.keys()
        assert table.resources == fresh.resources
        assert table.nodes == fresh.nodes
        assert columns(table) == columns(fresh)
        for name in table.names:
            assert {pod.uid for pod in table.pods(name)} == {pod.uid for pod in fresh.pods(name)}
            times = [placed.placed_at for placed in table.placed_on(table.row(name))]
            assert times == sorted(times)
        for name, placed in churn.placed.values():
            assert table.find(placed.pod) == (name, placed)


@given(plugins, makers)
@settings(max_examples=40)  # with 6 changes each, and all plugins
@pytest.mark.slow
def test_prepared_plugins_and_profiles_follow_the_nodes(plugins, maker):
    """Scores prepared before a change equal newly prepared scores, for every plugin."""
    churn = Churn(maker)
    pod = maker.pod("pending")
    profiles = [Profile.of(plugin) for plugin in plugins]
    prepared = [profile.prepare(churn.table, churn.snapshot) for profile in profiles]
    alone = [plugin.prepare(churn.table, churn.snapshot) for plugin in plugins]
    for _ in range(6):
        churn.step(churn.table)
        fresh = churn.rebuilt()
        for profile, following, plugin in zip(profiles, prepared, alone, strict=True):
            if maker.chance(0.8):  # otherwise several changes are followed at once
                expected = profile.score(pod, fresh, churn.snapshot)
                assert following.score(pod).total.tolist() == expected.total.tolist(), profile
                raw = expected.plugins[plugin.plugin.name]
                if raw.terms is not None:
                    assert plugin.score(pod).tolist() == raw.raw.tolist(), profile


@given(plugins, makers)
def test_replicas_score_as_if_each_were_the_first(plugins, maker):
    """Scores that a prepared profile keeps from earlier pods with equal requests equal newly computed ones."""
    churn = Churn(maker)
    kinds = [replace(maker.pod("first"), cached_requests=CachedRequests()) for _ in range(2)]
    profile = Profile(tuple({plugin.name: WeightedPlugin(plugin, 2) for plugin in plugins}.values()))
    prepared = profile.prepare(churn.table, churn.snapshot)
    for number in range(8):
        if maker.chance(0.8):
            churn.step(churn.table)
        pod = replace(kinds[number % 2], name=f"replica-{number}", uid=f"replica-{number}")
        expected = profile.prepare(churn.rebuilt(), churn.snapshot)
        rows = None
        if maker.chance(0.5):
            rows = maker.rng.permutation(len(churn.table))[: maker.rng.integers(0, len(churn.table) + 1)]
        alone = replace(pod, cached_requests=None)
        assert prepared.total(pod, among=rows).tolist() == expected.total(alone, among=rows).tolist()


@given(plugins, makers, st.sampled_from(["open", "closed"]), st.sampled_from([0.3, 1.0]), st.booleans())
def test_judgments_follow_nodes(plugins, maker, fail, bad_ratio, outage):
    """Grades, reasons and scores of a prepared judgment equal those of a new judgment, predictions included."""
    churn = Churn(maker)
    pod = maker.pod("pending")
    policy = FallbackPolicy(fail, bad_ratio=bad_ratio)
    snapshot = None if outage else churn.snapshot
    profile = Profile.of(*(plugin for plugin in plugins if plugin.reads_metrics and plugin.name != "Peaks"))
    prepared = profile.prepare(churn.table, policy.judge(churn.table, snapshot, NOW))
    for _ in range(6):
        before = churn.table.rows
        churn.step(churn.table)
        scores = prepared.score(pod)
        if churn.table.rows is before:
            continue  # pods that come later are counted on top of predictions
        fresh = churn.rebuilt()
        judgment = policy.judge(fresh, snapshot, NOW)
        expected = profile.score(pod, fresh, judgment)
        assert scores.judgment.grades.tolist() == judgment.grades.tolist()
        assert scores.judgment.reasons.tolist() == judgment.reasons.tolist()
        assert scores.total.tolist() == expected.total.tolist()


@given(plugins, makers)
def test_scores_among_some_nodes_equal_scores_of_feasible_nodes(plugins, maker):
    """Scores and explanations of selected nodes are the same as if all other nodes were infeasible."""
    churn = Churn(maker)
    for _ in range(4):
        churn.step(churn.table)
    table, pod = churn.table, maker.pod("pending")
    rows = maker.rng.permutation(len(table))[: maker.rng.integers(0, len(table) + 1)]
    feasible = np.zeros(len(table), np.bool_)
    feasible[rows] = True
    names = [table.names[row] for row in rows]
    judgment = FallbackPolicy(bad_ratio=1).judge(table, churn.snapshot, NOW)
    for plugin in plugins:
        prepared = Profile.of(plugin).prepare(table, judgment)
        expected = prepared.score(pod, feasible)
        for among in (names, rows):
            scores = prepared.score(pod, among=among)
            assert scores.names == tuple(names)
            assert scores.total.tolist() == expected.total[rows].tolist(), plugin
            assert scores.grades.tolist() == expected.grades[rows].tolist()
            for name in names:
                assert str(scores.explain(name)) == str(expected.explain(name))


@given(makers, st.lists(st.sampled_from([-np.inf, 0.0, 600.0, 860.0, 1e9, np.inf]), min_size=8, max_size=8))
def test_recent_pods_are_found_by_time(maker, times):
    """Exactly the pods placed at or after a row's time are yielded."""
    churn = Churn(maker)
    for _ in range(8):
        churn.step(churn.table)
    since = np.array(times)[: len(churn.table)]
    recent = [(row, placed.pod.uid) for row, placed in churn.table.placed_since(since)]
    assert recent == [
        (row, placed.pod.uid) for row, placed in churn.table.placed_pods() if placed.placed_at >= since[row]
    ]


def node(name, cpu=4000, **more):
    amounts = ResourceList({"cpu": cpu, **more})
    return Node(name, amounts, amounts)


def pod(name, cpu=500, **fields):
    return Pod(name=name, containers=(Container(ResourceList({"cpu": cpu})),), **fields)


@pytest.fixture
def nodes():
    return NodeTable([node(name) for name in "abc"], [pod(f"on-{name}", node_name=name) for name in "abc"])


def test_rows_keep_their_order(nodes):
    """A joining node gets the last row, a changed node keeps its row, and rows below a leaving node move up."""
    nodes.add_nodes([node("d"), node("b", cpu=8000)])
    assert nodes.names == ("a", "b", "c", "d")
    assert nodes.allocatable("cpu").tolist() == [4000, 8000, 4000, 4000]
    nodes.remove_nodes(["b"])
    assert nodes.names == ("a", "c", "d")
    assert nodes.requests("cpu").tolist() == [500, 500, 0]


def test_removing_a_node_removes_its_pods(nodes):
    """Pods on a removed node and pods nominated to it are on no node; a node that comes back is empty."""
    nodes.nominate(pod("nominated"), "b")
    nodes.remove_nodes(["b"])
    assert nodes.find(pod("on-b")) is None
    with pytest.raises(KeyError, match="default/nominated"):
        nodes.remove(pod("nominated"))
    nodes.add_nodes([node("b")])
    assert nodes.pods("b") == ()
    assert nodes.nominated_counts.tolist() == [0, 0, 0]


def test_removing_an_unknown_node_is_refused(nodes):
    """The error names the node, and no other node is removed."""
    with pytest.raises(KeyError, match="'z'"):
        nodes.remove_nodes(["a", "z"])
    assert nodes.names == ("a", "b", "c")


def test_a_new_extended_resource_gets_a_column(nodes):
    """Requests of a resource count while a node lists the resource, pods placed earlier included."""
    gpus = ResourceList({"nvidia.com/gpu": 2})
    nodes.add(Pod(name="trainer", containers=(Container(gpus),)), "a")
    assert nodes.requests("nvidia.com/gpu").tolist() == [0, 0, 0]
    nodes.add_nodes([node("a", **{"nvidia.com/gpu": 4})])
    assert nodes.allocatable("nvidia.com/gpu").tolist() == [4, 0, 0]
    assert nodes.requests("nvidia.com/gpu").tolist() == [2, 0, 0]
    nodes.add_nodes([node("a")])
    assert "nvidia.com/gpu" not in nodes.resources


def test_a_plan_may_change_nodes(nodes):
    """Nodes that a transaction adds or removes change on commit and not on failure."""
    with pytest.raises(ZeroDivisionError), nodes.transaction() as plan:
        plan.remove_nodes(["a"])
        1 / 0  # noqa: B018
    with nodes.transaction() as plan:
        plan.add_nodes([node("d")])
        plan.assume(pod("new"), "d")
        assert nodes.names == ("a", "b", "c")
    assert nodes.names == ("a", "b", "c", "d")
    assert nodes.requests("cpu").tolist() == [500] * 4


def test_a_copy_shares_unmodified_parts(nodes):
    """A plan shares rows, pods and index buckets with the table until either side writes."""
    with nodes.transaction() as plan:
        plan.assume(pod("new"), "a")
        shared = [mine is theirs for mine, theirs in zip(plan.occupancy.pods, nodes.occupancy.pods, strict=True)]
        assert shared == [False, True, True]
        buckets = zip(plan.occupancy.index._buckets, nodes.occupancy.index._buckets, strict=True)
        assert sum(mine is not theirs for mine, theirs in buckets) == 1
        assert plan.rows is nodes.rows


def test_both_sides_of_a_copy_may_write(nodes):
    """A table and its copy are independent, whichever writes first."""
    copy = nodes.copy()
    nodes.assume(pod("here"), "a")
    copy.assume(pod("there"), "a")
    copy.remove(pod("on-b"))
    nodes.remove(pod("on-c"))
    assert [p.name for p in nodes.pods("a")] == ["on-a", "here"]
    assert [p.name for p in copy.pods("a")] == ["on-a", "there"]
    assert nodes.find(pod("there")) is None
    assert nodes.find(pod("on-b"))[0] == "b"
    assert copy.find(pod("here")) is None
    assert copy.find(pod("on-c"))[0] == "c"


def load(cpu):
    return NodeMetrics((Metric("m", "CPU", "AVG", "15m", cpu), Metric("m", "Memory", "AVG", "15m", cpu)))


def test_a_joining_node_has_the_metrics_of_the_snapshot(nodes):
    """Metrics of a joining node come from the aligned snapshot; remaining nodes keep theirs."""
    snapshot = WatcherMetrics(900, Window("15m", 0, 900), "test", {"a": load(10.0), "d": load(40.0)})
    metrics = MetricsTable.align(snapshot, nodes)
    nodes.remove_nodes(["b"])
    nodes.add_nodes([node("d"), node("e")])
    followed = metrics.follow(nodes)
    assert followed.names == ("a", "c", "d", "e")
    assert followed.of("CPU").average.tolist() == [10.0, 0.0, 40.0, 0.0]
    assert followed.present.tolist() == [True, False, True, False]


def test_removing_a_node_does_not_modify_earlier_scores(nodes):
    """Scores and explanations computed before a node left are unchanged."""
    snapshot = WatcherMetrics(900, Window("15m", 0, 900), "test", {name: load(10.0) for name in "abc"})
    prepared = Profile.of(LoadVariationRiskBalancing(), ImageLocality()).prepare(nodes, snapshot)
    scores = prepared.score(pod("pending"))
    explained = str(scores.explain("c"))
    nodes.remove_nodes(["a"])
    assert prepared.score(pod("pending")).names == ("b", "c")
    assert scores.names == ("a", "b", "c")
    assert str(scores.explain("c")) == explained


@pytest.mark.parametrize("judged", [False, True])
def test_a_failed_update_is_made_again(nodes, judged):
    """After an error while a profile follows its table, the next scores are those of a new profile."""
    failures = []

    class Failing(LoadVariationRiskBalancing):
        def node_terms(self, nodes, metrics):
            if failures:
                raise RuntimeError(failures.pop())
            return super().node_terms(nodes, metrics)

    data = {name: load(10.0 * cpu) for cpu, name in enumerate("abcd")}
    snapshot = WatcherMetrics(900, Window("15m", 0, 900), "test", data)

    def known(table):
        return FallbackPolicy().judge(table, snapshot, NOW) if judged else snapshot

    profile = Profile.of(Failing(), ImageLocality())
    prepared = profile.prepare(nodes, known(nodes))
    nodes.remove_nodes(["a"])
    nodes.add_nodes([node("d"), node("b", cpu=8000)])
    failures.append("a defect")
    with pytest.raises(RuntimeError, match="a defect"):
        prepared.score(pod("pending"))
    for leaving in ((), ("c",)):
        nodes.remove_nodes(leaving)
        scores, fresh = prepared.score(pod("pending")), profile.score(pod("pending"), nodes, known(nodes))
        assert (scores.names, scores.total.tolist()) == (fresh.names, fresh.total.tolist())
