"""Decision by decision: recorded inputs of a live run give the simulator's classes the same scores and the same node.

Each scored pod of the journal is scored again by the profile that the simulator replays: with the metrics that were
served, the levels that were read, and the pods that the extender knew on every node. The scores must be equal on every
candidate. The node with the highest sum of all plugins must be the one that kube-scheduler bound the pod to, or one of
several with the same sum. Other choices have a class:

    lag     another state explains the choice: pods in flight got other nodes than the extender expected, or
            kube-scheduler did not know yet, or knew already, that a pod had ended within a second
    retry   the pod was scored again later, since this attempt did not lead to a binding
    other   not explained
"""

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
from control_plane.world_player import JOB_SUFFIX
from live import CONFIGURATION
from placements import Placements

from runtime.kubernetes.workloads import Workload
from scoring import NodeTable, Pod, UseLevels
from scoring.arrays import Int64s
from scoring.plugins.congestion_cost import CongestionCost
from scoring.profiles.fallback import FallbackPolicy
from scoring.profiles.profile import Profile
from scoring.profiles.scores import WeightedPlugin
from trimaran.simulator.cluster import Cluster, node
from trimaran.simulator.policies.profiles import SPREAD_WEIGHT, extender_profile
from trimaran.simulator.policies.topology_spread import PodTopologySpread
from trimaran.simulator.windows import Windows
from trimaran.traces.trace import JOB, Trace
from watcher.model import Metric, NodeColumns, NodeMetrics, WatcherMetrics, Window
from watcher.workload_table import WorkloadTable

if TYPE_CHECKING:
    from runtime.kubernetes.objects import Owner

_LAG_SECONDS = 1.0
_NOWHERE: Mapping[str, str] = {}
_PROFILE = extender_profile(CONFIGURATION)
(_WEIGHT,) = (each.weight for each in _PROFILE.plugins if each.plugin.name == CongestionCost.name)
_FOREVER = 1e9  # seconds for which a table remembers pods that left


class Change(StrEnum):
    """Change of the recorded inputs, to show that the check can fail."""

    NONE = "none"
    NO_LEVELS = "no-levels"
    DOUBLE_WINDOWS = "double-windows"
    LATE_METRICS = "late-metrics"


class Choice(StrEnum):
    """Relation of the node that the pod got to the node with the highest sum."""

    SAME = "same"
    TIE = "tie"
    LAG = "lag"
    RETRY = "retry"
    OTHER = "other"


@dataclass
class DecisionReport:
    """Result of the check.

    Attributes:
        decisions: number of scored pods.
        equal_scores: number of them whose scores are equal on every candidate.
        equal_candidates: number of them whose candidates are the nodes that the simulator's filter leaves.
        choices: number of them by choice.
        most_points: largest difference of a score.
        most_percent: largest difference between a served metric and the simulator's window over the real placements.
        other: pods whose node is not explained.
    """

    decisions: int = 0
    equal_scores: int = 0
    equal_candidates: int = 0
    choices: Counter[Choice] = field(default_factory=Counter)
    most_points: int = 0
    most_percent: float = 0.0
    other: list[str] = field(default_factory=list)

    @property
    def passes(self) -> bool:
        """True if the scores are equal in all decisions, and the node in 99 percent of those that were bound."""
        bound = self.decisions - self.choices[Choice.RETRY]
        same = self.choices[Choice.SAME] + self.choices[Choice.TIE]
        return bool(self.decisions) and self.equal_scores == self.decisions and same >= 0.99 * bound

    def as_document(self) -> dict[str, Any]:
        """Return the report as a JSON object."""
        return {
            "decisions": self.decisions,
            "equal_scores": self.equal_scores,
            "equal_candidates": self.equal_candidates,
            **{choice.value: self.choices[choice] for choice in Choice},
            "most_points": self.most_points,
            "most_metric_percent": round(self.most_percent, 9),
            "passes": self.passes,
            "not_explained": self.other[:20],
        }


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
        self._world = Cluster(trace, trace.overcommit)
        self._numbers = {name: number for number, name in enumerate(trace.pods)}
        self._nodes = {name: node(name, *amounts) for name, amounts in trace.amounts().items()}
        self._metrics: dict[int, WatcherMetrics] = {}
        self._levels: dict[float, UseLevels] = {}
        self.most_percent = 0.0

    def unix_seconds(self, minute: float) -> float:
        """Return the Unix time of a minute of the trace."""
        return self._origin + 60 * minute / self._speed

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
        workloads = tuple(Workload(space, kind, _traced(kind, name)) for space, kind, name in document["workloads"])
        amounts = (np.array(document[name]) for name in ("use", "deviations", "level", "level_deviation"))
        none = np.zeros(len(workloads))
        table = WorkloadTable(document["timestamp"], workloads, *amounts, none, none, none, none)
        self._levels[document["timestamp"]] = UseLevels.of_workloads(table)

    def scores(
        self, decision: Mapping[str, Any], elsewhere: Mapping[str, str] = _NOWHERE, back: Collection[str] = ()
    ) -> tuple[Int64s, Int64s, NodeTable]:
        """Return the scores of CongestionCost and the sums of the other plugins for the candidates, and the table.

        Args:
            decision: the recorded decision.
            elsewhere: pods that count on another node than the extender knew; "" for none.
            back: pods that left, and count all the same.
        """
        names, table = decision["nodes"], NodeTable(self._nodes[name] for name in decision["nodes"])
        replicas: dict[Owner, Counter[str]] = defaultdict(Counter)
        for row, name, at, left_at in decision["left"]:
            table.add(self._pod(name), names[row], float(at))
            table.remove(self._pod(name), left_at=left_at, keep_seconds=_FOREVER)
        returned = ((row, name, at) for row, name, at, _ in decision["left"] if name in back)
        for row, name, at in (*decision["pods"], *returned):
            if where := elsewhere.get(name, names[row]):
                pod = self._pod(name)
                table.add(pod, where, float(at))
                if pod.owner is not None:
                    replicas[pod.owner][where] += 1
        levels = None if self._change is Change.NO_LEVELS else self._levels.get(decision["levels"])
        judgment = FallbackPolicy().judge(table, self._metrics[decision["metrics"]], decision["now"])
        plugins = (*_PROFILE.plugins, WeightedPlugin(PodTopologySpread(replicas), SPREAD_WEIGHT))
        rows = table.rows_of(decision["candidates"])
        scores = Profile(plugins).prepare(table, judgment, levels).score(self._pod(decision["pod"]), among=rows)
        ours = scores.plugins[CongestionCost.name].normalized
        return ours, scores.total - _WEIGHT * ours, table

    def feasible(self, decision: Mapping[str, Any], table: NodeTable) -> list[str]:
        """Return the names of the nodes that the simulator's filter leaves for a pod."""
        mask = table.feasible(self._pod(decision["pod"]))
        return [name for name, fits in zip(table.names, mask.tolist(), strict=True) if fits]

    def _simulated(self, minute: int, window_minutes: int, late: int) -> WatcherMetrics:
        return self._placements.metrics_at(max(minute - late, 0), Windows(window_minutes=window_minutes))

    def _pod(self, name: str) -> Pod:
        return self._world.pod(self._numbers[name])


