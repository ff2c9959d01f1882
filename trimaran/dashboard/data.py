"""What the page shows, as a reader sees the watcher, and kept for a moment, as several people may look at once."""

import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from client.errors import ClientError, NoMetrics, UnknownWindow
from trimaran.dashboard.result_store import Kept
from watcher.history import History, Steps
from watcher.model import WatcherMetrics

_WINDOWS = ("15m", "10m", "5m")
_FRESH_SECONDS = 10.0
_HISTORY_SECONDS = 60.0


class Source(Protocol):
    """Where it is read: :class:`client.service.ServiceClient` has it, and the page within a watcher its own."""

    def metrics(self, window: str | None = None) -> WatcherMetrics:
        """Return all nodes' metrics."""
        ...

    def history(self, *, type: str, operator: str) -> History:  # noqa: A002  the word of the contract
        """Return a day of one metric of all nodes."""
        ...

    def findings(self) -> list[dict[str, Any]]:
        """Return what is wrong with the metrics."""
        ...

    def health(self) -> tuple[str, ...]:
        """Return why the watcher is not healthy."""
        ...


class Data:
    """A watcher as one reader may see it. Safe to use from several threads.

    Args:
        client: with the reader's credentials.
        clock: seconds that only grow; tests inject their own.

    Attributes:
        made: keeps what is made of these; see :meth:`trimaran.dashboard.result_store.Kept.made`.
    """

    def __init__(self, client: Source, clock: Callable[[], float] = time.monotonic) -> None:
        """Read nothing yet."""
        self._client = client
        kept = Kept(clock)
        self._keep, self.made = kept.read, kept.made

    def snapshot(self) -> WatcherMetrics:
        """Return the newest snapshot of the watcher's choice.

        Raises:
            ClientError: there is none.
        """
        return self._keep("snapshot", _FRESH_SECONDS, self._client.metrics)

    def windows(self) -> Mapping[str, WatcherMetrics]:
        """Return the newest snapshot of each window that the watcher keeps and has."""
        return self._keep("windows", _FRESH_SECONDS, self._read_windows)

    def history(self, type_: str, operator: str) -> History:
        """Return a day of one metric of all nodes; empty where the watcher keeps none."""

        def read() -> History:
            try:
                return self._client.history(type=type_, operator=operator)
            except (ClientError, ValueError):  # an older watcher, or one in Go
                return History((), Steps(0, 60, 1), ())

        return self._keep(("history", type_, operator), _HISTORY_SECONDS, read)

    def findings(self) -> list[dict[str, Any]]:
        """Return what is wrong; nothing where the watcher cannot say."""
        return self._keep("findings", _FRESH_SECONDS, self._client.findings)

    def health(self) -> tuple[str, ...]:
        """Return why the watcher is not healthy."""
        return self._keep("health", _FRESH_SECONDS, self._client.health)

    def _read_windows(self) -> Mapping[str, WatcherMetrics]:
        found = {}
        for window in _WINDOWS:
            try:
                found[window] = self._client.metrics(window)
            except (UnknownWindow, NoMetrics):
                continue
        return found


class Readers(Protocol):
    """Who may look: at a watcher elsewhere (``outside``), or at the one that the page is a part of (``inside``)."""

    def admit(self, token: str | None) -> Data:
        """Return what a reader with this token sees.

        Raises:
            AccessDenied: the watcher wants another token.
            ValueError: no header can carry the token.
        """
        ...


def aligned(names: tuple[str, ...], history: History, type_: str, operator: str) -> NDArray[np.float32]:
    """Return a history's values for these nodes in their order, nodes x steps; NaN where there is nothing."""
    values = np.full((len(names), history.steps.count), np.nan, np.float32)
    if history.series:
        rows = {name: row for row, name in enumerate(history.nodes)}
        known = [(row, rows[name]) for row, name in enumerate(names) if name in rows]
        if known:
            ours, theirs = zip(*known, strict=True)
            values[list(ours)] = history.of(type_, operator)[list(theirs)]
    return values
