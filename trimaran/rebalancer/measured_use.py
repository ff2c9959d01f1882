"""Measured use of pods and nodes for the rebalancer, read from the watcher at each search."""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Protocol

import numpy as np

from client import ClientError
from runtime.kubernetes.objects import CPU, MEMORY
from runtime.kubernetes.pod_demand import in_tree_requests
from trimaran.planning.moves.correction import RecentMove, corrected_loads
from trimaran.rebalancer.look import NO_USE, ClusterLook
from watcher.model import Grade, MetricType, WatcherMetrics, averages
from watcher.pod_use_table import PodUseTable


class UseSource(Protocol):
    """Source of the measured use: :class:`client.WatcherClient` implements it."""

    def metrics(self, window: str | None = None) -> WatcherMetrics:
        """Return the metrics of all nodes. Raises ``ClientError`` if there are none."""
        ...

    def pod_history(self, nodes: Collection[str], pods: Collection[str] = ()) -> PodUseTable:
        """Return the use of single pods over the last day. Raises ``ClientError`` if none is known."""
        ...


class UseReader:
    """Use of pods and nodes that was last read from the watcher.

    Args:
        source: the watcher.
        max_age: maximum age of the nodes' metrics, seconds.
        clock: Unix time.

    Attributes:
        pods: use of the pods over the last day.
        loads: CPU load of each node with fresh metrics that are not suspect, percent.
        window: begin and end of the window over which ``loads`` are averaged, Unix seconds.
    """

    def __init__(self, source: UseSource, max_age: float, clock: Callable[[], float]) -> None:
        self._source, self._max_age, self._clock = source, max_age, clock
        self.pods: PodUseTable = NO_USE
        self.loads: Mapping[str, float] = {}
        self.window = (0.0, 0.0)

    def refresh(self, nodes: Collection[str], gone: Collection[str]) -> str:
        """Read the use of pods and nodes; return the reason if the use is missing or too old.

        Args:
            nodes: names of all nodes.
            gone: UIDs of evicted pods, whose past their replacements inherit.
        """
        try:
            self.pods = self._source.pod_history(nodes, gone)
            snapshot = self._source.metrics().as_listed(nodes)
        except ClientError as error:
            return f"the watcher has no use of pods or nodes: {error}"
        is_fresh = abs(self._clock() - snapshot.timestamp) <= self._max_age
        self.loads = cpu_loads(snapshot) if is_fresh else {}
        self.window = _window(snapshot)
        return "" if is_fresh else "the metrics of the nodes are too old"

    def node_loads(self, moves: Iterable[RecentMove]) -> list[float]:
        """Return the nodes' CPU loads, corrected for moves, and memory loads, as the watcher serves them now."""
        try:
            snapshot = self._source.metrics()
        except ClientError:
            return []
        loads = {name: averages(node) for name, node in snapshot.data.items()}
        cpu = {name: load for name, of in loads.items() if (load := of.get(MetricType.CPU)) is not None}
        others = [load for of in loads.values() for kind, load in of.items() if kind != MetricType.CPU]
        return [*corrected_loads(cpu, _window(snapshot), moves).values(), *others]


def _window(snapshot: WatcherMetrics) -> tuple[float, float]:
    return float(snapshot.window.start), float(snapshot.window.end)


def cpu_loads(snapshot: WatcherMetrics) -> dict[str, float]:
    """Return the average CPU load of each node that is measured and not suspect, percent."""
    loads = {}
    for name, node in snapshot.data.items():
        load = averages(node).get(MetricType.CPU)
        is_trusted = not node.metadata.get("suspect") and node.metadata.get("grade") != Grade.LAST_GOOD
        if load is not None and is_trusted:
            loads[name] = load
    return loads


def is_fragmented(look: ClusterLook) -> bool:
    """Return whether the free capacity of all nodes together would fit a pod for which the scheduler finds no node."""
    waiting = [pod for pod in look.pending if (facts := look.pods.get(pod.uid)) and facts.unschedulable_at is not None]
    free = [
        np.maximum(look.table.allocatable(name) - look.table.in_tree_requests(name), 0).sum(dtype=np.float64)
        for name in (CPU, MEMORY)
    ]
    return any(
        all(in_tree_requests(pod, name) <= room for name, room in zip((CPU, MEMORY), free, strict=True))
        for pod in waiting
    )
