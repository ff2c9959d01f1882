"""Scoring of kube-scheduler's candidate nodes within a deadline, with or without metrics.

A pod is scored and counted on its predicted node under the lock of the cluster view, so that the next pod sees it
there. The lock is held for about a millisecond. At the deadline all candidates get the same score. Profiles are
prepared as soon as a new snapshot arrives, so that the first pod after a quiet time does not wait.
"""

import logging
import math
import random
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass, field
from typing import Literal

from client import ClientError, Collector
from scoring import FallbackPolicy, Pod, UseLevels
from scoring.profiles.fallback import Judgment, NodeGrade
from trimaran.cluster.target_note import TargetNote
from trimaran.cluster.view import ClusterView
from trimaran.extender.answer import PrioritizeOutcome, ScoredCandidates, ScoringDetails
from trimaran.extender.placement_predictor import PlacementPredictor
from trimaran.extender.planned_points import with_planned_node
from trimaran.extender.preparation import ProfilePreparer
from trimaran.extender.profiles import ExtenderProfile, Profiles
from trimaran.extender.scheduler_rules import SchedulerRules
from trimaran.extender.wire import ExtenderArgs
from watcher.model import WatcherMetrics

_STUCK_SECONDS = 30.0
_PROBE_SECONDS = 1.0
_FOLLOW_SECONDS = 0.25  # between two reads of the metrics
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
        rules: returns the current rules of kube-scheduler; None if its version has not been read yet.
        is_active: returns whether kube-scheduler gets the scores of the pod with a uid; for other pods (shadow) it gets
            the same score for all nodes.
        levels: returns the learned use of pods; None to expect their requests.
        plan_of: returns the rebalancer's plan for a pod that replaces a moved pod; None for other pods.
        record: callback for each result, which must return at once; see :data:`RecordAnswer`.
    """

    def __init__(
        self,
        profiles: Profiles,
        view: ClusterView,
        metrics: Collector,
        options: PrioritizerOptions | None = None,
        report_outage: Callable[[str], None] = lambda _: None,
        clock: Callable[[], float] = time.time,
        rules: Callable[[], SchedulerRules | None] = SchedulerRules,
        is_active: Callable[[str], bool] = lambda _: True,
        levels: Callable[[], UseLevels | None] = lambda: None,
        plan_of: Callable[[Pod], TargetNote | None] = lambda _: None,
        record: RecordAnswer = lambda *_: None,
    ) -> None:
        self._profiles = profiles.by_scheduler
        self._view = view
        self._metrics = metrics
        self._options = options or PrioritizerOptions()
        self._report_outage = report_outage
        self._is_active = is_active
        self._plan_of = plan_of
        self._record = record
        self._outage = ""  # reason of the current outage
        self._outage_lock = threading.Lock()
        self._preparer = ProfilePreparer(view, self._options.policy, clock, levels)
        rng = random.Random(self._options.seed)  # noqa: S311  a tie-break
        self._rules = rules
        self._predictor = PlacementPredictor(rng)  # used under the view's lock
        self._stop = threading.Event()
        self._blocked_since = math.inf  # monotonic; infinite if the last probe got the view's lock

    def start(self) -> None:
        """Start to prepare the profiles for each new snapshot, ahead of the requests that need them."""
        threading.Thread(target=self._follow_metrics, name="preparation", daemon=True).start()

    def answer(self, args: ExtenderArgs) -> ScoredCandidates:
        """Return a score for every candidate. Never raises; takes at most the deadline plus the time of one scoring."""
        profile = self._profiles.get(args.scheduler_name)
        if profile is None:
            return ScoredCandidates.neutral(args.node_names, PrioritizeOutcome.OTHER_SCHEDULER)
        if not args.node_names:
            return ScoredCandidates((), (), PrioritizeOutcome.SCORED)
        is_active = self._is_active(args.pod.uid)
        node_name = ""
        try:
            answer, node_name = self._score(args, profile, is_active=is_active)
        except (TimeoutError, CancelledError):
            answer = ScoredCandidates.neutral(args.node_names, PrioritizeOutcome.DEADLINE)
        except Exception:  # noqa: BLE001  a defect costs one pod its scores, not its placement
            _log.exception(
                "a pod could not be scored; all its nodes get the same score",
                extra={"pod": f"{args.pod.namespace}/{args.pod.name}"},
            )
            answer = ScoredCandidates.neutral(args.node_names, PrioritizeOutcome.FAILED)
        self._record(args, answer, node_name, is_active)
        if answer.details is None or is_active:
            return answer
        return ScoredCandidates.neutral(args.node_names, PrioritizeOutcome.SHADOW)

    @property
    def outage(self) -> str:
        """Reason why the last pod was not scored by the load of the nodes; empty if it was, or no pod has come yet."""
        return self._outage

    def is_alive(self) -> bool:
        """Return whether pods can be scored: a probe got the view's lock within the last 30 seconds."""
        try:
            with self._view.reading(timeout=_PROBE_SECONDS):
                self._blocked_since = math.inf
        except TimeoutError:
            self._blocked_since = min(self._blocked_since, time.monotonic() - _PROBE_SECONDS)
        return time.monotonic() - self._blocked_since < _STUCK_SECONDS

    def close(self) -> None:
        """Stop the threads."""
        self._stop.set()
        self._preparer.close()

    def _score(self, args: ExtenderArgs, profile: ExtenderProfile, *, is_active: bool) -> tuple[ScoredCandidates, str]:
        """Return the scores and the predicted node, "" without scores; count an active pod on that node.

        Raises:
            TimeoutError: there are no scores at the deadline.
        """
        requested_at = time.monotonic()
        ends_at = requested_at + self._options.deadline_seconds
        # Scores need the lists of nodes and pods, the rules of kube-scheduler's version, and metrics.
        rules = self._rules()
        if rules is None or not self._view.is_synced:
            return ScoredCandidates.neutral(args.node_names, PrioritizeOutcome.NOT_SYNCED), ""
        if rules.refusal:
            self._set_outage(rules.refusal)
            return ScoredCandidates.neutral(args.node_names, PrioritizeOutcome.NO_RULES), ""
        snapshot, reason = self._snapshot()
        if snapshot is None and self._options.on_outage == "neutral":
            self._set_outage(reason)
            return ScoredCandidates.neutral(args.node_names, PrioritizeOutcome.NO_METRICS), ""
        prepared, snapshot, levels = self._preparer.prepared(profile.profile, snapshot, ends_at - time.monotonic())
        # Score the known candidates, and count the pod before another pod is scored.
        with self._view.reading(args.pod, timeout=ends_at - time.monotonic()) as table:
            began = time.monotonic()
            known, rows = table.known_rows(args.node_names)
            if not known:
                return ScoredCandidates.neutral(args.node_names, PrioritizeOutcome.NOT_SYNCED), ""
            scores = prepared.score(args.pod, among=rows)
            # Too few measured nodes are an outage as well.
            judgment = scores.judgment
            assert judgment is not None  # noqa: S101  the profile was prepared with a judgment
            reason = reason or _outage_reason(judgment)
            is_scored = not reason
            if is_scored or (judgment.evidence.outage and self._options.on_outage == "allocation"):
                points = profile.to_points(scores.total)
                plan = self._plan_of(args.pod) if is_active else None
                if plan is not None:
                    points = with_planned_node(points, known, plan)
                details = ScoringDetails(
                    scores, points, snapshot, levels, began - requested_at, time.monotonic() - began, plan
                )
                answer = _answer(args, known, details, is_scored=is_scored)
                node_name = self._predictor.predict(args.pod, rules.in_tree.get(args.scheduler_name), answer, table)
                if is_active and is_scored and self._options.assume:
                    self._view.assume(args.pod, node_name)
            else:
                answer, node_name = ScoredCandidates.neutral(args.node_names, PrioritizeOutcome.NO_METRICS), ""
        self._set_outage(reason)
        return answer, node_name

    def _snapshot(self) -> tuple[WatcherMetrics | None, str]:
        """Return the metrics and ""; without metrics None and the reason."""
        try:
            return self._metrics.snapshot(), ""
        except ClientError as error:
            return None, str(error)

    def _follow_metrics(self) -> None:
        while not self._stop.wait(_FOLLOW_SECONDS):
            try:
                self.prepare_ahead()
            except Exception:  # noqa: BLE001  the next request prepares the profile again, and reports a failure
                _log.exception("the profiles could not be prepared for new metrics")

    def prepare_ahead(self) -> None:
        """Begin to prepare all profiles for the current metrics, if they are not prepared yet."""
        snapshot, _ = self._snapshot()
        if self._view.is_synced and (snapshot is not None or self._options.on_outage == "allocation"):
            for profile in self._profiles.values():
                self._preparer.prepare(profile.profile, snapshot)

    def _set_outage(self, outage: str) -> None:
        """Set the reason of the outage, "" if there is none; report its begin once and its end once."""
        with self._outage_lock:
            changed, self._outage = bool(outage) != bool(self._outage), outage
            if not changed:
                return
            if outage:
                _log.warning("nodes are not scored by their load", extra={"why": outage})
            else:
                _log.info("nodes are scored by their load again")
            self._report_outage(outage)


def _answer(args: ExtenderArgs, known: Sequence[str], details: ScoringDetails, *, is_scored: bool) -> ScoredCandidates:
    """Return a score for every candidate: those that the cluster view does not know get the lowest score."""
    points = details.points.tolist()
    if len(known) < len(args.node_names):
        by_name, lowest = dict(zip(known, points, strict=True)), min(points)
        points = [by_name.get(name, lowest) for name in args.node_names]
    outcome = PrioritizeOutcome.SCORED if is_scored else PrioritizeOutcome.ALLOCATION
    return ScoredCandidates(args.node_names, points, outcome, details)


def _outage_reason(judgment: Judgment) -> str:
    """Return the reason why no node is scored by its load; "" if nodes are scored by their load."""
    if judgment.evidence.outage:
        return judgment.evidence.outage
    all_neutral = judgment.grades.size and judgment.grades[0] == NodeGrade.NEUTRAL  # NEUTRAL is given to all or none
    return str(judgment.reasons[0]) if all_neutral else ""
