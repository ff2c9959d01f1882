"""Error codes of a watcher without the requested metrics, and the exception for malformed payloads."""

from enum import StrEnum


class MetricsCode(StrEnum):
    """Values of ``code`` in the error body of a 404, in addition to :class:`runtime.server.errors.ErrorCode`."""

    NO_METRICS = "no_metrics"
    STALE = "stale"
    UNKNOWN_NODE = "unknown_node"
    UNKNOWN_WINDOW = "unknown_window"


class WireError(ValueError):
    """The payload violates the wire contract. The message names the place in the payload."""
