"""Properties of every score for any cluster, tested with hypothesis."""

from decimal import ROUND_HALF_UP, Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.clusters import ARGUMENTS, makers, plugins

from scoring import (
    Container,
    LoadVariationRiskBalancing,
    LowRiskOverCommitment,
    MetricsTable,
    Node,
    NodeResourcesFit,
    NodeTable,
    Pod,
    Profile,
    ResourceList,
    TargetLoadPacking,
)
from scoring.go_math import round_half_away
from scoring.profiles.configuration.plugins import PLUGINS
from watcher.model import Metric, NodeMetrics, WatcherMetrics, Window


def test_every_plugin_has_arguments():
    """Every plugin takes part in the property tests."""
    assert set(ARGUMENTS) == PLUGINS


@given(plugins, makers)
def test_a_table_without_nodes_is_valid(plugins, maker):
    """Scoring a cluster without nodes gives empty results."""
    for plugin in plugins:
        prepared = Profile.of(plugin).prepare(NodeTable([]), maker.cluster()[1])
        assert prepared.score(maker.pod("pending")).ranking() == []
        assert prepared.score_many([maker.pod("pending")]).shape == (1, 0)


@given(plugins, makers)
def test_scores_are_within_bounds(plugins, maker):
    """Valid arguments, nodes and metrics give normalized scores from 0 to 100."""
    table, snapshot = maker.cluster()
    for plugin in plugins:
        scores = Profile.of(plugin).score(maker.pod("pending"), table, snapshot).total
        assert scores.min() >= 0, plugin
        assert scores.max() <= 100, plugin


@given(plugins, makers)
def test_scores_of_single_nodes_are_equal(plugins, maker):
    """The score of a node is bitwise the same alone and together with other nodes.

    ImageLocality is left out because its score depends on the number of nodes that have an image.
    """
    table, snapshot = maker.cluster()
    pod = maker.pod("pending")
    for plugin in plugins:
        if plugin.name == "ImageLocality":
            continue
        together = plugin.score(pod, table, snapshot)
        alone = [plugin.score(pod, table.take(np.array([row])), snapshot)[0] for row in range(len(table))]
        assert together.tolist() == alone, plugin


@given(plugins, makers)
def test_the_order_of_nodes_does_not_matter(plugins, maker):
    """Nodes in another order have the same normalized scores."""
    table, snapshot = maker.cluster()
    pod, order = maker.pod("pending"), maker.rng.permutation(len(table))
    for plugin in plugins:
        profile = Profile.of(plugin)
        scores = profile.score(pod, table, snapshot).total
        assert profile.score(pod, table.take(order), snapshot).total.tolist() == scores[order].tolist(), plugin


@given(plugins, makers, st.integers(0, 5))
def test_scores_of_many_pods_equal_scores_of_single_pods(plugins, maker, count):
    """Many pods in one call get the same scores as in single calls."""
    table, snapshot = maker.cluster()
    pending = [maker.pod(f"pending-{i}") for i in range(count)]
    feasible = maker.rng.random(len(table)) < 0.7
    for plugin in plugins:
        prepared = Profile.of(plugin).prepare(table, snapshot)
        for mask in (None, feasible):
            together = prepared.score_many(pending, mask)
            assert together.shape == (count, len(table))
            assert together.tolist() == [prepared.score(pod, mask).total.tolist() for pod in pending], plugin


@given(plugins, makers)
def test_explanations_have_the_scores(plugins, maker):
    """An explanation has the score of the array and a sentence."""
    table, snapshot = maker.cluster()
    pod = maker.pod("pending")
    for plugin in plugins:
        scores = plugin.score(pod, table, snapshot)
        for row, node_name in enumerate(table.names):
            explanation = plugin.explain(pod, table, snapshot, node_name)
            assert explanation.score == scores[row]
            assert explanation.line


@given(plugins, makers)
def test_prepared_plugins_follow_the_table(plugins, maker):
    """Prepared scores equal newly computed scores after pods came and went."""
    table, snapshot = maker.cluster()
    pod = maker.pod("pending")
    prepared = [plugin.prepare(table, snapshot) for plugin in plugins]
    for index in range(4):
        node_name = table.names[maker.rng.integers(0, len(table))]
        if maker.chance(0.6):
            table.assume(maker.pod(f"new-{index}"), node_name)
        elif table.pods(node_name):
            table.remove(table.pods(node_name)[0])
        for plugin, following in zip(plugins, prepared, strict=True):
            assert following.score(pod).tolist() == plugin.score(pod, table, snapshot).tolist(), plugin


def state_of(table, metrics, pod):
    arrays = {name: value for name, value in vars(table).items() if name != "_images"}  # cached by the first call
    return repr((arrays, dict(metrics.use), pod))


