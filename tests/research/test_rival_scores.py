"""Scores of other load-aware schedulers, compared with values computed by hand from the formulas of their sources."""

import sys
from pathlib import Path

import numpy as np
import pytest
from support.worlds import GIB, small_world

from runtime.kubernetes.objects import CPU, MEMORY
from scoring import Container, MetricsTable, Node, NodeTable, Pod, Profile, ResourceList
from trimaran.simulator.cluster import Cluster
from watcher.model import Metric, NodeMetrics, WatcherMetrics, Window

sys.path.insert(0, str(Path(__file__).parents[2] / "research"))  # scripts there import each other so
try:
    from rivals import crane
    from rivals.koordinator import KoordinatorLoadAware
    from rivals.volcano import VolcanoUsage
finally:
    sys.path.pop(0)

NOW = 1_700_000_000


def pod(cpu: int, memory: int, cpu_limit: int = 0, memory_limit: int = 0, name: str = "p") -> Pod:
    limits = {resource: limit for resource, limit in ((CPU, cpu_limit), (MEMORY, memory_limit)) if limit}
    container = Container(ResourceList({CPU: cpu, MEMORY: memory}), ResourceList(limits))
    return Pod(name=name, uid=name, containers=(container,))


def snapshot(**nodes: tuple[float, float]) -> WatcherMetrics:
    """Return a snapshot with CPU and memory of each node in percent."""
    data = {
        name: NodeMetrics((Metric("c", "CPU", "AVG", "15m", cpu), Metric("m", "Memory", "AVG", "15m", memory)))
        for name, (cpu, memory) in nodes.items()
    }
    return WatcherMetrics(NOW, Window("15m", NOW - 900, NOW), "test", data)


def table(*names: str) -> NodeTable:
    amounts = ResourceList({CPU: 10_000, MEMORY: 10 * GIB})
    return NodeTable([Node(name, amounts, amounts, created_at=0.0) for name in names])


def scores_of(plugin, asked: Pod, nodes: NodeTable, seen: WatcherMetrics) -> list[int]:
    return Profile.of(plugin).prepare(nodes, MetricsTable.align(seen, nodes)).score(asked).total.tolist()


@pytest.mark.parametrize(
    ("asked", "cpu", "memory"),
    [
        (pod(1000, GIB), 850, round(0.7 * GIB)),
        (pod(1000, GIB, 2000, 2 * GIB), 1700, round(1.4 * GIB)),  # the limit is higher
        (pod(1, 1), 1, 1),  # 0.85 and 0.7 are rounded up
        (pod(0, 0), 250, 200 * 2**20),
    ],
)
def test_koordinator_estimates_pods(asked: Pod, cpu: int, memory: int) -> None:
    """The estimate goes by the limit, or the request if that is higher, with defaults for pods with neither."""
    plugin = KoordinatorLoadAware()
    assert (plugin.estimate(asked, CPU), plugin.estimate(asked, MEMORY)) == (cpu, memory)


def test_koordinator_scores() -> None:
    """Reported use of 30 and 20 percent plus 850m and 0.7 GiB, rounded up, is 61.5 and 72.99: (61 + 72) / 2 = 66."""
    assert scores_of(KoordinatorLoadAware(), pod(1000, GIB), table("a"), snapshot(a=(30, 20))) == [66]


def test_koordinator_counts_pods_in_flight() -> None:
    """A pod assigned in the minute before the report adds 850m and 0.7 GiB: (53 + 65) / 2 = 59."""
    nodes = table("a")
    nodes.add(pod(1000, GIB, name="new"), "a", placed_at=NOW - 59)
    nodes.add(pod(1000, GIB, name="old"), "a", placed_at=NOW - 60)
    assert scores_of(KoordinatorLoadAware(), pod(1000, GIB), nodes, snapshot(a=(30, 20))) == [59]


def test_koordinator_excludes_nodes_above_its_thresholds() -> None:
    """With the pod, 65.4 percent of CPU rounds to 65, which is allowed, and 65.5 to 66; the limit of memory is 95."""
    seen = snapshot(a=(56.9, 0), b=(57.0, 0), c=(0, 88.4), d=(0, 88.6))
    result = scores_of(KoordinatorLoadAware(), pod(1000, GIB), table("a", "b", "c", "d"), seen)
    assert [score > 0 for score in result] == [True, False, True, False]


