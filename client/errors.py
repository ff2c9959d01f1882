"""Everything the client raises on purpose, the same in service and in library mode.

ClientError
├── WatcherUnavailable    it cannot be reached, does not answer in time, or failed inside
├── AccessDenied          it wants another token or certificate
├── BadAnswer             it answered something that is not the contract
├── NoMetrics             it has no metrics
│   └── StaleMetrics      it, or this client, has only metrics that are too old
├── UnknownNode           it has metrics, but none for this node
├── UnknownWindow         it does not keep this window
└── BadSettings           the settings of an embedded watcher cannot be used
"""

from runtime import masking
from runtime.errors import TrimaranError
from watcher.wire import MetricsCode


class ClientError(TrimaranError):
    """The root of the tree above. Its message is one line, without secrets."""

    def __init__(self, message: str = "") -> None:
        super().__init__(masking.to_line(message))


class WatcherUnavailable(ClientError):
    """The watcher cannot be reached, does not answer in time, or failed inside."""


class AccessDenied(ClientError):
    """The watcher wants another token or certificate."""


class BadAnswer(ClientError):
    """The watcher answered something that is not the contract."""


class NoMetrics(ClientError):
    """The watcher has no metrics."""


class StaleMetrics(NoMetrics):
    """There are only metrics that are too old."""


class UnknownNode(ClientError):
    """There are metrics, but none for this node."""


class UnknownWindow(ClientError):
    """The watcher does not keep this window."""


class BadSettings(ClientError):
    """The settings of an embedded watcher cannot be used; the message has a line for each problem."""

    def __init__(self, message: str = "") -> None:
        Exception.__init__(self, masking.redact(message))  # of several lines, each of them safe by itself


#: The wire's error codes, in our words.
BY_CODE: dict[str, type[ClientError]] = {
    MetricsCode.NO_METRICS: NoMetrics,
    MetricsCode.STALE: StaleMetrics,
    MetricsCode.UNKNOWN_NODE: UnknownNode,
    MetricsCode.UNKNOWN_WINDOW: UnknownWindow,
}