@given(plugins, makers)
def test_scoring_does_not_modify_its_inputs(plugins, maker):
    """Scoring and explaining modify neither table, metrics nor pod, and earlier scores stay the same."""
    table, snapshot = maker.cluster()
    pod, metrics = maker.pod("pending"), MetricsTable.align(snapshot, table)
    before = state_of(table, metrics, pod)
    earlier = []
    for plugin in plugins:
        prepared = Profile.of(plugin).prepare(table, metrics)
        prepared.score_many([pod, pod])
        scores = prepared.score(pod)
        earlier.append((prepared, scores, str(scores.explain("n0"))))
    assert state_of(table, metrics, pod) == before
    table.assume(maker.pod("later"), "n0")
    for prepared, scores, explained in earlier:
        prepared.score(pod)
        assert str(scores.explain("n0")) == explained


@given(plugins, makers)
def test_a_failed_transaction_does_not_change_scores(plugins, maker):
    """Scores are the same before and after a transaction that raised."""
    table, snapshot = maker.cluster()
    pod = maker.pod("pending")
    before = [plugin.score(pod, table, snapshot).tolist() for plugin in plugins]
    with pytest.raises(ZeroDivisionError), table.transaction() as plan:
        plan.assume(pod, "n0")
        for plugin in plugins:
            plugin.score(pod, plan, snapshot)
        1 / 0  # noqa: B018
    assert [plugin.score(pod, table, snapshot).tolist() for plugin in plugins] == before


def one_node(average, deviation=0.0, cpu=4000):
    capacity = ResourceList({"cpu": cpu, "memory": 2**33})
    table = NodeTable([Node("n", capacity, capacity)])
    values = (Metric("m", "CPU", "AVG", "15m", average), Metric("m", "CPU", "STD", "15m", deviation))
    return table, WatcherMetrics(900, Window("15m", 0, 900), "test", {"n": NodeMetrics(values)})


def score(plugin, cpu, limit, average, deviation=0.0):
    table, snapshot = one_node(average, deviation)
    pod = Pod(containers=(Container(ResourceList({"cpu": cpu}), ResourceList({"cpu": limit})),))
    return int(plugin.score(pod, table, snapshot)[0])


requests = st.integers(1, 6000)
loads = st.floats(0, 120)


@given(
    st.tuples(requests, requests),
    st.tuples(loads, loads),
    st.tuples(loads, loads),
    st.sampled_from(["trimaran", "kep"]),
)
def test_load_variation_falls(demands, averages, deviations, formula):
    """LoadVariationRiskBalancing never rises with the request, the load or its deviation."""
    plugin = LoadVariationRiskBalancing(formula=formula)
    low = score(plugin, min(demands), 1, min(averages), min(deviations))
    assert score(plugin, max(demands), 1, max(averages), max(deviations)) <= low


@given(st.integers(1, 100), requests, requests, st.floats(0, 60))
def test_target_load_packing_rises_to_its_target_and_falls_after_it(target, one, other, average):
    """TargetLoadPacking never falls with use below the target and never rises above it."""
    plugin = TargetLoadPacking(target)
    small, large = sorted((one, other))
    first, second = (score(plugin, 0, demand, average) for demand in (small, large))
    percents_after = [average + 100 * demand / 4000 for demand in (small, large)]
    if percents_after[1] <= target:
        assert first <= second
    if percents_after[0] > target:
        assert first >= second


@given(requests, requests)
def test_requested_scores_follow_requests(one, other):
    """LeastAllocated never rises with the request, MostAllocated never falls."""
    small, large = sorted((one, other))
    least, most = NodeResourcesFit("LeastAllocated"), NodeResourcesFit("MostAllocated")
    assert score(least, small, 1, 0) >= score(least, large, 1, 0)
    assert score(most, small, 1, 0) <= score(most, large, 1, 0)


@given(requests, requests, loads, st.floats(0, 50))
def test_low_risk_falls_with_the_limit(one, other, average, deviation):
    """LowRiskOverCommitment never rises with the pod's limit."""
    small, large = sorted((one, other))
    plugin = LowRiskOverCommitment()
    assert score(plugin, 1, small, average, deviation) >= score(plugin, 1, large, average, deviation)


@given(st.one_of(st.floats(-1e15, 1e15), st.integers(-(10**6), 10**6).map(lambda n: n / 2)))
def test_rounding_is_exact(value):
    """Rounding equals exact decimal rounding half away from zero for any number."""
    assert round_half_away(value) == Decimal(value).quantize(Decimal(1), rounding=ROUND_HALF_UP)
    for neighbor in (np.nextafter(value, np.inf), np.nextafter(value, -np.inf)):
        assert round_half_away(neighbor) == Decimal(float(neighbor)).quantize(Decimal(1), rounding=ROUND_HALF_UP)
