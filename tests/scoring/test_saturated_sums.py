"""Sums of requests beyond 64 bits: they saturate, never wrap, and are exact again after pods have left."""

import random
from collections.abc import Sequence

import numpy as np
import pytest

from scoring import (
    CongestionCost,
    Container,
    LoadVariationRiskBalancing,
    LowRiskOverCommitment,
    MetricsTable,
    Node,
    NodeResourcesAllocatable,
    NodeResourcesBalancedAllocation,
    NodeResourcesFit,
    NodeTable,
    Owner,
    Pod,
    ResourceList,
    ScorePlugin,
    TargetLoadPacking,
)
from scoring.table.feasibility import shortages
from watcher.model import Metric, NodeMetrics, WatcherMetrics, Window

LARGEST = 2**63 - 1
AMOUNTS = (0, 1, 1000, 2**53, 2**61, 2**62 - 1, 2**62, 2**62 + 1, LARGEST - 1, LARGEST)


def asking(name: str, amount: int, resource: str = "memory", **fields: object) -> Pod:
    return Pod(name=name, containers=(Container(ResourceList({resource: amount})),), **fields)


def fits(allocatable: int, running: Sequence[int], wanted: int) -> bool:
    table = NodeTable([Node("n", allocatable=ResourceList({"x": allocatable}))])
    for number, amount in enumerate(running):
        table.add(asking(f"p{number}", amount, "x"), "n")
    return bool(table.feasible(asking("next", wanted, "x"))[0])


@pytest.mark.parametrize("seed", range(5))
def test_sums_are_those_of_python(seed: int) -> None:
    """After any order of pods, copies, and nodes with other resources, each sum is the exact one, cut at 64 bits."""
    dice, table, placed = random.Random(seed), NodeTable([Node("n"), Node("m")]), dict[str, tuple[str, Pod]]()
    for step in range(300):
        name = dice.choice("abcdefgh")
        if name in placed and dice.random() < 0.6:
            table.remove(placed.pop(name)[1])
        else:
            pod = asking(name, dice.choice(AMOUNTS), dice.choice(("memory", "x")), terminating=dice.random() < 0.5)
            placed[name] = dice.choice("nm"), pod
            table.add(pod, placed[name][0])
        if step == 100:
            table.add_nodes([Node("k", allocatable=ResourceList({"x": 1, "a": 1}))])
        if step == 200:
            table.remove_nodes(["k"])
            table.add_nodes([Node("n", allocatable=ResourceList({"x": LARGEST}))])
        if dice.random() < 0.2:
            table = table.copy()
        for row, node in enumerate(table.names):
            pods = [pod for where, pod in placed.values() if where == node]
            for resource in table.resources:
                exact = sum(pod.containers[0].requests.amount(resource) for pod in pods)
                assert table.in_tree_requests(resource)[row] == min(exact, LARGEST)
                assert table.requests(resource)[row] == min(exact, 2**62)
            assert (table.pod_counts[row], table.terminating_counts[row]) == (
                len(pods), sum(pod.terminating for pod in pods),
            )  # fmt: skip


@pytest.mark.parametrize(
    ("allocatable", "running", "wanted", "expected"),
    [
        (9 * 10**18, [5 * 10**18], 4 * 10**18, True),
        (9 * 10**18, [5 * 10**18], 4 * 10**18 + 1, False),
        (LARGEST, [LARGEST], 1, False),
        (LARGEST, [LARGEST, LARGEST], 1, False),
        (LARGEST, [], LARGEST, True),
        (4, [LARGEST], 1, False),
        (4, [3], LARGEST, False),
    ],
)
def test_the_filter_compares_exactly(allocatable: int, running: list[int], wanted: int, expected: bool) -> None:
    """Up to the largest 64-bit integer a pod fits if and only if the amounts add up, and nothing wraps beyond it."""
    assert fits(allocatable, running, wanted) is expected


def test_nominated_pods_do_not_wrap() -> None:
    """Pods that are nominated to a node count with those on it, also if they exceed 64 bits together."""
    table = NodeTable([Node("n", allocatable=ResourceList({"x": LARGEST}))])
    table.add(asking("placed", LARGEST, "x"), "n")
    table.nominate(asking("nominated", LARGEST, "x", nominated_node_name="n"))
    assert table.feasible(asking("next", 1, "x")).tolist() == [False]
    lacking = shortages(asking("next", 1, "x"), table.occupancy, (("x", 1),))
    assert lacking["Insufficient x"].tolist() == [True]


PLUGINS = (
    NodeResourcesFit(), NodeResourcesFit("MostAllocated"), NodeResourcesFit("RequestedToCapacityRatio"),
    NodeResourcesBalancedAllocation(), LowRiskOverCommitment(), LoadVariationRiskBalancing(), TargetLoadPacking(),
    CongestionCost(),
)  # fmt: skip
MEASURED = WatcherMetrics(
    1900, Window("15m", 1000, 1900), "test",
    {"n": NodeMetrics(tuple(Metric("m", type_, "AVG", "15m", 40.0) for type_ in ("CPU", "Memory")))},
)  # fmt: skip


@pytest.mark.parametrize("plugin", PLUGINS, ids=lambda plugin: plugin.name)
@pytest.mark.parametrize("allocatable", AMOUNTS)
def test_scores_stay_in_their_range(plugin: ScorePlugin, allocatable: int) -> None:
    """A score is 0 to 100 for any amounts of the node, its pods, and the pending pod, with and without metrics."""
    amounts, owner = ResourceList({"cpu": allocatable, "memory": allocatable}), Owner("ReplicaSet", "web")
    for amount in AMOUNTS:
        table = NodeTable([Node("n", capacity=amounts, allocatable=amounts)])
        table.add(asking("a", amount, owner=owner), "n")
        table.add(asking("b", amount, "cpu", owner=owner), "n")
        table.add(asking("c", LARGEST, "cpu", owner=owner), "n")
        for metrics in (MetricsTable.empty(table), MetricsTable.align(MEASURED, table)):
            for wanted in AMOUNTS:
                score = plugin.score(asking("next", wanted, "cpu", owner=owner), table, metrics)
                assert plugin.normalizes or np.all((score >= 0) & (score <= 100)), (amount, wanted)


def test_huge_nodes_have_a_mean() -> None:
    """The mean of allocatable amounts beyond all scored ones saturates."""
    table = NodeTable([Node("n", allocatable=ResourceList({"cpu": LARGEST, "memory": LARGEST}))])
    assert NodeResourcesAllocatable("Most").score(Pod(name="p"), table, MetricsTable.empty(table)).tolist() == [2**53]
