"""Data of the dashboard's pages, read from a watcher with a viewer's credentials and cached for up to a minute."""

import threading
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from client.errors import ClientError, NoMetrics, UnknownWindow
from runtime.kubernetes.workloads import Workload
from trimaran.dashboard.ttl_cache import TTLCache
from trimaran.dashboard.workload_list import WorkloadList
from watcher.history import History, Steps
from watcher.model import WatcherMetrics
from watcher.pod_use_table import PodUseTable
from watcher.workload_table import ClusterTotals

_FRESH_SECONDS = 10.0
_HISTORY_SECONDS, _STALE_SECONDS = 60.0, 120.0
_NO_HISTORY = History((), Steps(0, 60, 1), ())
_RETRY_SECONDS = 20.0  # between a failed read of the history and the next one: a read may block until its time limit


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

    def workload_document(self) -> dict[str, Any]:
        """Return all workloads with their containers and recommended requests, as JSON."""
        ...

    def workload_detail(self, workload: Workload) -> dict[str, Any]:
        """Return the JSON of a workload, with its use by hour and by day; empty if the workload is unknown."""
        ...

    def workload_totals(self) -> ClusterTotals:
        """Return capacity, requests and use of all pods together in the rounds of the last day."""
        ...

    def pod_history(self, nodes: Collection[str]) -> PodUseTable:
        """Return the use of the pods on the given nodes over the last day."""
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
        self._workloads: WorkloadList | None = None
        self._workloads_round = 0.0  # end of the round whose workloads were read, or are being read
        self._workloads_lock = threading.Lock()
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
        """Return the history of all nodes over one day, for a metric type and an operator.

        The history is empty if the watcher has none or reading it fails; see :meth:`history_failure`.
        """
        return self._read_history(type_, operator)[0]

    def history_failure(self, type_: str, operator: str) -> str:
        """Return the reason why a history cannot be read, in one line; empty if there is no such reason."""
        return self._read_history(type_, operator)[1]

    def findings(self) -> list[dict[str, Any]]:
        """Return the watcher's findings (problems of the metrics) as JSON objects; empty without a findings API."""
        _, findings = self._cached("state", _FRESH_SECONDS, self._read_state)
        if isinstance(findings, ClientError):
            raise findings
        return findings

    def health(self) -> tuple[str, ...]:
        """Return the reasons why the watcher is unhealthy; empty if it is healthy."""
        return self._cached("state", _FRESH_SECONDS, self._read_state)[0]

    def totals(self) -> ClusterTotals:
        """Return capacity, requests and use of all pods together over the last day.

        Raises:
            ClientError: no round of pod use is known; the message has the reason.
        """
        return self._cached("totals", _FRESH_SECONDS, self._client.workload_totals)

    def workloads(self) -> WorkloadList:
        """Return all workloads of the newest round; while these are being read, the workloads of the round before.

        Raises:
            ClientError: no workload is known, or the viewer may not see any.
        """
        round_end = float(self.totals().times[-1])
        with self._workloads_lock:
            known = self._workloads
            if known is None:
                known = self._workloads = self._read_workloads()
                self._workloads_round = round_end
            elif self._workloads_round != round_end:
                self._workloads_round = round_end
                threading.Thread(target=self._refresh_workloads, daemon=True).start()
            return known

    def workload(self, workload: Workload) -> dict[str, Any]:
        """Return the JSON of a workload; empty if the workload is unknown."""
        return self._client.workload_detail(workload)

    def pods_on(self, nodes: Collection[str]) -> PodUseTable:
        """Return the use of the pods on at most 100 nodes over the last day.

        Raises:
            ClientError: no pod has been measured, or the viewer may not see pods.
        """
        return self._client.pod_history(nodes)

    def _read_history(self, type_: str, operator: str) -> tuple[History, str]:
        def read() -> History:
            try:
                return self._client.history(type=type_, operator=operator)
            except (NoMetrics, ValueError):  # an older watcher, or load-watcher in Go, has no /history
                return _NO_HISTORY

        def read_or_fail() -> tuple[History, str]:
            try:
                key = "history", type_, operator
                return self._cached(key, _HISTORY_SECONDS, read, _STALE_SECONDS), ""
            except ClientError as error:
                return _NO_HISTORY, str(error)

        return self._cached(("history or failure", type_, operator), _RETRY_SECONDS, read_or_fail)

    def _read_workloads(self) -> WorkloadList:
        return WorkloadList.read(self._client.workload_document())

    def _refresh_workloads(self) -> None:
        """Read the workloads of a new round; if this fails, the next page load reads them and shows the error."""
        try:
            workloads = self._read_workloads()
        except ClientError:
            workloads = None
        with self._workloads_lock:
            self._workloads = workloads

    def _read_state(self) -> tuple[tuple[str, ...], list[dict[str, Any]] | ClientError]:
        # Read both at once: a page must not show the health after one fetch with the findings of another.
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
