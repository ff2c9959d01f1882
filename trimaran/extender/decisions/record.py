"""Records decisions behind the answers: a thread takes note of them, looks where pods went, and what came of it.

An answer costs one append. Everything else happens some tenths of a second later: a decision is open until its pod is
seen bound, or for so long; then what explains its best ten nodes and the chosen one is kept, packed, and made into
words for whoever asks. All that is kept is bounded, in number and in bytes; the oldest goes first. Nothing survives a
restart.
"""

import logging
import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, Protocol

from client import ClientError
from scoring import NodeTable, Pod
from trimaran.extender.answer import Answer, Outcome
from trimaran.extender.decisions import manifest
from trimaran.extender.decisions.decision import Decision, OpenDecision
from trimaran.extender.decisions.regret import Worth, table
from trimaran.extender.prioritizer import Metrics
from trimaran.extender.wire import ExtenderArgs

MEGABYTE = 1 << 20
_MOST_WAITING = 5_000  # answers that nobody has taken note of yet
_HERD = 100
_AT_ONCE = 4
_BREATH_SECONDS = 0.001
_log = logging.getLogger(__name__)


class View(Protocol):
    """What is asked of the live cluster: :class:`trimaran.cluster.view.ClusterView` has it."""

    @property
    def in_flight(self) -> int:
        """How many pods are assumed on nodes."""
        ...

    def reading(self) -> AbstractContextManager[NodeTable]:
        """Yield the table, which does not change until the block ends."""
        ...


