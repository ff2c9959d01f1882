"""What is answered for a pod: a score for every candidate, how it came to be, and what it rests on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from scoring import Scores
from scoring.arrays import Int64s
from trimaran.extender.wire import MAX_SCORE
from watcher.model import WatcherMetrics

NEUTRAL = MAX_SCORE // 2


class Outcome(StrEnum):
    """How an answer came to be; all but ``SCORED`` and ``ALLOCATION`` are the same score for all."""

    SCORED = "scored"
    ALLOCATION = "allocation"
    SHADOW = "shadow"
    OTHER_SCHEDULER = "other_scheduler"
    NOT_SYNCED = "not_synced"
    NO_METRICS = "no_metrics"
    DEADLINE = "deadline"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Basis:
    """What an answer rests on, for those who explain it.

    Attributes:
        scores: of the candidates that are known; later changes do not reach into them.
        points: what is answered for these, shape (nodes,).
        snapshot: the metrics; None where there were none.
        waited_seconds: until it was scored.
        scored_seconds: how long that took.
    """

    scores: Scores
    points: Int64s
    snapshot: WatcherMetrics | None
    waited_seconds: float
    scored_seconds: float


@dataclass(frozen=True)
class Answer:
    """The candidates' scores.

    Attributes:
        names: the candidates, each once.
        points: their scores, 0 to 100, in that order.
        outcome: how they came to be.
        basis: what they rest on, where they are by node.
    """

    names: Sequence[str]
    points: Sequence[int]
    outcome: Outcome
    basis: Basis | None = None

    @classmethod
    def alike(cls, names: Sequence[str], outcome: Outcome) -> "Answer":
        """Answer all candidates alike."""
        return cls(names, [NEUTRAL] * len(names), outcome)

    @cached_property
    def scores(self) -> Mapping[str, int]:
        """Each candidate's score, by its name."""
        return dict(zip(self.names, self.points, strict=True))
