"""Exceptions of the watcher.

WatcherError                  a runtime.errors.TrimaranError
├── ProviderError             a metrics provider failed
│   ├── ProviderUnavailable   the provider cannot be reached, or did not answer in time
│   ├── ProviderRefused       the provider rejected the credentials (401, 403)
│   └── ProviderAnswerError   the provider's response cannot be used
└── NotServed                 there are no metrics to serve; ``code`` is the reason

SettingsError is defined in ``runtime.errors``. A payload that violates the contract raises ``wire.WireError``, a
ValueError.
"""

from runtime import masking
from runtime.errors import SettingsError, TrimaranError
from watcher.wire import MetricsCode

__all__ = [
    "NotServed",
    "ProviderAnswerError",
    "ProviderError",
    "ProviderRefused",
    "ProviderUnavailable",
    "SettingsError",
    "WatcherError",
]


class WatcherError(TrimaranError):
    """Base class of the watcher's exceptions."""


class ProviderError(WatcherError):
    """Failure of a metrics provider. The message is reduced to one line."""

    def __init__(self, message: str = "") -> None:
        super().__init__(masking.to_line(message))


class ProviderUnavailable(ProviderError):
    """The provider cannot be reached, or did not answer in time."""


class ProviderRefused(ProviderError):
    """The metrics provider rejected the credentials."""


class ProviderAnswerError(ProviderError):
    """The provider answered, but its response cannot be used."""


class NotServed(WatcherError):
    """The watcher has no metrics to serve for a request.

    Attributes:
        code: reason, which the error body of the HTTP response contains.
        what: message without details, for clients without valid credentials.
    """

    def __init__(self, code: MetricsCode, what: str, why: str = "") -> None:
        """Compose the message.

        Args:
            code: reason, which the error body of the HTTP response contains.
            what: message without details, for clients without valid credentials.
            why: details, which may name a provider; only clients with valid credentials get them.
        """
        self.code = code
        self.what = what
        super().__init__(f"{what}: {why}" if why else what)

    @property
    def lacks_metrics(self) -> bool:
        """True if there are no fresh metrics of any node; false if the node or the window is unknown."""
        return self.code in {MetricsCode.NO_METRICS, MetricsCode.STALE}