class Telemetry(Protocol):
    """Where decisions are counted: :class:`trimaran.extender.telemetry.Telemetry` has it."""

    def noted(self, answer: Answer, age_seconds: float | None) -> None:
        """Count an answer's stages, and how old the metrics were."""
        ...

    def settled(self, decision: Decision, herd_ratio: float) -> None:
        """Count where a pod went."""
        ...

    def measured(self, worth: Worth) -> None:
        """Count what came of it."""
        ...


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much is kept.

    Attributes:
        decisions: how many.
        max_bytes: for all of them, and as much as a quarter of it for those that are open.
        open_seconds: how long a pod is looked for.
        turn_seconds: between two looks.
    """

    decisions: int = 10_000
    max_bytes: int = 64 * MEGABYTE
    open_seconds: float = 60.0
    turn_seconds: float = 0.5


class Record:
    """The decisions. :meth:`note` is called by those who answer; :meth:`turn` by the record's thread.

    Args:
        view: the live cluster.
        metrics: what nodes use.
        telemetry: where decisions are counted.
        bounds: how much is kept.
        hot_percent: a node at this load, or above, is hot in the table of regrets.
        clock: unix time.
    """

    def __init__(
        self,
        view: View,
        metrics: Metrics,
        telemetry: Telemetry,
        bounds: Bounds | None = None,
        hot_percent: float = 80.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._view, self._metrics, self._telemetry = view, metrics, telemetry
        self._bounds = bounds or Bounds()
        self._hot_percent = hot_percent
        self._clock = clock
        self._answered: deque[tuple[ExtenderArgs, Answer, str, bool, float]] = deque(maxlen=_MOST_WAITING)
        self._open: OrderedDict[str, OpenDecision] = OrderedDict()
        self._kept: OrderedDict[str, Decision] = OrderedDict()  # by uid, oldest first
        self._newest: dict[str, str] = {}  # pod to uid
        self._size = self._open_size = 0
        self._unmeasured: deque[Decision] = deque(maxlen=self._bounds.decisions)
        self._worths: deque[Worth] = deque(maxlen=self._bounds.decisions)
        self._last_nodes: deque[str] = deque(maxlen=_HERD)
        self._lock = threading.Lock()  # for what is read by :meth:`explain`, :meth:`recent` and :meth:`regrets`
        self._taking = threading.Lock()  # for what was answered and is not open yet
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def note(self, asked: ExtenderArgs, answer: Answer, best: str, acted: bool) -> None:
        """Take note of an answer; see :data:`trimaran.extender.prioritizer.Record`."""
        self._answered.append((asked, answer, best, acted, self._clock()))

    def start(self) -> None:
        """Begin in the background."""
        self._thread = threading.Thread(target=self._run, name="decisions", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(5)

    def turn(self) -> None:
        """Take in what was answered, look where pods went and what came of it."""
        self._take_in()
        self._settle()
        self._measure()

    def explain(self, pod: str) -> dict[str, Any] | None:
        """Return the last decision for a pod, ``namespace/name``; None when there is none."""
        self._take_in()  # it may be about what was answered just now
        with self._lock:
            uid = self._newest.get(pod, "")
            if uid in self._open:
                return self._open[uid].decision.as_document()
            decision = self._kept.get(uid)
            return None if decision is None else decision.as_document()

    def recent(self, most: int) -> list[dict[str, Any]]:
        """Return the last decisions without their nodes, the newest first: those that are open, then those settled."""
        self._take_in()
        with self._lock:
            opened = [each.decision for each in reversed(self._open.values())]
            return [each.summary() for each in islice(chain(opened, reversed(self._kept.values())), most)]

    def regrets(self) -> dict[str, Any]:
        """Return the table of regrets, and of how many pods it is not known yet."""
        with self._lock:
            worths, waiting = tuple(self._worths), len(self._unmeasured)
        rows = table(worths, self._hot_percent)
        return {"hot_percent": self._hot_percent, "waiting": waiting, "schedulers": rows}

    @property
    def size(self) -> int:
        """About how many bytes of memory the decisions take."""
        return self._size + self._open_size

    def __len__(self) -> int:
        return len(self._kept) + len(self._open)

    def _run(self) -> None:
        while not self._stop.wait(self._bounds.turn_seconds):
            try:
                self.turn()
            except Exception:  # noqa: BLE001  whatever it was, answers go on, and so does their record
                _log.exception("decisions could not be recorded")

    def _take_in(self) -> None:
        with self._taking:
            in_flight = self._view.in_flight
            while self._answered:
                asked, answer, best, acted, at = self._answered.popleft()
                snapshot = answer.basis.snapshot if answer.basis else None
                self._telemetry.noted(answer, None if snapshot is None else max(0.0, at - snapshot.timestamp))
                made = OpenDecision(asked, answer, best, acted, at, in_flight)
                with self._lock:
                    # Where it was asked about before, that decision came to nothing.
                    before = self._open.pop(asked.pod.uid, None)
                    self._open_size += made.size - (before.size if before else 0)
                    self._open[asked.pod.uid] = made
                    self._forget(asked.pod.uid)
                    self._newest[made.decision.pod] = asked.pod.uid

    def _settle(self) -> None:
        with self._lock:
            opened = dict(self._open)
        if not opened:
            return
        with self._view.reading() as cluster:
            found = {uid: cluster.find(each.pod) for uid, each in opened.items()}
            nodes = cluster.rows
        now = self._clock()
        for number, (uid, placed) in enumerate(found.items()):
            if self._thread is not None and number % _AT_ONCE == _AT_ONCE - 1:
                self._stop.wait(_BREATH_SECONDS)  # to explain many at once would hold up answers
            made = opened[uid]
            if placed is not None and placed[1].placed_at != float("inf"):
                at = placed[1].placed_at
                self._keep(uid, made, made.close(nodes, placed[0], at if at > 0 else now))
            elif now - made.decision.at > self._bounds.open_seconds or self._open_size * 4 > self._bounds.max_bytes:
                self._keep(uid, made, made.close(nodes))

    def _keep(self, uid: str, made: OpenDecision, decision: Decision) -> None:
        with self._lock:
            if self._open.get(uid) is not made:  # it was asked about again meanwhile
                return
            self._open_size -= self._open.pop(uid).size
            self._kept[uid] = decision
            self._size += decision.size
            while len(self) > self._bounds.decisions or self._size > self._bounds.max_bytes * 3 // 4:
                self._forget(next(iter(self._kept)))
        if decision.chosen is None:
            return
        self._last_nodes.append(decision.chosen.node)
        herd = max(Counter(self._last_nodes).values()) / len(self._last_nodes)
        self._telemetry.settled(decision, herd)
        if decision.best and decision.outcome is Outcome.SCORED:
            with self._lock:
                self._unmeasured.append(decision)

    def _forget(self, uid: str) -> None:
        """Drop what is kept of a pod, if anything; with the lock."""
        decision = self._kept.pop(uid, None)
        if decision is not None:
            self._size -= decision.size
            decision.drop_details()  # it may still wait to be measured
            if self._newest.get(decision.pod) == uid:
                del self._newest[decision.pod]

    def _measure(self) -> None:
        """Measure those that were bound before the newest window began."""
        snapshot = None
        with suppress(ClientError):
            snapshot = self._metrics.snapshot() if self._unmeasured else None
        if snapshot is None:
            return
        start = snapshot.window.start
        ripe: list[Decision] = []
        waiting = deque[Decision](maxlen=self._bounds.decisions)
        for decision in self._unmeasured:
            (ripe if decision.chosen and decision.chosen.bound_at <= start else waiting).append(decision)
        with self._lock:
            self._unmeasured = waiting
            for decision in ripe:
                decision.worth = decision.measure(snapshot)
            worths = [decision.worth for decision in ripe if decision.worth is not None]
            self._worths.extend(worths)
        for worth in worths:
            self._telemetry.measured(worth)


def not_asked(nodes: NodeTable, pod: str) -> dict[str, Any] | None:
    """Return why a pod that runs was not asked about, as far as can be told; None when it is not on any node.

    Args:
        nodes: a table that nobody writes to.
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
                "manifest": manifest.of_pod(placed.pod),
            }
    return None


def _reasons(pod: Pod) -> list[str]:
    if pod.nominated_node_name:
        return [f"preemption had made room on {pod.nominated_node_name}, which is tried before others are scored"]
    return [
        "only one node was feasible, so there was nothing to choose",
        "kube-scheduler placed it like the pod before it (its own batching of equal pods)",
        "it was placed before this process began, or longer ago than what is kept",
        "nobody scheduled it: a DaemonSet's pod, a static pod, one with spec.nodeName",
        "its scheduler has no extender, or could not reach this one",
    ]