def test_volcano_scores() -> None:
    """The score is (1 - 0.3) * 50 + (1 - 0.25) * 50 = 72.5, truncated; above 80 percent it is 0."""
    seen = snapshot(a=(30, 25), b=(80, 80), c=(80.1, 10), d=(10, 80.1))
    assert scores_of(VolcanoUsage(), pod(1, 1), table("a", "b", "c", "d"), seen) == [72, 20, 0, 0]


def usages(*nodes: tuple[list[float], list[float]]) -> np.ndarray:
    return np.moveaxis(np.array(nodes), 0, 2)


def test_crane_scores() -> None:
    """The sum of (1 - u) w 100 / 2 is 56.9, less 10 per hot value, clipped to 0 to 100; unknown use contributes 0."""
    whole = ([0.41, 0.5, 0.6], [0.2, 0.3, 0.4])
    partly = ([0.41, 0.5, np.nan], [0.2, 0.3, 0.4])  # 0.4 * 0.5 * 50 = 10 less
    assert crane.scores(usages(whole, whole, whole, partly), np.array([0, 1, 6, 0])).tolist() == [56, 46, 0, 46]


@pytest.mark.parametrize(
    ("cpu", "memory", "out"),
    [
        ([0.65, 0.75, 1.0], [0.65, 0.75, 1.0], False),
        ([0.66, 0.7, 0.7], [0.1, 0.1, 0.1], True),
        ([0.1, 0.76, 0.8], [0.1, 0.1, 0.1], True),
        ([0.1, 0.1, 0.1], [0.66, 0.7, 0.7], True),
        ([0.1, 0.1, 0.1], [0.1, 0.76, 0.8], True),
        ([np.nan] * 3, [np.nan] * 3, False),
    ],
)
def test_crane_excludes_nodes_above_its_limits(cpu: list[float], memory: list[float], out: bool) -> None:
    """The limits are 0.65 over five minutes and 0.75 of the past hour; the day has none."""
    assert crane.overloaded(usages((cpu, memory))).tolist() == [out]


def test_cranes_metrics_can_be_replaced() -> None:
    """Other weights and limits give (0.6 * 3 + 0.4 * 1) / 4 for CPU and 0.8 for memory: 67.5, truncated."""
    metrics = (crane.UsageMetric(0, 3, 3.0, 0.3), crane.UsageMetric(60, 15, 1.0))
    seen = usages(([0.4, 0.6], [0.2, 0.2]), ([0.3, 0.9], [0.2, 0.2]))
    assert crane.scores(seen, np.array([0, 0]), metrics).tolist() == [67, 67]
    assert crane.overloaded(seen, metrics).tolist() == [True, False]


def test_crane_writes_averages_and_their_maxima() -> None:
    """The five-minute average is written every 3 minutes, the hour's maximum every 15, the day's every 3 hours."""
    cluster = Cluster(small_world(1, [("Job", 1.0)], minutes=500), (1.0, 1.0))
    cluster.ledger.add(0, 100, np.array([[5000.0] * 5, [32.0 * GIB] * 5]))  # five minutes at one half
    annotations = crane.NodeAnnotations(cluster, delay_minutes=0)
    seen = {}
    for cluster.minute in (60, 103, 105, 108, 164, 165, 180, 360):
        annotations.update()
        seen[cluster.minute] = annotations.usages[0, :, 0].tolist()
    expected = {
        60: [0, 0, np.nan],  # the day's maximum is first written at 180
        103: [0.2, 0, np.nan],  # written at 102: two of five minutes
        105: [0.5, 0.5, np.nan],
        108: [0.2, 0.5, np.nan],
        164: [0, 0.5, np.nan],
        165: [0, 0.4, np.nan],  # the first average of the past hour is that of minutes 101 to 105
        180: [0, 0, 0.5],
        360: [0, 0, 0.5],
    }
    for minute, values in expected.items():
        assert seen[minute] == pytest.approx(values, nan_ok=True), minute


def test_crane_counts_bindings() -> None:
    """Pods bound in the last five minutes count a fifth, those of the last minute a half, each truncated."""
    cluster = Cluster(small_world(1, [("Job", 0.0)] * 12), (4.0, 4.0))
    annotations = crane.NodeAnnotations(cluster, delay_minutes=0)
    hot = []
    for cluster.minute, more in ((1, 4), (3, 3), (6, 5), (9, 0), (12, 0)):
        for number in range(len(cluster.pod_runs), len(cluster.pod_runs) + more):
            cluster.place(number, cluster.pod(number), 0)
        annotations.update()
        hot.append(int(annotations.hot[0]))
    assert hot == [0, 7 // 5 + 3 // 2, 8 // 5 + 5 // 2, 5 // 5, 0]
