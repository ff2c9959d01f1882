"""Scoring of kube-scheduler's candidate nodes within a deadline, with or without metrics.

One pod is scored at a time, so that prepared profiles need no lock of their own, and each pod counts on its predicted
node before the next pod is scored. Scoring runs on the request's thread: handing it to a worker would cost as much as
scoring. Only slow work (preparing for a new snapshot, waiting for the lock of the cluster view) runs on a worker
thread. At the deadline all candidates get the same score.
"""

import logging
import random
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError, ThreadPoolExecutor
from concurrent.futures import TimeoutError as DeadlineExceeded
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

from client import ClientError, Collector
from scoring import FallbackPolicy, Judgment, NodeGrade, NodeTable, PreparedProfile, Profile
from trimaran.cluster.view import ClusterView
from trimaran.extender.answer import PrioritizeOutcome, ScoredCandidates, ScoringDetails
from trimaran.extender.placement_predictor import InTreePlugins, PlacementPredictor
from trimaran.extender.profiles import ExtenderProfile, Profiles
from trimaran.extender.wire import ExtenderArgs
from watcher.model import WatcherMetrics

_STUCK_SECONDS = 30.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PrioritizerOptions:
    """Options of the prioritizer.

    Attributes:
        deadline_seconds: time after which all candidates get the same score.
        policy: policy that decides for each node whether its metrics are trusted.
        on_outage: scores without metrics: ``neutral`` gives all candidates the same score, so that kube-scheduler's own
            plugins decide; ``allocation`` scores by best fit.
        assume: whether a scored pod counts on its predicted node until the API server reports the binding.
        seed: seed of the tie-break; None for a random one.
    """

    deadline_seconds: float = 0.04
    policy: FallbackPolicy = field(default_factory=FallbackPolicy)
    on_outage: Literal["neutral", "allocation"] = "neutral"
    assume: bool = True
    seed: int | None = None


RecordAnswer = Callable[[ExtenderArgs, ScoredCandidates, str, bool], None]
"""Callback that records a request and its scores; in shadow mode too, where the response has other scores.

Further arguments: the predicted node ("" without scores), and whether the rollout is active for the pod.
"""


RunLater = Callable[[Callable[[], None]], object]
"""Callback that receives a function and calls it later."""


