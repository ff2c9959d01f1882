"""Findings: problems with metrics, in one form for providers, the analyzer, the API and the log."""

from dataclasses import dataclass
from enum import StrEnum

from runtime import masking


class Kind(StrEnum):
    """Kind of a finding, a problem with metrics. docs/quality.md has a table of all kinds."""

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
    """Action that the watcher took on the metrics that a finding is about."""

    REPORTED = "reported"  # nothing was changed
    MARKED = "marked"  # the node's metadata names the kind
    MERGED = "merged"  # one value is used in place of several
    DROPPED = "dropped"


@dataclass(frozen=True, slots=True)
class Finding:
    """One problem with metrics.

    Attributes:
        kind: the kind of problem.
        window: the affected window, such as ``15m``; empty if the problem concerns the whole fetch.
        node: the affected node; empty if the problem concerns the whole fetch.
        metric: the metric's name at the provider; empty if the problem concerns all metrics.
        message: a description of the problem, with a remedy where one is known.
        action: the action that was taken.
        since: start of the problem, Unix seconds; 0 if unknown.
    """

    kind: Kind
    message: str
    window: str = ""
    node: str = ""
    metric: str = ""
    action: Action = Action.REPORTED
    since: int = 0

    def __post_init__(self) -> None:
        """Redact secrets and control characters: much of the text comes from other systems."""
        masking.redact_fields(self, "message", "node", "metric")


@dataclass(frozen=True, slots=True)
class Changes:
    """Changes of the findings between two fetches.

    Attributes:
        current: all findings that are open now, each with the time it was opened.
        opened: the findings that were not open after the previous fetch, without repetitions of the same problem.
        closed: the findings that were open after the previous fetch and are no longer open.
    """

    current: tuple[Finding, ...] = ()
    opened: tuple[Finding, ...] = ()
    closed: tuple[Finding, ...] = ()
