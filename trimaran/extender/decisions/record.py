"""Record of decisions: for each scored pod its scores, the node that it was bound to, and the regret.

The regret estimates the load of the chosen node minus the load that our best node would have with the pod. A prioritize
request only appends its scores to a queue. Some tenths of a second later the record's thread opens a decision for the
request. The decision is closed when its pod is bound or after a timeout: the explanations of the ten best nodes and the
chosen node are then stored in packed form, and rendered on request. The record is bounded in number and bytes; the
oldest decisions are evicted first, closed ones before open ones. A restart loses the record.

A decision is identified by the namespace, name and uid of its pod. All three come from the request, which may have the
uid of another pod: a user who may read about one pod must not get the decision about the other pod.
"""

import logging
import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, Protocol

from client import ClientError, Collector
from runtime.threads import TurnGuard, start_thread
from scoring import NodeTable, Pod
from trimaran.cluster.view import ClusterView
from trimaran.extender.answer import PrioritizeOutcome, ScoredCandidates
from trimaran.extender.decisions import manifest
from trimaran.extender.decisions.decision import Decision, OpenDecision
from trimaran.extender.decisions.regret import MeasuredWindow, PlacementRegret, regret_table
from trimaran.extender.wire import ExtenderArgs

MEGABYTE = 1 << 20
PodKey = tuple[str, str]
"""Identity of a pod in the record: ``namespace/name``, and its uid."""
_MAX_QUEUED = 5_000  # scored requests for which no decision is opened yet
_HERD_PODS = 100
_BATCH = 4  # decisions closed between two pauses
_PAUSE_SECONDS = 0.001
_log = logging.getLogger(__name__)


class DecisionCounters(Protocol):
    """Counters of answers and decisions, which the extender's telemetry exports."""

    def count_answer(self, answer: ScoredCandidates, age_seconds: float | None) -> None:
        """Observe the times of a request, and the age of its metrics; None without metrics."""

    def count_placement(self, decision: Decision, herd_ratio: float) -> None:
        """Count a bound pod, and set the largest share of the last 100 bound pods that went to one node."""

    def count_regret(self, regret: PlacementRegret) -> None:
        """Add the regret of a decision to the extender's metrics."""


@dataclass(frozen=True, slots=True)
class RecordLimits:
    """Limits of the record.

    Attributes:
        decisions: largest number of decisions.
        max_bytes: largest memory of all decisions; open decisions, whose pods are not bound, may take a quarter of it.
        open_seconds: time after which the decision about an unbound pod is closed.
        cycle_seconds: time between two cycles of the record's thread.
    """

    decisions: int = 10_000
    max_bytes: int = 64 * MEGABYTE
    open_seconds: float = 60.0
    cycle_seconds: float = 0.5


