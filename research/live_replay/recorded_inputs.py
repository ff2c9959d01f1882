"""Recorded inputs of a live run as objects of the simulator: the cluster at each decision, the metrics, the levels."""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import Any

import numpy as np
from control_plane.world_player import JOB_SUFFIX, replica_set_name
from live import CONFIGURATION
from placements import Placements

from runtime.kubernetes.objects import Pod
from runtime.kubernetes.workloads import Owner, Workload
from scoring import NodeTable, UseLevels
from scoring.arrays import Int64s
from scoring.plugins.congestion_cost import CongestionCost
from scoring.profiles.fallback import FallbackPolicy
from scoring.profiles.profile import Profile
from scoring.profiles.scores import WeightedPlugin
from trimaran.simulator.cluster import Cluster, node
from trimaran.simulator.policies.profiles import SPREAD_WEIGHT, extender_profile
from trimaran.simulator.policies.topology_spread import OwnerSpread
from trimaran.simulator.windows import Windows
from trimaran.traces.trace import JOB, Trace
from watcher.model import Metric, NodeColumns, NodeMetrics, WatcherMetrics, Window
from watcher.workload_table import WorkloadTable

_PROFILE = extender_profile(CONFIGURATION)
(OUR_WEIGHT,) = (each.weight for each in _PROFILE.plugins if each.plugin.name == CongestionCost.name)
_FOREVER = 1e9  # seconds for which a table remembers pods that left


class Change(StrEnum):
    """Change of the recorded inputs, or of what the replay's learner knows, to show that the check can fail."""

    NONE = "none"
    NO_LEVELS = "no-levels"
    DOUBLE_WINDOWS = "double-windows"
    LATE_METRICS = "late-metrics"
    NO_HISTORY = "no-history"


class RecordedCluster:
    """Nodes and pods as the extender knew them, from one decision to the next.

    Args:
        trace: the played trace.
        pods: pods of the trace, as the simulator makes them.
    """

    def __init__(self, trace: Trace, pods: Mapping[str, Pod]) -> None:
        self.table = NodeTable(node(name, *amounts) for name, amounts in trace.amounts().items())
        self.replicas: dict[Owner, Counter[str]] = defaultdict(Counter)
        self._pods = pods
        self._placed: dict[str, tuple[str, float]] = {}
        self._left: set[tuple[str, float]] = set()

    def show(self, decision: Mapping[str, Any], elsewhere: Mapping[str, str], back: Collection[str]) -> None:
        """Make the table equal to that of a decision; further arguments as in :meth:`RecordedInputs.scores`."""
        names = decision["nodes"]
        if set(names) != set(self.table.names):
            raise ValueError(f"{decision['pod']}: the extender did not know all nodes")
        returned = [[row, name, at] for row, name, at, _ in decision["left"] if name in back]
        target = {
            name: (elsewhere.get(name, names[row]), float(at)) for row, name, at in (*decision["pods"], *returned)
        }
        for name in [name for name, where in self._placed.items() if target.get(name) != where]:
            self._remove(name)
        for row, name, at, left_at in decision["left"]:
            if (name, left_at) not in self._left and name not in self._placed:
                self._left.add((name, left_at))
                self.table.add(self._pods[name], names[row], float(at))
                self.table.remove(self._pods[name], left_at=left_at, keep_seconds=_FOREVER)
        for name, (where, at) in target.items():
            if where and name not in self._placed:
                self._add(name, where, at)

    def _add(self, name: str, where: str, at: float) -> None:
        pod = self._pods[name]
        self.table.add(pod, where, at)
        self._placed[name] = where, at
        if pod.owner is not None:
            self.replicas[pod.owner][where] += 1

    def _remove(self, name: str) -> None:
        pod, (where, _) = self._pods[name], self._placed.pop(name)
        self.table.remove(pod)
        if pod.owner is not None:
            self.replicas[pod.owner][where] -= 1
            if not self.replicas[pod.owner][where]:
                del self.replicas[pod.owner][where]


