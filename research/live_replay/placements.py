"""Placements of a live run: which pod of the trace runs on which node, from when to when, and what it uses there."""

import json
import threading
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

import numpy as np

from scoring.arrays import Float64s
from trimaran.simulator.cluster import Cluster, PodRun
from trimaran.simulator.ledger import UseLedger
from trimaran.simulator.replay import ReplayOutcome
from trimaran.simulator.windows import Windows
from trimaran.traces.trace import Trace
from watcher.model import WatcherMetrics


@dataclass(slots=True)
class LiveRun:
    """Time that a pod runs on one node.

    Attributes:
        uid: uid of the pod.
        pod: its number in the trace.
        node: number of its node.
        start: minute of the trace, with its fraction, in which the API server reported its binding.
        end: minute in which it reported that the pod is gone; infinity while it runs.
    """

    uid: str
    pod: int
    node: int
    start: float
    end: float = float("inf")


class Placements:
    """Runs of the pods of a trace, and the use of each node by minute. Threads may share it.

    Args:
        trace: the trace.
    """

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.runs: list[LiveRun] = []
        self._world = Cluster(trace, trace.overcommit)
        self._ledger = UseLedger(self._world.ledger.capacity, trace.minutes)
        self._numbers = {name: number for number, name in enumerate(trace.nodes)}
        self._running: dict[str, LiveRun] = {}
        self._names: dict[str, str] = {}  # of running pods, by uid
        self._minute = 0  # minutes before it are in the ledger
        self._ended: list[LiveRun] = []  # runs that ended in a minute that is not in the ledger yet
        self._lock = threading.Lock()

    def bound(self, uid: str, name: str, number: int, node_name: str, minute: float) -> None:
        """Add a pod that was bound."""
        with self._lock:
            self._names[uid] = name
            run = self._running[uid] = LiveRun(uid, number, self._numbers[node_name], minute)
            self.runs.append(run)

    def gone(self, uid: str, minute: float) -> None:
        """End a pod."""
        with self._lock:
            run = self._running.pop(uid)
            del self._names[uid]
            run.end = minute
            self._ended.append(run)

    def running(self) -> int:
        """Return the number of running pods."""
        return len(self._running)

    @classmethod
    def read(cls, trace: Trace, file: Path) -> Self:
        """Read the placements of an ended run."""
        placements, numbers = cls(trace), {name: number for number, name in enumerate(trace.pods)}
        for line in file.read_text().splitlines():
            fields = json.loads(line)
            run = LiveRun(
                fields["uid"], numbers[fields["pod"]], placements._numbers[fields["node"]], fields["start"],
                fields["end"],
            )  # fmt: skip
            placements.runs.append(run)
            placements._ended.append(run)
        return placements

    def write(self, file: Path) -> None:
        """Write the placements of an ended run, one JSON object a line."""
        with file.open("w") as lines:
            for run in self.runs:
                named = {**asdict(run), "pod": self.trace.pods[run.pod], "node": self.trace.nodes[run.node]}
                lines.write(json.dumps({**named, "end": min(run.end, float(self.trace.minutes))}) + "\n")

    def metrics_at(self, minute: int, windows: Windows) -> WatcherMetrics:
        """Return the nodes' metrics over the window that ends in a minute."""
        with self._lock:
            self._advance(minute)
            numbers = np.arange(len(self.trace.nodes))
            return windows.snapshot(self.trace.nodes, self._ledger, numbers, min(minute, self.trace.minutes))

    def pod_use(self, minute: float, minutes: int) -> list[tuple[str, float, float]]:
        """Return the name, mean cores and highest memory of each running pod in the last full minutes.

        A pod that has not run for a whole minute is left out.
        """
        until = min(int(minute), self.trace.minutes)
        with self._lock:
            running = [(self._names[uid], run) for uid, run in self._running.items()]
        result = []
        for name, run in running:
            used = self._use(run, max(int(run.start), until - minutes), until)
            if run.start <= until - 1 and used.shape[1]:
                result.append((name, float(used[0].mean()) / 1000, float(used[1].max())))
        return result

    def outcome(self, policy: str) -> ReplayOutcome:
        """Return the outcome as that of a replay in which the pods ran in the same minutes on the same nodes."""
        cluster, trace = Cluster(self.trace, self.trace.overcommit), self.trace
        events: dict[int, tuple[list[LiveRun], list[LiveRun]]] = {}
        for run in self.runs:
            if int(run.start) < min(int(min(run.end, trace.minutes)), trace.minutes):
                events.setdefault(int(run.start), ([], []))[1].append(run)
                if run.end < trace.minutes:
                    events.setdefault(int(run.end), ([], []))[0].append(run)
        for minute in sorted(events):
            cluster.minute = minute
            ended, began = events[minute]
            for run in ended:
                cluster.end(run.pod)
            for run in began:
                cluster.place(run.pod, cluster.pod(run.pod), run.node)
        never = sorted(set(range(len(trace.pods))) - {run.pod for run in self.runs})
        waited = np.zeros(trace.minutes, np.bool_)
        first: dict[int, float] = {}
        for run in self.runs:
            first[run.pod] = min(run.start, first.get(run.pod, run.start))
        for number in range(len(trace.pods)):
            begin = int(trace.arrival_minute[number])
            waited[begin : int(min(first.get(number, trace.end_minute[number]), trace.minutes))] = True
        moves = len(self.runs) - len(first)  # a pod that was evicted runs again
        return ReplayOutcome(cluster, policy, len(self.runs), tuple(never), moves, 0, waited)

    def _advance(self, minute: int) -> None:
        """Add the use of the full minutes before a minute to the ledger. Needs the lock."""
        for each in range(self._minute, min(minute, self.trace.minutes)):
            for run in (*self._running.values(), *self._ended):
                share = min(run.end, each + 1) - max(run.start, each)
                if share > 0:
                    self._ledger.add(run.node, each, share * self._use(run, each, each + 1))
            self._minute = each + 1
        self._ended = [run for run in self._ended if run.end > self._minute]

    def _use(self, run: LiveRun, start: int, end: int) -> Float64s:
        """Return a run's use in some minutes, millicores and bytes, shape (2, minutes)."""
        origin = self._world.use_origin(PodRun(run.pod, run.node, int(run.start), 0, (0, 0)))
        return self.trace.usage(run.pod, max(start - origin, 0), max(end - origin, 0))
