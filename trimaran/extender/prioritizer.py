"""Scores for kube-scheduler's candidates: which profile, from which metrics, and what is answered when there are none.

One pod is scored at a time, so that prepared profiles have one user and each pod is counted where it will likely go
before the next one is scored. Whoever asks scores by itself, for handing over takes as long as scoring does. Only what
may take long (a new snapshot to prepare for, a cluster's view that others hold) is for a thread: a slow answer never
holds up a request, all candidates are answered alike when there is nothing at its deadline.
"""

import logging
import random
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotInTime
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, Protocol

from client import ClientError
from scoring import FallbackPolicy, Judgment, NodeGrade, NodeTable, Pod, PreparedProfile, Profile
from trimaran.extender.answer import ScoredCandidates, ScoringDetails, PrioritizeOutcome
from trimaran.extender.placement_predictor import InTreePlugins, PlacementPredictor
from trimaran.extender.profiles import ExtenderProfile, Profiles
from trimaran.extender.wire import ExtenderArgs
from watcher.model import WatcherMetrics

_STUCK_SECONDS = 30.0
_log = logging.getLogger(__name__)


class LiveCluster(Protocol):
    """What is asked of the live cluster: :class:`trimaran.cluster.view.ClusterView` has it."""

    @property
    def is_synced(self) -> bool:
        """Whether the first whole copy is there."""
        ...

    def reading(self, asked: Pod | None = None, *, wait: bool = True) -> AbstractContextManager[NodeTable]:
        """Yield the table, which does not change until the block ends, without what was assumed of a pod before.

        Raises ``BlockingIOError`` where others hold it and nobody waits.
        """
        ...

    def remember_departed(self, seconds: float) -> None:
        """Remember pods that left their nodes for so long."""
        ...

    def assume(self, pod: Pod, node_name: str) -> None:
        """Count a pod that is about to be bound."""
        ...


class SnapshotSource(Protocol):
    """What is asked of the watcher's client: :class:`client.Collector` has it."""

    def snapshot(self) -> WatcherMetrics:
        """Return the newest metrics; raises ``ClientError`` where there are none, or none fresh enough."""
        ...


@dataclass(frozen=True, slots=True)
class PrioritizerOptions:
    """How to answer.

    Attributes:
        deadline_seconds: after this time all candidates are answered alike.
        policy: when metrics are trusted, node by node.
        outage: without any metrics, answer all candidates ``alike``, so that kube-scheduler's own plugins decide, or
            best fit by ``allocation``.
        assume: count the best candidate as placed until the API server says where the pod went.
        seed: of the draw among equals.
    """

    deadline_seconds: float = 0.04
    policy: FallbackPolicy = field(default_factory=FallbackPolicy)
    outage: Literal["alike", "allocation"] = "alike"
    assume: bool = True
    seed: int | None = None


RecordAnswer = Callable[[ExtenderArgs, ScoredCandidates, str, bool], None]
"""Takes note of an answer, as it is where pods are acted for.

It comes with the node that the pod will likely go to by it ("" where it is not by node), and whether it is acted for.
"""


RunLater = Callable[[Callable[[], None]], object]
"""Takes what is to be done later, and does it."""