class DecisionRecord:
    """Bounded record of decisions. Request threads call :meth:`add`, the record's thread calls :meth:`run_cycle`.

    Args:
        view: the live cluster.
        metrics: source of the metrics.
        telemetry: counters of decisions.
        limits: limits of the record.
        hot_percent: load in percent from which a node counts as hot in the regret table (see :meth:`regrets`).
        clock: Unix time.
        why_by_requests: returns the reason why pods are scored by their requests instead of learned use.
    """

    def __init__(
        self,
        view: ClusterView,
        metrics: Collector,
        telemetry: DecisionCounters,
        limits: RecordLimits | None = None,
        hot_percent: float = 80.0,
        clock: Callable[[], float] = time.time,
        why_by_requests: Callable[[], str] = lambda: "no use is learned",
    ) -> None:
        self._why_by_requests = why_by_requests
        self._view, self._metrics, self._telemetry = view, metrics, telemetry
        self._limits = limits or RecordLimits()
        self._hot_percent = hot_percent
        self._clock = clock
        self._queue: deque[tuple[ExtenderArgs, ScoredCandidates, str, bool, float]] = deque(maxlen=_MAX_QUEUED)
        self._open: OrderedDict[PodKey, OpenDecision] = OrderedDict()  # oldest first
        self._closed: OrderedDict[PodKey, Decision] = OrderedDict()  # oldest first
        self._last_key: dict[str, PodKey] = {}  # by pod, namespace/name
        self._size = self._open_size = 0
        self._unmeasured: deque[Decision] = deque(maxlen=self._limits.decisions)
        self._regrets: deque[PlacementRegret] = deque(maxlen=self._limits.decisions)
        self._left_out = 0
        self._last_nodes: deque[str] = deque(maxlen=_HERD_PODS)
        self._lock = threading.Lock()  # guards all that explain, recent and regrets read
        self._queue_lock = threading.Lock()  # held while the queue is drained
        self._stop = threading.Event()
        self._turns = TurnGuard(_log, "decisions could not be recorded", "decisions are recorded again")
        self._thread: threading.Thread | None = None

    def add(self, args: ExtenderArgs, answer: ScoredCandidates, best: str, active: bool) -> None:
        """Queue the scores of a request; see :data:`trimaran.extender.prioritizer.RecordAnswer`."""
        self._queue.append((args, answer, best, active, self._clock()))

    def start(self) -> None:
        """Start the thread."""
        self._thread = start_thread(self._run, "decisions")

    def close(self) -> None:
        """Stop the thread."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(5)

    def run_cycle(self) -> None:
        """Open decisions for queued scores, close the decisions about bound pods, and measure regrets."""
        self._drain_queue()
        self._close_bound()
        self._measure_regrets()

    def explain(self, pod: str) -> dict[str, Any] | None:
        """Return the last decision about the pod ``namespace/name`` as a JSON object; None if not recorded."""
        self._drain_queue()  # the pod may have been scored just now
        with self._lock:
            key = self._last_key.get(pod)
            if key is None:
                return None
            opened = self._open.get(key)
            return (opened.decision if opened else self._closed[key]).as_document()

    def recent(self, limit: int) -> list[dict[str, Any]]:
        """Return summaries of the last decisions: first those about pods without a node, newest first in each group."""
        self._drain_queue()
        with self._lock:
            open_decisions = [each.decision for each in reversed(self._open.values())]
            return [each.summary() for each in islice(chain(open_decisions, reversed(self._closed.values())), limit)]

    def regrets(self) -> dict[str, Any]:
        """Return the regret table as a JSON object, with the number of decisions that it does not count.

        The regret table has a row for each scheduler and mode: loads of the chosen nodes and of our best nodes.
        ``waiting`` counts the decisions that are not measured yet, and ``left_out`` those that cannot be measured: the
        pod ended before its window did, or a node has no metrics.
        """
        with self._lock:
            regrets, waiting, left_out = tuple(self._regrets), len(self._unmeasured), self._left_out
        rows = regret_table(regrets, self._hot_percent)
        counts = {"waiting": waiting, "left_out": left_out}
        return {"estimate": True, "hot_percent": self._hot_percent, **counts, "schedulers": rows}

    @property
    def size(self) -> int:
        """Approximate memory of the decisions in bytes."""
        return self._size + self._open_size

    def __len__(self) -> int:
        return len(self._closed) + len(self._open)

    def _run(self) -> None:
        while not self._stop.wait(self._limits.cycle_seconds):
            self._turns.run(self.run_cycle, None)

    def _drain_queue(self) -> None:
        with self._queue_lock:
            in_flight, why = self._view.in_flight, self._why_by_requests()
            while self._queue:
                args, answer, best, active, at = self._queue.popleft()
                snapshot = answer.details.snapshot if answer.details else None
                self._telemetry.count_answer(answer, None if snapshot is None else max(0.0, at - snapshot.timestamp))
                opened = OpenDecision(args, answer, best, active, at, in_flight, why)
                key = opened.decision.pod, args.pod.uid
                with self._lock:
                    # An earlier decision about the pod did not lead to a binding: the new one replaces it.
                    self._forget(key)
                    self._open[key] = opened
                    self._open_size += opened.size
                    self._last_key[opened.decision.pod] = key
                    self._evict()

    def _close_bound(self) -> None:
        with self._lock:
            open_decisions = dict(self._open)
        if not open_decisions:
            return
        with self._view.reading() as cluster:
            placements = {key: cluster.find(opened.pod) for key, opened in open_decisions.items()}
        now = self._clock()
        for number, (key, placed) in enumerate(placements.items()):
            if self._thread is not None and number % _BATCH == _BATCH - 1:
                self._stop.wait(_PAUSE_SECONDS)  # packing many explanations at once would delay answers
            opened = open_decisions[key]
            if placed is not None and placed[1].placed_at != float("inf") and _is_same(placed[1].pod, opened.pod):
                at = placed[1].placed_at
                self._close(key, opened, opened.close(placed[0], at if at > 0 else now))
            elif now - opened.decision.at > self._limits.open_seconds or self._open_size * 4 > self._limits.max_bytes:
                self._close(key, opened, opened.close())

    def _close(self, key: PodKey, opened: OpenDecision, decision: Decision) -> None:
        with self._lock:
            if self._open.get(key) is not opened:  # a newer decision about the pod has replaced it, or it was evicted
                return
            self._open_size -= self._open.pop(key).size
            self._closed[key] = decision
            self._size += decision.size
            self._evict()
        if decision.chosen is None:
            return
        self._last_nodes.append(decision.chosen.node)
        herd = max(Counter(self._last_nodes).values()) / len(self._last_nodes)
        self._telemetry.count_placement(decision, herd)
        if decision.best and decision.outcome is PrioritizeOutcome.SCORED:
            with self._lock:
                self._unmeasured.append(decision)

    def _evict(self) -> None:
        """Evict the oldest decisions over the limits, closed ones before open ones. Needs the lock."""
        while self._closed and self._size > self._limits.max_bytes * 3 // 4:
            self._forget(next(iter(self._closed)))
        while len(self) > self._limits.decisions:
            self._forget(next(chain(self._closed, self._open)))

    def _forget(self, key: PodKey) -> None:
        """Remove the decision about a pod, if there is one. Needs the lock."""
        opened, decision = self._open.pop(key, None), self._closed.pop(key, None)
        if opened is not None:
            self._open_size -= opened.size
        if decision is not None:
            self._size -= decision.size
            decision.drop_details()  # the queue of unmeasured decisions may still refer to it
        if self._last_key.get(key[0]) == key:
            del self._last_key[key[0]]

    def _measure_regrets(self) -> None:
        """Measure the regret of decisions whose pod was bound before the window of the newest metrics began."""
        snapshot = None
        with suppress(ClientError):
            snapshot = self._metrics.snapshot() if self._unmeasured else None
        if snapshot is None:
            return
        start = snapshot.window.start
        ripe: list[Decision] = []
        waiting = deque[Decision](maxlen=self._limits.decisions)
        for decision in self._unmeasured:
            (ripe if decision.chosen and decision.chosen.bound_at <= start else waiting).append(decision)
        if not ripe:
            return
        with self._lock:  # before measuring: if a decision raises an exception, later ones must still be measured
            self._unmeasured = waiting
        with self._view.reading() as cluster:
            nodes = cluster.copy()
        window, regrets = MeasuredWindow(snapshot, nodes), []
        for number, decision in enumerate(ripe):
            if self._thread is not None and number % _BATCH == _BATCH - 1:
                self._stop.wait(_PAUSE_SECONDS)
            regrets.append(decision.measure(window))
        with self._lock:
            for decision, regret in zip(ripe, regrets, strict=True):
                decision.placement_regret = regret
                if regret is None:
                    self._left_out += 1
                else:
                    self._regrets.append(regret)
                    self._telemetry.count_regret(regret)


def _is_same(placed: Pod, pod: Pod) -> bool:
    """Return whether two pods with the same uid have the same name and namespace, too."""
    return (placed.namespace, placed.name) == (pod.namespace, pod.name)


def explain_undecided(nodes: NodeTable, pod: str) -> dict[str, Any] | None:
    """Return a JSON object with possible reasons why a running pod has no decision; None if the pod is not on a node.

    Args:
        nodes: a table that no other thread changes.
        pod: ``namespace/name``.
    """
    namespace, _, name = pod.partition("/")
    for row, placed in nodes.placed_pods():
        if placed.pod.name == name and placed.pod.namespace == namespace:
            return {
                "pod": pod,
                "uid": placed.pod.uid,
                "scheduler": placed.pod.scheduler_name,
                "outcome": "not_asked",
                "chosen": {"node": nodes.names[row]},
                "why": list(_reasons(placed.pod)),
                "manifest": manifest.pod_manifest(placed.pod),
            }
    return None


def _reasons(pod: Pod) -> list[str]:
    if pod.nominated_node_name:
        return [f"preemption chose {pod.nominated_node_name}, and kube-scheduler tries it before it scores other nodes"]
    return [
        "only one node was feasible, so there was no choice",
        "kube-scheduler reused the scores of the previous, equal pod (batching)",
        "the pod was placed before this process started, or its decision was evicted from the record",
        "the pod was not scheduled: it is a DaemonSet's pod, a static pod, or has spec.nodeName",
        "the pod's scheduler has no extender, or could not reach this extender",
    ]
