"""Everything the watcher raises on purpose.

WatcherError
├── SettingsError             one or more settings cannot be used
├── ProviderError             a metrics provider failed
│   ├── ProviderUnavailable   it cannot be reached, or did not answer in time
│   ├── ProviderRefused       it wants other credentials (401, 403)
│   └── ProviderAnswerError   it answered something we cannot use
└── NotServed                 there is nothing to answer with; carries the wire's error code
    ├── NoMetrics             no metrics at all yet
    ├── StaleMetrics          the last metrics are older than the expiry
    ├── UnknownNode           metrics, but none for this node
    └── UnknownWindow         not one of the configured windows

A payload that is not what the contract says is a ``wire.WireError``, a ValueError: ``wire`` is a leaf.
"""

from collections.abc import Sequence
from typing import ClassVar

from runtime import masking
from watcher.wire import ErrorCode


class WatcherError(Exception):
    """The root of the tree above. Its message holds no secrets."""

    def __init__(self, message: str = "") -> None:
        super().__init__(masking.masked(message))


class SettingsError(WatcherError):
    """One or more settings cannot be used; ``problems`` has a line for each."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(map(masking.said, problems))
        count = "1 setting" if len(self.problems) == 1 else f"{len(self.problems)} settings"
        super().__init__("\n  ".join([f"{count} cannot be used:", *self.problems]))


class ProviderError(WatcherError):
    """A metrics provider failed. What it said itself is on one line."""

    def __init__(self, message: str = "") -> None:
        super().__init__(masking.said(message))


class ProviderUnavailable(ProviderError):
    """The provider cannot be reached, or did not answer in time."""


class ProviderRefused(ProviderError):
    """The provider wants other credentials."""


class ProviderAnswerError(ProviderError):
    """The provider answered something we cannot use."""


class NotServed(WatcherError):
    """There is nothing to answer with: ``what``, which anyone may know, and why, which may name a provider."""

    code: ClassVar[ErrorCode]

    def __init__(self, what: str, why: str = "") -> None:
        self.what = what
        super().__init__(f"{what}: {why}" if why else what)


class NoMetrics(NotServed):
    """No metrics at all yet."""

    code = ErrorCode.NO_METRICS


class StaleMetrics(NotServed):
    """The last metrics are older than the expiry."""

    code = ErrorCode.STALE


class UnknownNode(NotServed):
    """There are metrics, but none for this node."""

    code = ErrorCode.UNKNOWN_NODE


class UnknownWindow(NotServed):
    """Not one of the configured windows."""

    code = ErrorCode.UNKNOWN_WINDOW
