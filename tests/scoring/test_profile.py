"""Profiles: weighted sums of plugin scores, as in kube-scheduler."""

import numpy as np
import pytest

from scoring import (
    INFEASIBLE,
    Container,
    ImageLocality,
    MetricsTable,
    Node,
    NodeResourcesAllocatable,
    NodeResourcesBalancedAllocation,
    NodeResourcesFit,
    NodeTable,
    Pod,
    Profile,
    ResourceList,
    TargetLoadPacking,
    WeightedPlugin,
)
from scoring.plugins.node_resources_fit import fits
from watcher.model import Metric, NodeMetrics, WatcherMetrics, Window


def node(name, cpu=4000, memory=2**33, **more):
    amounts = ResourceList({"cpu": cpu, "memory": memory, **more})
    return Node(name, amounts, amounts)


def pod(cpu=1000, memory=2**30, name="pending"):
    return Pod(name=name, containers=(Container(ResourceList({"cpu": cpu, "memory": memory})),))


@pytest.fixture
def nodes():
    return NodeTable([node("small"), node("large", cpu=8000, memory=2**34), node("twin", cpu=8000, memory=2**34)])


def no_metrics(nodes):
    return MetricsTable.empty(nodes)


def test_totals_are_weighted_sums(nodes):
    """Each plugin's normalized score counts with its weight."""
    least, smallest = NodeResourcesFit("LeastAllocated"), NodeResourcesAllocatable("Least")
    profile = Profile((WeightedPlugin(least, 3), WeightedPlugin(smallest, 2)))
    scores = profile.score(pod(), nodes, no_metrics(nodes))
    fit = least.score(pod(), nodes, no_metrics(nodes))
    assert scores.plugins["NodeResourcesAllocatable"].normalized.tolist() == [100, 0, 0]
    assert scores.total.tolist() == (3 * fit + 2 * np.array([100, 0, 0])).tolist()


def test_totals_without_explanations_equal_the_scores(nodes):
    """Totals are equal while pods are placed, for all and some nodes, with infeasible nodes and a skipping plugin."""
    plugins = (NodeResourcesFit(), NodeResourcesBalancedAllocation(), TargetLoadPacking())
    profile = Profile((*map(WeightedPlugin, plugins), WeightedPlugin(NodeResourcesAllocatable(), 3)))
    snapshot = WatcherMetrics(900, Window("15m", 0, 900), "test", {})
    prepared, other = profile.prepare(nodes, snapshot), profile.prepare(nodes, snapshot)
    feasible, rows = np.array([True, False, True]), np.array([2, 0])
    for number, node_name in enumerate(("large", "small", "twin", "large")):
        for pending in (pod(), Pod(name="without requests")):
            for selection in ({}, {"feasible": feasible}, {"among": rows}):
                expected = other.score(pending, **selection).total.tolist()
                assert prepared.total(pending, **selection).tolist() == expected
        nodes.assume(pod(name=f"placed-{number}"), node_name)


def test_later_changes_do_not_modify_scores(nodes):
    """An explanation of earlier scores is unchanged after a pod was placed."""
    profile = Profile.of(NodeResourcesFit(), NodeResourcesBalancedAllocation())
    scores = profile.prepare(nodes, no_metrics(nodes)).score(pod())
    before = str(scores.explain("large"))
    nodes.add(pod(name="placed", cpu=3000), "large")
    assert str(scores.explain("large")) == before
    assert str(profile.score(pod(), nodes, no_metrics(nodes)).explain("large")) != before


def test_only_feasible_nodes_count(nodes):
    """Normalization uses feasible nodes only; other nodes get a total below every score and are never best."""
    profile = Profile.of(NodeResourcesAllocatable("Least"))
    scores = profile.score(pod(), nodes, no_metrics(nodes), np.array([False, True, True]))
    assert scores.total.tolist() == [INFEASIBLE, 0, 0]
    assert scores.best() == "large"
    assert scores.ranking() == [("large", 0), ("twin", 0)]


