"""Result of a prioritize request: a score for every candidate, its outcome, and the details of the scoring."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from scoring import Scores
from scoring.arrays import Int64s
from trimaran.extender.wire import MAX_SCORE
from watcher.model import WatcherMetrics

NEUTRAL = MAX_SCORE // 2


class PrioritizeOutcome(StrEnum):
    """Outcome of a prioritize request. All but ``SCORED`` and ``ALLOCATION`` give every node the same score."""

    SCORED = "scored"
    ALLOCATION = "allocation"
    SHADOW = "shadow"
    OTHER_SCHEDULER = "other_scheduler"
    NOT_SYNCED = "not_synced"
    NO_METRICS = "no_metrics"
    DEADLINE = "deadline"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class ScoringDetails:
    """Details behind a result, for explanations.

    Attributes:
        scores: scores of the known candidates, independent of later changes.
        points: scores in the answer for the known candidates, shape (nodes,).
        snapshot: metrics; None without metrics.
        waited_seconds: time from the request until the scoring began.
        scored_seconds: time of the scoring.
    """

    scores: Scores
    points: Int64s
    snapshot: WatcherMetrics | None
    waited_seconds: float
    scored_seconds: float


@dataclass(frozen=True)
class ScoredCandidates:
    """Scores of the candidates.

    Attributes:
        names: candidates, each once.
        points: scores of the candidates, 0 to 100, in the same order.
        outcome: outcome of the request.
        details: details of the scoring; None if all scores are the same.
    """

    names: Sequence[str]
    points: Sequence[int]
    outcome: PrioritizeOutcome
    details: ScoringDetails | None = None

    @classmethod
    def neutral(cls, names: Sequence[str], outcome: PrioritizeOutcome) -> "ScoredCandidates":
        """Return a result with the same score for all candidates."""
        return cls(names, [NEUTRAL] * len(names), outcome)

    @cached_property
    def scores(self) -> Mapping[str, int]:
        """Score of each candidate by name."""
        return dict(zip(self.names, self.points, strict=True))
