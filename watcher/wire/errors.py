"""Error codes for requests whose metrics a watcher does not have, and the exception for malformed payloads."""

from enum import StrEnum


class MetricsCode(StrEnum):
    """Reasons why a watcher does not have the requested metrics: ``code`` in the body of a 404.

    :class:`runtime.server.errors.ErrorCode` has the codes for all other errors.
    """

    NO_METRICS = "no_metrics"
    STALE = "stale"
    UNKNOWN_NODE = "unknown_node"
    UNKNOWN_WINDOW = "unknown_window"
    UNKNOWN_WORKLOAD = "unknown_workload"


class WireError(ValueError):
    """Malformed JSON payload, or metrics that JSON cannot represent. The message names the place in the payload."""