class RecordedInputs:
    """Recorded inputs of decisions as the simulator's objects.

    Args:
        trace: the played trace.
        placements: the real placements.
        origin: Unix time of minute 0.
        speed: minutes of the trace in a minute of life.
        change: change of the inputs.
    """

    def __init__(self, trace: Trace, placements: Placements, origin: float, speed: int, change: Change) -> None:
        self._trace, self._placements, self._origin, self._speed = trace, placements, origin, speed
        self._change = change
        world = Cluster(trace, trace.overcommit)
        self._pods = {name: world.pod(number) for number, name in enumerate(trace.pods)}
        self._traced = {replica_set_name(*names): names[1] for names in zip(trace.owners, trace.pods, strict=True)}
        self._cluster = RecordedCluster(trace, self._pods)
        self._metrics: dict[int, WatcherMetrics] = {}
        self._levels: dict[float, UseLevels] = {}
        self.most_percent = 0.0

    def unix_seconds(self, minute: float) -> float:
        """Return the Unix time of a minute of the trace."""
        return self._origin + 60 * minute / self._speed

    def traced(self, decision: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a decision with the trace's names of pods: that of a replica is its ReplicaSet's with a suffix."""

        def traced(name: str) -> str:
            return self._traced.get(name.rpartition("-")[0], name)

        def named(rows: list[list[Any]]) -> list[list[Any]]:
            return [[row, traced(name), *times] for row, name, *times in rows]

        pods, left = named(decision["pods"]), named(decision["left"])
        return {**decision, "pod": traced(decision["pod"]), "pods": pods, "left": left}

    def add_metrics(self, document: Mapping[str, Any]) -> None:
        """Take a snapshot, and compare it with the simulator's windows over the real placements."""
        window = Window(*document["window"])
        data = {
            name: NodeMetrics(tuple(Metric(*each) for each in metrics), metadata=document["metadata"].get(name, {}))
            for name, metrics in document["nodes"].items()
        }
        minutes = round((window.end - window.start) * self._speed / 60)
        # The use was read within the second after the window's end.
        first, last = (int((at - self._origin) * self._speed / 60) for at in (window.end, window.end + 1))
        doubled = 2 * minutes if self._change is Change.DOUBLE_WINDOWS else minutes
        late = 60 if self._change is Change.LATE_METRICS else 0
        candidates = [self._simulated(minute, doubled, late) for minute in range(first, last + 1)]
        distances = [_distance(data, each.data) for each in candidates]
        nearest = min(range(len(candidates)), key=distances.__getitem__)
        self.most_percent = max(self.most_percent, distances[nearest])
        if self._change in {Change.DOUBLE_WINDOWS, Change.LATE_METRICS}:
            data = dict(candidates[nearest].data)
        self._metrics[document["number"]] = WatcherMetrics(
            document["timestamp"], window, "LiveReplay", NodeColumns.of(data)
        )

    def add_levels(self, document: Mapping[str, Any]) -> None:
        """Take the learned use of workloads."""
        workloads = tuple(self._workload(*each) for each in document["workloads"])
        amounts = (np.array(document[name]) for name in ("use", "deviations", "level", "level_deviation"))
        none = np.zeros(len(workloads))
        table = WorkloadTable(document["timestamp"], workloads, *amounts, none, none, none, none)
        self._levels[document["timestamp"]] = UseLevels.of_workloads(table)

    def scores(
        self, decision: Mapping[str, Any], elsewhere: Mapping[str, str] | None = None, back: Collection[str] = ()
    ) -> tuple[Int64s, Int64s, NodeTable]:
        """Return the scores of CongestionCost and the sums of the other plugins for the candidates, and the table.

        Args:
            decision: the recorded decision.
            elsewhere: pods that count on another node than the extender knew; "" for none.
            back: pods that left, and count all the same.
        """
        known = self._cluster if elsewhere is None and not back else RecordedCluster(self._trace, self._pods)
        known.show(decision, elsewhere or {}, back)
        levels = None if self._change is Change.NO_LEVELS else self._levels.get(decision["levels"])
        judgment = FallbackPolicy().judge(known.table, self._metrics[decision["metrics"]], decision["now"])
        spread = WeightedPlugin(OwnerSpread(known.replicas), SPREAD_WEIGHT)
        prepared = Profile((*_PROFILE.plugins, spread)).prepare(known.table, judgment, levels)
        rows = known.table.rows_of(decision["candidates"])
        scores = prepared.score(self._pods[decision["pod"]], among=rows)
        ours = scores.plugins[CongestionCost.name].normalized
        return ours, scores.total - OUR_WEIGHT * ours, known.table

    def feasible(self, decision: Mapping[str, Any], table: NodeTable) -> list[str]:
        """Return the names of the nodes that the simulator's filter leaves for a pod."""
        mask = table.feasible(self._pods[decision["pod"]])
        return [name for name, fits in zip(table.names, mask.tolist(), strict=True) if fits]

    def _workload(self, namespace: str, kind: str, name: str) -> Workload:
        """Return the trace's workload that the watcher has named."""
        return Workload(namespace, kind, name.removesuffix(JOB_SUFFIX) if kind == JOB else name)

    def _simulated(self, minute: int, window_minutes: int, late: int) -> WatcherMetrics:
        return self._placements.metrics_at(max(minute - late, 0), Windows(window_minutes=window_minutes))


def _distance(served: Mapping[str, NodeMetrics], simulated: Mapping[str, NodeMetrics]) -> float:
    """Return the largest difference between the values of two snapshots, percent of capacity."""
    pairs = (
        (each.value, other.value)
        for name, metrics in served.items()
        for each, other in zip(metrics.metrics, simulated[name].metrics, strict=True)
    )
    return max((abs(value - other) for value, other in pairs), default=0.0)
