"""Watcher of a replay: the metrics that it serves in each minute.

Without faults the watcher serves windows of past CPU and memory use until they expire. With faults every fetch passes
through the code of the real watcher: anomaly detection marks suspect values, missing values are replaced by the last
good ones, and expired values are not served. Nodes without metrics are left to :mod:`scoring.profiles.fallback`.
During the warm-up the detectors only record fetches, because a cluster that fills up from empty looks anomalous.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from trimaran.simulator.cluster import Cluster
from trimaran.simulator.faults import Fault, FaultKind
from trimaran.simulator.windows import Windows, replay_minute, unix_seconds
from trimaran.soft_taints.hysteresis import node_loads
from watcher.freshness import Freshness
from watcher.model import NodeMetrics, WatcherMetrics
from watcher.publishing.substitution import of_window
from watcher.quality.anomalies import AnomalyDetector
from watcher.settings import QualitySettings, WatchSettings


class SimulatedWatcher:
    """Watcher of a simulated cluster.

    Args:
        windows: windows of the metrics.
        cluster: the simulated cluster.
        faults: faults of the metrics.
    """

    def __init__(self, windows: Windows, cluster: Cluster, faults: tuple[Fault, ...] = ()) -> None:
        self.windows = windows
        self._cluster, self._faults = cluster, faults
        self._served: WatcherMetrics | None = None
        self._end = -1
        self._expiry_seconds = WatchSettings().expiry_seconds
        self._detector = AnomalyDetector(QualitySettings(), [windows.window], 60 * windows.interval_minutes)

    def snapshot(self) -> WatcherMetrics | None:
        """Return the current snapshot, or None if it has expired; the same object until the next fetch."""
        end = self.windows.window_end(self._cluster.minute)
        if self._faults:
            for fetched_end in self._fetches_until(end):
                self._publish(fetched_end)
        elif end != self._end:
            self._served, self._end = self._measured(end), end
        served = self._served
        fresh = served is not None and self._freshness(self._cluster.minute).is_fresh(served.window.end)
        return served if fresh else None

    def known_until(self) -> int:
        """Return the minute up to which use is known: the end of the newest fetched window, 0 before the first.

        The use of pods, as a metrics server with a history reports it, has the same delay and the same outages.
        """
        if not self._faults:
            return self.windows.window_end(self._cluster.minute)
        self.snapshot()
        return 0 if self._served is None else replay_minute(self._served.window.end)

    def loads(self) -> dict[str, float]:
        """Return each node's load as ``trimaran nodes`` computes it; empty without a fresh snapshot."""
        snapshot = self.snapshot()
        return {} if snapshot is None else node_loads(snapshot)

    def _fetches_until(self, end: int) -> Iterator[int]:
        """Yield the ends of the windows that were fetched since the last call, in order."""
        while self._end < end:
            self._end = 0 if self._end < 0 else self._end + self.windows.interval_minutes
            yield self._end

    def _publish(self, end: int) -> None:
        """Fetch the window that ends in a minute, and check and publish it as the real watcher does."""
        window, moment = self.windows.window, end + self.windows.delay_minutes
        fetched = self._fetched(end)
        if fetched is not None and end < self._cluster.trace.warm_up_minutes:
            self._detector.remember(fetched)
        elif fetched is not None:
            judged, _ = self._detector.judge(unix_seconds(moment), {window: fetched}, {})
            fetched = judged.get(window)
        self._served = of_window(fetched, self._served, self._freshness(moment))

    def _fetched(self, end: int) -> WatcherMetrics | None:
        """Return the metrics of a fetch with the faults of that minute, or None if the fetch fails."""
        faults = [fault for fault in self._faults if fault.start_minute <= end < fault.end_minute]
        if any(fault.kind is FaultKind.OUTAGE for fault in faults):
            return None
        measured = self._measured(end)
        nodes = dict(measured.data)
        for fault in faults:
            for name in [name for name in nodes if fault.applies_to(end, name)]:
                if fault.kind is FaultKind.MISSING:
                    del nodes[name]
                elif fault.kind is FaultKind.SCALED:
                    nodes[name] = _scaled(nodes[name], fault.factor)
                else:
                    at_start = self._measured(fault.start_minute).data
                    nodes[name] = at_start.get(name, nodes[name])
        return replace(measured, data=nodes) if nodes else None  # a fetch without any node counts as failed

    def _measured(self, end: int) -> WatcherMetrics:
        """Return the metrics of the window that ends in a minute, for the nodes that existed then."""
        cluster = self._cluster
        ledger = cluster.ledger
        rows = np.flatnonzero(ledger.since[cluster.numbers] < max(end, 1))
        names = [cluster.nodes.names[row] for row in rows.tolist()]
        return self.windows.snapshot(names, ledger, cluster.numbers[rows], end)

    def _freshness(self, minute: int) -> Freshness:
        return Freshness(unix_seconds(minute), self._expiry_seconds)


def _scaled(node: NodeMetrics, factor: float) -> NodeMetrics:
    metrics = tuple(replace(metric, value=min(factor * metric.value, 100.0)) for metric in node.metrics)
    return replace(node, metrics=metrics)