def test_no_feasible_node_is_an_error(nodes):
    """Scores without a feasible node have no best node."""
    scores = Profile.of(NodeResourcesFit()).score(pod(), nodes, no_metrics(nodes), np.zeros(3, bool))
    with pytest.raises(LookupError, match="default/pending"):
        scores.best()


def test_ties_are_broken_by_the_given_generator(nodes):
    """The seed decides between equal nodes, reproducibly, and every equal node can win."""
    scores = Profile.of(NodeResourcesFit()).score(pod(), nodes, no_metrics(nodes))
    drawn = [scores.best(np.random.default_rng(seed)) for seed in range(20)]
    assert drawn == [scores.best(np.random.default_rng(seed)) for seed in range(20)]
    assert set(drawn) == {"large", "twin"}
    assert scores.best() == "large"


def test_a_skipped_plugin_adds_nothing(nodes):
    """A pod without requests skips the balance score, as in kube-scheduler, and the explanation mentions the skip."""
    scores = Profile.of(NodeResourcesBalancedAllocation()).score(Pod(name="idle"), nodes, no_metrics(nodes))
    assert scores.total.tolist() == [0] * 3
    assert "skipped" in str(scores.explain("small"))


def test_explanations_have_weights_and_normalization(nodes):
    """Each line has the weight, the normalized score, a differing raw score, and the plugin's reason."""
    profile = Profile((WeightedPlugin(NodeResourcesAllocatable("Most"), 2), WeightedPlugin(ImageLocality())))
    text = str(profile.score(pod(), nodes, no_metrics(nodes)).explain("large"))
    assert text.startswith("default/pending on large: 200\n")
    assert "  2 x 100 (normalized from 24" in text
    assert "  1 x 0 ImageLocality: 0 MiB of images here" in text


def test_a_transaction_places_a_gang(nodes):
    """Each pod is scored with the pods placed before it, and the whole gang is placed when the block ends."""
    profile = Profile.of(NodeResourcesFit("LeastAllocated"))
    with nodes.transaction() as plan:
        prepared = profile.prepare(plan, no_metrics(plan))
        for i in range(4):
            member = pod(cpu=4000, name=f"member-{i}")
            scores = prepared.score(member, fits(member, plan))
            plan.assume(member, scores.best())
    assert nodes.requests("cpu").tolist() == [0, 8000, 8000] or nodes.requests("cpu").tolist() == [4000, 8000, 4000]
    assert nodes.pod_counts.sum() == 4


def test_fits_is_the_resource_filter():
    """A pod fits if each requested resource is free and the node may run one more pod."""
    table = NodeTable([node("roomy", pods=10), node("tight", cpu=500, pods=10), node("crowded", pods=0)])
    assert fits(pod(), table).tolist() == [True, False, False]
    assert fits(pod(cpu=0), table).tolist() == [True, True, False]


def test_values_outside_the_bounds_are_refused(nodes):
    """A plugin that leaves 0..100 is refused, as in kube-scheduler; here unchecked metrics cause it."""
    metrics = (Metric("m", "CPU", "AVG", "15m", -900.0),)
    snapshot = WatcherMetrics(900, Window("15m", 0, 900), "test", {"small": NodeMetrics(metrics)})
    unchecked = MetricsTable.align(snapshot, nodes, as_received=True)
    for score in (
        Profile.of(TargetLoadPacking()).score,
        Profile.of(TargetLoadPacking()).prepare(nodes, unchecked).score_many,
    ):
        with pytest.raises(ValueError, match="TargetLoadPacking scores -"):
            score(*([pod(), nodes, unchecked] if score.__name__ == "score" else [[pod()]]))


def test_duplicate_plugin_names_are_refused():
    """A profile with two plugins of the same name raises an error."""
    with pytest.raises(ValueError, match="NodeResourcesFit"):
        Profile.of(NodeResourcesFit("LeastAllocated"), NodeResourcesFit("MostAllocated"))
