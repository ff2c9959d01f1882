"""Result of a prioritize request: a score for every candidate node, the outcome, and the details of the scoring."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from scoring import Scores, UseLevels
from scoring.arrays import Int64s
from trimaran.cluster.target_note import TargetNote
from watcher.model import WatcherMetrics

NEUTRAL = 0


class PrioritizeOutcome(StrEnum):
    """Outcome of a prioritize request. All but ``SCORED`` and ``ALLOCATION`` give every node the same score."""

    SCORED = "scored"
    ALLOCATION = "allocation"
    SHADOW = "shadow"
    OTHER_SCHEDULER = "other_scheduler"
    NOT_SYNCED = "not_synced"
    NO_RULES = "no_rules"
    NO_METRICS = "no_metrics"
    DEADLINE = "deadline"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class ScoringDetails:
    """Inputs and results of one scoring, from which the scores can be explained later.

    Attributes:
        scores: weighted sums and plugin scores of the known candidates; not affected by later changes of the cluster.
        points: scores of the known candidates as kube-scheduler gets them, shape (nodes,).
        snapshot: metrics from which the scores were computed; None without metrics.
        levels: expected use of pods, from which the scores were computed; None if their requests were used.
        waited_seconds: time from the request until the scoring began.
        scored_seconds: duration of the scoring.
        plan: plan of the rebalancer, if the pod replaces a pod that the rebalancer moved; None for other pods.
    """

    scores: Scores
    points: Int64s
    snapshot: WatcherMetrics | None
    levels: UseLevels | None
    waited_seconds: float
    scored_seconds: float
    plan: TargetNote | None = None


@dataclass(frozen=True)
class ScoredCandidates:
    """Scores of the candidate nodes of one pod.

    Attributes:
        names: names of the candidates, each once.
        points: scores of the candidates, at least 0, in the order of ``names``.
        outcome: outcome of the request.
        details: details of the scoring; None if the nodes could not be scored and all got the same score.
    """

    names: Sequence[str]
    points: Sequence[int]
    outcome: PrioritizeOutcome
    details: ScoringDetails | None = None

    @classmethod
    def neutral(cls, names: Sequence[str], outcome: PrioritizeOutcome) -> "ScoredCandidates":
        """Return the score 0 for all candidates, so that kube-scheduler's own plugins decide."""
        return cls(names, [NEUTRAL] * len(names), outcome)

    @cached_property
    def scores(self) -> Mapping[str, int]:
        """Score of each candidate by name."""
        return dict(zip(self.names, self.points, strict=True))
