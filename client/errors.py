"""Exceptions of the client, the same in service and in library mode.

ClientError
├── WatcherUnavailable    the watcher cannot be reached, does not answer in time, or failed internally
├── AccessDenied          the watcher requires another token or certificate
├── BadAnswer             the watcher's response violates the API
├── NoMetrics             the watcher has no metrics
│   └── StaleMetrics      the watcher, or this client, has only metrics that are too old
├── UnknownNode           the watcher has metrics, but not of this node
├── UnknownWindow         the watcher does not keep this window
└── BadSettings           the settings of an embedded watcher are invalid
"""

from runtime import masking
from runtime.errors import TrimaranError
from watcher.wire import MetricsCode


class ClientError(TrimaranError):
    """Root of the client's exceptions. The message is one line, without secrets."""

    def __init__(self, message: str = "") -> None:
        super().__init__(masking.to_line(message))


class WatcherUnavailable(ClientError):
    """The watcher cannot be reached, does not answer in time, or failed internally."""


class AccessDenied(ClientError):
    """The watcher requires another token or certificate."""


class BadAnswer(ClientError):
    """The watcher's response violates the API."""


class NoMetrics(ClientError):
    """The watcher has no metrics."""


class StaleMetrics(NoMetrics):
    """The watcher, or this client, has only metrics that are too old."""


class UnknownNode(ClientError):
    """The watcher has metrics, but not of this node."""


class UnknownWindow(ClientError):
    """The watcher does not keep this window."""


class BadSettings(ClientError):
    """The settings of an embedded watcher are invalid; the message has one line per problem."""

    def __init__(self, message: str = "") -> None:
        Exception.__init__(self, masking.redact(message))  # keeps the lines, unlike ClientError


#: Exceptions by the API's error codes.
BY_CODE: dict[str, type[ClientError]] = {
    MetricsCode.NO_METRICS: NoMetrics,
    MetricsCode.STALE: StaleMetrics,
    MetricsCode.UNKNOWN_NODE: UnknownNode,
    MetricsCode.UNKNOWN_WINDOW: UnknownWindow,
}