def check_decisions(folder: Path, trace: Trace, change: Change = Change.NONE) -> DecisionReport:
    """Check the decisions of a live run.

    Args:
        folder: folder of the live run.
        trace: the played trace.
        change: change of the recorded inputs.
    """
    outcome = orjson.loads((folder / "outcome.json").read_bytes())
    placements = Placements.read(trace, folder / "placements.jsonl")
    inputs = RecordedInputs(trace, placements, outcome["origin"], outcome["speed"], change)
    node_of = {run.uid: trace.nodes[run.node] for run in placements.runs}
    runs = {
        trace.pods[run.pod]: (trace.nodes[run.node], inputs.unix_seconds(run.start), inputs.unix_seconds(run.end))
        for run in placements.runs
    }
    lines = [orjson.loads(line) for line in (folder / "journal.jsonl").read_bytes().splitlines()]
    last = {line["decision"]["uid"]: number for number, line in enumerate(lines) if "decision" in line}
    report = DecisionReport()
    for number, line in enumerate(lines):
        if metrics := line.get("metrics"):
            inputs.add_metrics(metrics)
        elif levels := line.get("levels"):
            inputs.add_levels(levels)
        elif decision := line.get("decision"):
            report.decisions += 1
            ours, others, table = inputs.scores(decision)
            difference = int(np.abs(ours - np.array(decision["scores"][CongestionCost.name])).max(initial=0))
            report.equal_scores += not difference
            report.most_points = max(report.most_points, difference)
            report.equal_candidates += set(inputs.feasible(decision, table)) == set(decision["candidates"])
            node_name = node_of.get(decision["uid"]) if last[decision["uid"]] == number else None
            choice = _choice(decision, node_name, _WEIGHT * ours + others)
            if choice is Choice.OTHER:
                states = _other_states(decision, runs)
                sums = (_WEIGHT * ours + inputs.scores(decision, *state)[1] for state in states)
                if any(_choice(decision, node_name, each) is not Choice.OTHER for each in sums):
                    choice = Choice.LAG
                else:
                    report.other.append(decision["pod"])
            report.choices[choice] += 1
    report.most_percent = inputs.most_percent
    return report


def _other_states(
    decision: Mapping[str, Any], runs: Mapping[str, tuple[str, float, float]]
) -> Iterator[tuple[Mapping[str, str], Collection[str]]]:
    """Yield the states that kube-scheduler may have known at a decision, if events of the last moment differ.

    Pods in flight are on the nodes that they really got. Pods that ended about now may be gone already, or be there
    still.

    Args:
        decision: the recorded decision.
        runs: node of each pod by name, and the Unix times of its start and end.
    """
    at = decision["at"]
    flying = [name for _, name, placed_at in decision["pods"] if float(placed_at) == math.inf]
    ending = [name for _, name, _ in decision["pods"] if name in runs and abs(runs[name][2] - at) < _LAG_SECONDS]
    left = [name for _, name, _, left_at in decision["left"] if abs(left_at - at) < _LAG_SECONDS]
    arrived = {name: runs[name][0] if name in runs else "" for name in flying}
    for landed in (arrived, {}):
        for gone in (ending, ()):
            for back in (left, ()):
                yield {**landed, **dict.fromkeys(gone, "")}, back


def _choice(decision: Mapping[str, Any], node_name: str | None, totals: Int64s) -> Choice:
    if node_name is None:
        return Choice.RETRY
    if node_name not in decision["candidates"]:
        return Choice.OTHER
    best = totals == totals.max()
    if not best[decision["candidates"].index(node_name)]:
        return Choice.OTHER
    return Choice.SAME if np.count_nonzero(best) == 1 else Choice.TIE


def _traced(kind: str, name: str) -> str:
    """Return the name in the trace of a workload that the watcher names."""
    return name.removesuffix(JOB_SUFFIX) if kind == JOB else name


def _distance(served: Mapping[str, NodeMetrics], simulated: Mapping[str, NodeMetrics]) -> float:
    """Return the largest difference between the values of two snapshots, percent of capacity."""
    pairs = (
        (each.value, other.value)
        for name, metrics in served.items()
        for each, other in zip(metrics.metrics, simulated[name].metrics, strict=True)
    )
    return max((abs(value - other) for value, other in pairs), default=0.0)