class Prioritizer:
    """Thread-safe scorer of prioritize requests.

    Args:
        profiles: profiles to score by.
        view: the live cluster; not closed.
        metrics: source of the metrics; not closed.
        options: options of the prioritizer.
        report_outage: called with the reason when scoring by load becomes impossible, and with "" when it is possible
            again.
        clock: Unix time.
        in_tree: in-tree plugins that kube-scheduler scores by, by scheduler name.
        is_active: returns whether kube-scheduler gets the scores of the pod with a uid; for other pods (shadow) it gets
            the same score for all nodes.
        record: callback for each result, called after the response; see :data:`RecordAnswer`.
    """

    def __init__(
        self,
        profiles: Profiles,
        view: ClusterView,
        metrics: Collector,
        options: PrioritizerOptions | None = None,
        report_outage: Callable[[str], None] = lambda _: None,
        clock: Callable[[], float] = time.time,
        in_tree: Mapping[str, InTreePlugins] | None = None,
        is_active: Callable[[str], bool] = lambda _: True,
        record: RecordAnswer = lambda *_: None,
    ) -> None:
        self._profiles = profiles.by_scheduler
        self._view = view
        self._metrics = metrics
        self._options = options or PrioritizerOptions()
        self._report_outage = report_outage
        self._clock = clock
        self._is_active = is_active
        self._record = record
        self._outage = ""  # reason of the current outage
        self._prepared: dict[str, tuple[PreparedProfile, object]] = {}  # profile, and the data it was prepared for
        rng = random.Random(self._options.seed)  # noqa: S311  a tie-break
        self._predictor = PlacementPredictor(profiles.weight, in_tree or {}, rng)
        self._thread = ThreadPoolExecutor(1, "prioritizer")
        self._lock = threading.Lock()  # held from the scoring of a pod until the pod counts on its predicted node
        self._locked_at = 0.0  # monotonic; 0 while unlocked

    def answer(self, args: ExtenderArgs, run_later: RunLater | None = None) -> ScoredCandidates:
        """Return a score for every candidate. Never raises; takes at most the deadline plus the time of one scoring.

        Args:
            args: the request.
            run_later: gets a function to call after the response is sent; the next pod is scored once that function has
                returned. By default a thread calls the function at once.
        """
        profile = self._profiles.get(args.scheduler_name)
        if profile is None:
            return ScoredCandidates.neutral(args.node_names, PrioritizeOutcome.OTHER_SCHEDULER)
        if not args.node_names:
            return ScoredCandidates((), (), PrioritizeOutcome.SCORED)
        is_active = self._is_active(args.pod.uid)
        answer = self._score_by_deadline(args, profile)
        if answer.details is None:
            self._record(args, answer, "", is_active)
            return answer
        (run_later or self._thread.submit)(partial(self._record_and_assume, args, answer, is_active))
        return answer if is_active else ScoredCandidates.neutral(args.node_names, PrioritizeOutcome.SHADOW)

    def is_alive(self) -> bool:
        """Return whether scoring makes progress: no pod has been in scoring for 30 seconds."""
        locked_at = self._locked_at
        return not locked_at or time.monotonic() - locked_at < _STUCK_SECONDS

    def close(self) -> None:
        """Stop the worker thread."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _score_by_deadline(self, args: ExtenderArgs, profile: ExtenderProfile) -> ScoredCandidates:
        """Return the scores, or neutral ones after the deadline; with details, the lock is still held."""
        requested_at = time.monotonic()
        ends_at = requested_at + self._options.deadline_seconds
        if not self._lock.acquire(timeout=self._options.deadline_seconds):
            return ScoredCandidates.neutral(args.node_names, PrioritizeOutcome.DEADLINE)
        self._locked_at = time.monotonic()
        # Score on this thread. If the scoring would block, let the worker thread do it, and wait until the deadline.
        try:
            answer = self._score(args, profile, requested_at, wait=False)
        except BlockingIOError:
            try:
                job = self._thread.submit(self._score, args, profile, requested_at, wait=True)
            except RuntimeError:  # closed, or no thread can be started
                self._unlock()
                return ScoredCandidates.neutral(args.node_names, PrioritizeOutcome.FAILED)
            try:
                answer = job.result(max(0.0, ends_at - time.monotonic()))
            except (DeadlineExceeded, CancelledError):
                job.add_done_callback(lambda _: self._unlock())
                job.cancel()
                return ScoredCandidates.neutral(args.node_names, PrioritizeOutcome.DEADLINE)
        if answer.details is None:
            self._unlock()
        return answer

    def _unlock(self) -> None:
        self._locked_at = 0.0
        self._lock.release()

    def _score(
        self, args: ExtenderArgs, profile: ExtenderProfile, requested_at: float, *, wait: bool
    ) -> ScoredCandidates:
        """Return the scores, or neutral ones after an error.

        Raises:
            BlockingIOError: scoring would block, and ``wait`` is false.
        """
        try:
            return self._compute_scores(args, profile, requested_at, wait=wait)
        except Exception as error:  # a defect costs one pod its scores, not its placement
            if isinstance(error, BlockingIOError) and not wait:
                raise
            _log.exception(
                "a pod could not be scored; all its nodes get the same score",
                extra={"pod": f"{args.pod.namespace}/{args.pod.name}"},
            )
            return ScoredCandidates.neutral(args.node_names, PrioritizeOutcome.FAILED)

    def _compute_scores(
        self, args: ExtenderArgs, profile: ExtenderProfile, requested_at: float, *, wait: bool
    ) -> ScoredCandidates:
        began = time.monotonic()
        # Without nodes and pods, or without metrics, there is nothing to score by.
        if not self._view.is_synced:
            return ScoredCandidates.neutral(args.node_names, PrioritizeOutcome.NOT_SYNCED)
        try:
            snapshot = self._metrics.snapshot()
        except ClientError as error:
            snapshot = None
            self._set_outage(str(error))
            if self._options.on_outage == "neutral":
                return ScoredCandidates.neutral(args.node_names, PrioritizeOutcome.NO_METRICS)
        # Score the known candidates.
        with self._view.reading(args.pod, wait=wait) as table:
            known, rows = table.known_rows(args.node_names)
            if not known:
                return ScoredCandidates.neutral(args.node_names, PrioritizeOutcome.NOT_SYNCED)
            prepared = self._prepare(profile.profile, table, snapshot, wait=wait)
            scores = prepared.score(args.pod, among=rows)
        # Too few measured nodes are an outage as well.
        judgment = scores.judgment
        assert judgment is not None  # noqa: S101  the profile was prepared with a judgment
        if snapshot is not None:
            self._set_outage(_outage_reason(judgment))
        if self._outage and not (judgment.evidence.outage and self._options.on_outage == "allocation"):
            return ScoredCandidates.neutral(args.node_names, PrioritizeOutcome.NO_METRICS)
        known_points = profile.to_points(scores.total)
        points = known_points.tolist()
        if len(known) < len(args.node_names):  # nodes that the view does not know yet get the minimum
            by_name = dict(zip(known, points, strict=True))
            points = [by_name.get(name, 0) for name in args.node_names]
        outcome = PrioritizeOutcome.ALLOCATION if self._outage else PrioritizeOutcome.SCORED
        details = ScoringDetails(scores, known_points, snapshot, began - requested_at, time.monotonic() - began)
        return ScoredCandidates(args.node_names, points, outcome, details)

    def _prepare(
        self, profile: Profile, table: NodeTable, snapshot: WatcherMetrics | None, *, wait: bool
    ) -> PreparedProfile:
        """Return the profile prepared for a snapshot.

        The prepared profile is updated with the table, so it is used until the next snapshot.

        Raises:
            BlockingIOError: the profile is not prepared yet, and ``wait`` is false.
        """
        data = None if snapshot is None else snapshot.data
        prepared, prepared_for = self._prepared.get(profile.scheduler_name, (None, None))
        if prepared is None or prepared_for is not data or prepared.nodes is not table:
            if not wait:
                raise BlockingIOError
            prepared = profile.prepare(table, self._options.policy.judge(table, snapshot, self._clock()))
            if snapshot is not None:
                window = snapshot.window
                self._view.remember_departed(window.end - window.start + self._options.policy.max_age_seconds)
            self._prepared[profile.scheduler_name] = prepared, data
        return prepared

    def _set_outage(self, outage: str) -> None:
        """Set the reason of the outage, "" if there is none; report its begin once and its end once."""
        if bool(outage) != bool(self._outage):
            if outage:
                _log.warning("nodes are not scored by their load", extra={"why": outage})
            else:
                _log.info("nodes are scored by their load again")
            self._report_outage(outage)
        self._outage = outage

    def _record_and_assume(self, args: ExtenderArgs, answer: ScoredCandidates, is_active: bool) -> None:
        """Record a result, count the pod on its predicted node, and release the lock."""
        pod, name = args.pod, args.scheduler_name
        try:
            with self._view.reading() as table:
                node_name = self._predictor.predict(pod, name, answer, table)
            self._record(args, answer, node_name, is_active)
            if is_active and self._options.assume and answer.outcome is PrioritizeOutcome.SCORED:
                self._view.assume(pod, node_name)
        except Exception:  # noqa: BLE001  the response is sent already, so no caller would report the error
            _log.exception(
                "a scored pod could not be recorded or counted on a node; later scores may ignore it",
                extra={"pod": f"{pod.namespace}/{pod.name}"},
            )
        finally:
            self._unlock()


def _outage_reason(judgment: Judgment) -> str:
    """Return the reason why no node is scored by its load; "" if nodes are scored by their load."""
    if judgment.evidence.outage:
        return judgment.evidence.outage
    all_neutral = judgment.grades.size and judgment.grades[0] == NodeGrade.NEUTRAL  # NEUTRAL is given to all or none
    return str(judgment.reasons[0]) if all_neutral else ""