class Prioritizer:
    """Answers requests, from any thread.

    Args:
        profiles: what to score by.
        view: the live cluster; not closed.
        metrics: what nodes use; not closed.
        options: how to answer.
        outage: is told why there are no metrics to score by when that begins, and "" when it ends.
        clock: unix time.
        in_tree: what kube-scheduler adds to the answers by itself, by the scheduler's name, as far as it is known.
        acts_for: whether a pod, by its uid, is answered by its scores; the others' answers are all alike.
        record: see :data:`RecordAnswer`; what it does, nobody waits for.
    """

    def __init__(
        self,
        profiles: Profiles,
        view: LiveCluster,
        metrics: SnapshotSource,
        options: PrioritizerOptions | None = None,
        outage: Callable[[str], None] = lambda _: None,
        clock: Callable[[], float] = time.time,
        in_tree: Mapping[str, InTreePlugins] | None = None,
        acts_for: Callable[[str], bool] = lambda _: True,
        record: RecordAnswer = lambda *_: None,
    ) -> None:
        self._profiles = profiles.by_scheduler
        self._view = view
        self._metrics = metrics
        self._options = options or PrioritizerOptions()
        self._tell_outage = outage
        self._clock = clock
        self._acts_for = acts_for
        self._record = record
        self._outage = ""
        self._prepared: dict[str, tuple[PreparedProfile, object]] = {}  # with the data of the snapshot it is for
        dice = random.Random(self._options.seed)  # noqa: S311  a draw among equals
        self._likeliest = PlacementPredictor(profiles.weight, in_tree or {}, dice)
        self._thread = ThreadPoolExecutor(1, "prioritizer")
        self._turn = threading.Lock()  # held from when a pod is scored until it is counted
        self._began = 0.0  # when the turn did, monotonic; 0 while it is nobody's

    def answer(self, asked: ExtenderArgs, later: RunLater | None = None) -> ScoredCandidates:
        """Return a score for every candidate; never fails, and takes no longer than the deadline and one more score.

        Args:
            asked: the request.
            later: is given what is to be done when the answer is sent, and may not be forgotten: until then no other
                pod is scored. By default a thread does it at once.
        """
        profile = self._profiles.get(asked.scheduler_name)
        if profile is None:
            return ScoredCandidates.alike(asked.node_names, PrioritizeOutcome.OTHER_SCHEDULER)
        if not asked.node_names:
            return ScoredCandidates((), (), PrioritizeOutcome.SCORED)
        acts = self._acts_for(asked.pod.uid)
        answer = self._in_time(asked, profile)
        if answer.basis is None:
            self._record(asked, answer, "", acts)
            return answer
        (later or self._thread.submit)(partial(self._after, asked, answer, acts))
        return answer if acts else ScoredCandidates.alike(asked.node_names, PrioritizeOutcome.SHADOW)

    def is_alive(self) -> bool:
        """Return whether pods get their turn."""
        began = self._began
        return not began or time.monotonic() - began < _STUCK_SECONDS

    def close(self) -> None:
        """Stop scoring."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _in_time(self, asked: ExtenderArgs, profile: ExtenderProfile) -> ScoredCandidates:
        """Return the answer; where it is by node, its turn lasts until the pod is counted."""
        asked_at = time.monotonic()
        ends_at = asked_at + self._options.deadline_seconds
        if not self._turn.acquire(timeout=self._options.deadline_seconds):
            return ScoredCandidates.alike(asked.node_names, PrioritizeOutcome.DEADLINE)
        self._began = time.monotonic()
        try:
            answer = self._score(asked, profile, asked_at, wait=False)
        except BlockingIOError:
            try:
                job = self._thread.submit(self._score, asked, profile, asked_at, wait=True)
            except RuntimeError:  # closed, or the system gives no more threads
                self._end_turn()
                return ScoredCandidates.alike(asked.node_names, PrioritizeOutcome.FAILED)
            try:
                answer = job.result(max(0.0, ends_at - time.monotonic()))
            except (NotInTime, CancelledError):
                job.add_done_callback(lambda _: self._end_turn())
                job.cancel()
                return ScoredCandidates.alike(asked.node_names, PrioritizeOutcome.DEADLINE)
        if answer.basis is None:
            self._end_turn()
        return answer

    def _end_turn(self) -> None:
        self._began = 0.0
        self._turn.release()

    def _score(self, asked: ExtenderArgs, profile: ExtenderProfile, asked_at: float, *, wait: bool) -> ScoredCandidates:
        """Return the answer; raises ``BlockingIOError`` where that may take long and nobody waits."""
        try:
            return self._scored(asked, profile, asked_at, wait=wait)
        except Exception as error:  # it costs one pod its scores
            if isinstance(error, BlockingIOError) and not wait:
                raise
            _log.exception("a pod could not be scored", extra={"pod": f"{asked.pod.namespace}/{asked.pod.name}"})
            return ScoredCandidates.alike(asked.node_names, PrioritizeOutcome.FAILED)

    def _scored(self, asked: ExtenderArgs, profile: ExtenderProfile, asked_at: float, *, wait: bool) -> ScoredCandidates:
        began = time.monotonic()
        if not self._view.is_synced:
            return ScoredCandidates.alike(asked.node_names, PrioritizeOutcome.NOT_SYNCED)
        try:
            snapshot = self._metrics.snapshot()
        except ClientError as error:
            snapshot = None
            self._note(str(error))
            if self._options.outage == "alike":
                return ScoredCandidates.alike(asked.node_names, PrioritizeOutcome.NO_METRICS)
        with self._view.reading(asked.pod, wait=wait) as table:
            known, rows = table.known_rows(asked.node_names)
            if not known:
                return ScoredCandidates.alike(asked.node_names, PrioritizeOutcome.NOT_SYNCED)
            prepared = self._prepare(profile.profile, table, snapshot, wait=wait)
            scores = prepared.score(asked.pod, among=rows)
        judgment = scores.judgment
        assert judgment is not None  # noqa: S101  it was prepared with one
        if snapshot is not None:
            self._note(_outage(judgment))
        if self._outage and not (judgment.evidence.outage and self._options.outage == "allocation"):
            return ScoredCandidates.alike(asked.node_names, PrioritizeOutcome.NO_METRICS)
        answered = profile.answered(scores.total)
        points = answered.tolist()
        if len(known) < len(asked.node_names):  # of a node that the view has not heard of nothing is known: the minimum
            found = dict(zip(known, points, strict=True))
            points = [found.get(name, 0) for name in asked.node_names]
        basis = ScoringDetails(scores, answered, snapshot, began - asked_at, time.monotonic() - began)
        return ScoredCandidates(asked.node_names, points, PrioritizeOutcome.ALLOCATION if self._outage else PrioritizeOutcome.SCORED, basis)

    def _prepare(
        self, profile: Profile, table: NodeTable, snapshot: WatcherMetrics | None, *, wait: bool
    ) -> PreparedProfile:
        """Return the profile prepared for a snapshot: it follows the table, so it serves until there is a newer one."""
        data = None if snapshot is None else snapshot.data
        prepared, of = self._prepared.get(profile.scheduler_name, (None, None))
        if prepared is None or of is not data or prepared.nodes is not table:
            if not wait:
                raise BlockingIOError
            prepared = profile.prepare(table, self._options.policy.judge(table, snapshot, self._clock()))
            if snapshot is not None:
                window = snapshot.window
                self._view.remember_departed(window.end - window.start + self._options.policy.max_age_seconds)
            self._prepared[profile.scheduler_name] = prepared, data
        return prepared

    def _note(self, outage: str) -> None:
        """Tell an outage once, and once that it is over."""
        if bool(outage) != bool(self._outage):
            if outage:
                _log.warning("nodes are not scored by their load", extra={"why": outage})
            else:
                _log.info("nodes are scored by their load again")
            self._tell_outage(outage)
        self._outage = outage

    def _after(self, asked: ExtenderArgs, answer: ScoredCandidates, acts: bool) -> None:
        """RecordAnswer an answer, and count the pod where it will likely be put; then it is the next one's turn."""
        pod, name = asked.pod, asked.scheduler_name
        try:
            with self._view.reading() as table:
                node_name = self._likeliest.node(pod, name, answer, table)
            self._record(asked, answer, node_name, acts)
            if acts and self._options.assume and answer.outcome is PrioritizeOutcome.SCORED:
                self._view.assume(pod, node_name)
        except Exception:  # noqa: BLE001  nobody waits for it, so nobody else would tell
            _log.exception("a pod is neither recorded nor assumed", extra={"pod": f"{pod.namespace}/{pod.name}"})
        finally:
            self._end_turn()


def _outage(judgment: Judgment) -> str:
    """Return why no node is scored by its load, else ""."""
    if judgment.evidence.outage:
        return judgment.evidence.outage
    broken = judgment.grades.size and judgment.grades[0] == NodeGrade.NEUTRAL  # all are then
    return str(judgment.reasons[0]) if broken else ""
