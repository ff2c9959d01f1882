"""Journal of the extender's decisions: everything that its scores are computed from, and the scores.

Each line is a JSON object with one key:

    metrics   a snapshot when it is first used: window, and for each node its average and deviation of CPU and memory
    levels    the learned use of workloads when it is first used
    decision  a scored pod: the pods on every node at that moment, those that left, the candidates, and their scores
"""

import time
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import orjson

from scoring import NodeTable, Pod, Profile, UseLevels
from trimaran.extender.answer import ScoredCandidates
from trimaran.extender.placement_predictor import PlacementPredictor
from watcher.model import NodeColumns, WatcherMetrics
from watcher.workload_table import WorkloadTable


@dataclass
class Journal:
    """Journal in a file. Its methods run under the lock of the extender's cluster view, one at a time.

    Attributes:
        file: the file.
    """

    file: Path
    _output: BinaryIO | None = None
    _metrics: dict[int, tuple[Any, int]] = field(default_factory=dict)
    _levels: dict[int, tuple[UseLevels, WorkloadTable]] = field(default_factory=dict)
    _written: set[float] = field(default_factory=set)
    _levels_of: dict[int, tuple[Any, UseLevels | None]] = field(default_factory=dict)

    def attach(self) -> None:
        """Record all decisions of this process, and of those that it forks."""
        predict, prepare, of_workloads = PlacementPredictor.predict, Profile.prepare, UseLevels.of_workloads

        def journaled_predict(
            predictor: PlacementPredictor, pod: Pod, in_tree: Any, answer: ScoredCandidates, table: NodeTable
        ) -> str:
            node_name = predict(predictor, pod, in_tree, answer, table)
            self._add(pod, answer, table, node_name)
            return node_name

        def remembered_prepare(profile: Profile, nodes: NodeTable, metrics: Any, levels: Any = None) -> Any:
            self._levels_of[id(metrics)] = metrics, levels
            for stale in list(self._levels_of)[:-8]:
                del self._levels_of[stale]
            return prepare(profile, nodes, metrics, levels)

        def remembered_of_workloads(table: WorkloadTable, previous: UseLevels | None = None) -> UseLevels:
            levels = of_workloads(table, previous)
            self._levels[id(levels)] = levels, table
            for stale in list(self._levels)[:-4]:
                del self._levels[stale]
            return levels

        PlacementPredictor.predict = journaled_predict  # type: ignore[method-assign]
        Profile.prepare = remembered_prepare  # type: ignore[method-assign]
        UseLevels.of_workloads = staticmethod(remembered_of_workloads)  # type: ignore[method-assign]

    def _add(self, pod: Pod, answer: ScoredCandidates, table: NodeTable, node_name: str) -> None:
        details = answer.details
        if details is None or details.snapshot is None or details.scores.judgment is None:
            return
        evidence = details.scores.judgment.evidence
        levels = self._levels_of[id(details.scores.judgment)][1]
        ever = np.full(len(table), -np.inf)
        scores = {name: part.normalized.tolist() for name, part in details.scores.plugins.items()}
        decision = {
            "at": time.time(),
            "pod": pod.name,
            "uid": pod.uid,
            "metrics": self._number(details.snapshot),
            "levels": None if levels is None else self._time(levels),
            "now": evidence.now,
            "nodes": table.names,
            "pods": [[row, each.pod.name, _time(each.placed_at)] for row, each in table.placed_pods()],
            "left": [[row, e.pod.name, _time(e.placed_at), e.left_at] for row, e in table.left_since(ever)],
            "candidates": [table.names[row] for row in details.scores.rows.tolist()]
            if details.scores.rows is not None
            else table.names,
            "scores": scores,
            "points": details.points.tolist(),
            "predicted": node_name,
        }
        self._write({"decision": decision})

    def _number(self, snapshot: WatcherMetrics) -> int:
        known = self._metrics.get(id(snapshot.data))
        if known is not None:
            return known[1]
        number = len(self._metrics)
        self._metrics[id(snapshot.data)] = snapshot.data, number
        self._write({"metrics": metrics_document(number, snapshot)})
        return number

    def _time(self, levels: UseLevels) -> float:
        table = self._levels[id(levels)][1]
        if table.timestamp not in self._written:
            self._written.add(table.timestamp)
            self._write(
                {
                    "levels": {
                        "timestamp": table.timestamp,
                        "workloads": [list(each) for each in table.workloads],
                        **{
                            name: getattr(table, name).tolist()
                            for name in ("use", "deviations", "level", "level_deviation")
                        },
                    }
                }
            )
        return table.timestamp

    def _write(self, document: Any) -> None:
        if self._output is None:
            self._output = self.file.open("ab", buffering=0)
        self._output.write(orjson.dumps(document) + b"\n")


def metrics_document(number: int, snapshot: WatcherMetrics) -> dict[str, Any]:
    """Return a snapshot as a JSON object."""
    columns = NodeColumns.of(snapshot.data)
    window = snapshot.window
    return {
        "number": number,
        "timestamp": snapshot.timestamp,
        "window": [window.duration, window.start, window.end],
        "metadata": columns.metadata,
        "nodes": {name: [astuple(each) for each in node.metrics] for name, node in snapshot.data.items()},
    }


def _time(seconds: float) -> float | str:
    """Return a time for JSON, which has no infinity."""
    return seconds if np.isfinite(seconds) else str(seconds)
