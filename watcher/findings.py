"""What was found wrong with metrics: one shape for providers, the analyzer, the API and the log."""

from dataclasses import dataclass
from enum import StrEnum

from runtime import masking


class Kind(StrEnum):
    """What is wrong."""

    FETCH_FAILED = "fetch_failed"
    FELL_BACK = "fell_back"
    DISAGREEMENT = "disagreement"
    QUERY_FAILED = "query_failed"
    PARTIAL_ANSWER = "partial_answer"
    BAD_NODE_NAME = "bad_node_name"
    UNVERIFIED = "unverified"
    TOO_MANY_NODES = "too_many_nodes"
    UNMATCHED_NODE = "unmatched_node"
    NO_METRICS = "no_metrics"
    BAD_VALUE = "bad_value"
    BAD_LABEL = "bad_label"
    DUPLICATE = "duplicate"
    NOT_FINITE = "not_finite"
    OUT_OF_RANGE = "out_of_range"
    NO_AVERAGE = "no_average"
    LOW_COVERAGE = "low_coverage"
    MISSING = "missing"
    STALE = "stale"
    CLOCK_SKEW = "clock_skew"
    FROZEN = "frozen"
    SPIKE = "spike"
    WRONG_SCALE = "wrong_scale"
    DOUBLE_SMOOTHING = "double_smoothing"
    FLATLINE = "flatline"
    CHANGEPOINT = "changepoint"
    DRIFT = "drift"
    DUPLICATE_NODE = "duplicate_node"


class Action(StrEnum):
    """What was done about it."""

    REPORTED = "reported"  # nothing was changed
    MARKED = "marked"  # the node's metadata says so
    MERGED = "merged"  # of several that say the same, one is used
    CLAMPED = "clamped"  # the nearest value that can be is used
    DROPPED = "dropped"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong.

    Attributes:
        kind: what.
        window: the window it was found in, such as ``15m``.
        node: the node it is about; empty when it is about the whole fetch.
        metric: the metric's name at the provider; empty when it is about all of them.
        message: what happened, and the way out where we know one.
        action: what we did about it.
        since: when it began, unix seconds; 0 where whoever found it does not know more than that it is so now.
    """

    kind: Kind
    message: str
    window: str = ""
    node: str = ""
    metric: str = ""
    action: Action = Action.REPORTED
    since: int = 0

    def __post_init__(self) -> None:
        """Leave out what must not be said: much of it comes from outside."""
        masking.say_safely(self, "message", "node", "metric")


@dataclass(frozen=True, slots=True)
class Changes:
    """What a fetch changed.

    Attributes:
        current: all findings that are true now, each with the time since when.
        opened: one of each that was not true before.
        closed: those that are not true any more.
    """

    current: tuple[Finding, ...] = ()
    opened: tuple[Finding, ...] = ()
    closed: tuple[Finding, ...] = ()
