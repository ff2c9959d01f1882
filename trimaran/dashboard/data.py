"""Data of the dashboard's pages, read from a watcher with a viewer's credentials and cached for up to a minute."""

import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from client.errors import ClientError, NoMetrics, UnknownWindow
from trimaran.dashboard.ttl_cache import TTLCache
from watcher.history import History, Steps
from watcher.model import WatcherMetrics

_FRESH_SECONDS = 10.0
_HISTORY_SECONDS = 60.0


class WatcherReader(Protocol):
    """Read access to a watcher, as a Protocol: over HTTP by :class:`client.service.ServiceClient`, or in-process."""

    def metrics(self, window: str | None = None) -> WatcherMetrics:
        """Return the metrics of all nodes in a window; None for the watcher's default window."""
        ...

    def windows(self) -> tuple[str, ...]:
        """Return the windows of the watcher, in its order."""
        ...

    def history(self, *, type: str, operator: str) -> History:  # noqa: A002  the word of the contract
        """Return the history of all nodes over one day, for a metric type and an operator."""
        ...

    def findings(self) -> list[dict[str, Any]]:
        """Return the watcher's findings (problems of the metrics) as JSON objects."""
        ...

    def health(self) -> tuple[str, ...]:
        """Return the reasons why the watcher is unhealthy; empty if it is healthy."""
        ...


class DashboardData:
    """Cached view of a watcher for one viewer. Safe to use from several threads.

    Args:
        client: reads the watcher with the viewer's credentials.
        clock: monotonic time in seconds; tests inject their own.

    Attributes:
        memoize: caches values derived from this data; see :meth:`trimaran.dashboard.ttl_cache.TTLCache.memoize`.
    """

    def __init__(self, client: WatcherReader, clock: Callable[[], float] = time.monotonic) -> None:
        """Create the cache; nothing is read until a page asks for it."""
        self._client = client
        cache = TTLCache(clock)
        self._cached, self.memoize = cache.get, cache.memoize

    def snapshot(self) -> WatcherMetrics:
        """Return the newest snapshot of the watcher's default window.

        Raises:
            ClientError: no snapshot is available.
        """
        return self._cached("snapshot", _FRESH_SECONDS, self._client.metrics)

    def windows(self) -> Mapping[str, WatcherMetrics]:
        """Return the newest metrics for each window of the watcher that has metrics, by window."""
        return self._cached("windows", _FRESH_SECONDS, self._read_windows)

    def history(self, type_: str, operator: str) -> History:
        """Return the history of all nodes over one day, for a metric type and an operator; empty without a history."""

        def read() -> History:
            try:
                return self._client.history(type=type_, operator=operator)
            except (ClientError, ValueError):  # an older watcher, or load-watcher in Go, has no /history
                return History((), Steps(0, 60, 1), ())

        return self._cached(("history", type_, operator), _HISTORY_SECONDS, read)

    def findings(self) -> list[dict[str, Any]]:
        """Return the watcher's findings (problems of the metrics) as JSON objects; empty without a findings API."""
        _, findings = self._cached("state", _FRESH_SECONDS, self._read_state)
        if isinstance(findings, ClientError):
            raise findings
        return findings

    def health(self) -> tuple[str, ...]:
        """Return the reasons why the watcher is unhealthy; empty if it is healthy."""
        return self._cached("state", _FRESH_SECONDS, self._read_state)[0]

    def _read_state(self) -> tuple[tuple[str, ...], list[dict[str, Any]] | ClientError]:
        # Together, so that a page does not show the health after one fetch with the findings of another.
        health = self._client.health()
        try:
            return health, self._client.findings()
        except ClientError as error:
            return health, error

    def _read_windows(self) -> Mapping[str, WatcherMetrics]:
        snapshots: dict[str, WatcherMetrics] = {}
        try:
            windows = self._client.windows()
        except NoMetrics:
            return snapshots
        for window in windows:
            try:
                snapshots[window] = self._client.metrics(window)
            except (UnknownWindow, NoMetrics):
                continue
        return snapshots


class PageAccess(Protocol):
    """Access control of the dashboard, for a watcher over HTTP (``remote``) or in the same process (``embedded``)."""

    def admit(self, token: str | None) -> DashboardData:
        """Return the data that a viewer with this token may see.

        Raises:
            AccessDenied: the watcher does not accept the token.
            ValueError: the token has characters that an HTTP header cannot carry.
        """
        ...


def aligned_values(names: tuple[str, ...], history: History, type_: str, operator: str) -> NDArray[np.float32]:
    """Return the values of a history with one row per name, shape (names, steps); NaN where a value is missing."""
    values = np.full((len(names), history.steps.count), np.nan, np.float32)
    if history.series:
        rows = {name: row for row, name in enumerate(history.nodes)}
        matches = [(row, rows[name]) for row, name in enumerate(names) if name in rows]
        if matches:
            targets, sources = zip(*matches, strict=True)
            values[list(targets)] = history.of(type_, operator)[list(sources)]
    return values
