"""A recent copy of a watcher's metrics, refreshed in the background."""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, fields
from types import TracebackType
from typing import Self

from client import arguments
from client.connecting import WatcherClient
from client.errors import ClientError, NoMetrics, StaleMetrics
from runtime.outage_log import OutageLog
from runtime.threads import start_thread
from watcher.model import Grade, WatcherMetrics

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, repr=False)
class Snapshot(WatcherMetrics):
    """A watcher's metrics, with their age and quality.

    Attributes:
        age_seconds: age of the metrics when :meth:`Collector.snapshot` was called.
        grade: empty if the metrics are as requested, else the worst :class:`~watcher.Grade` of the nodes.
        failure: reason why the last refresh failed; empty if it succeeded.
    """

    age_seconds: float = 0.0
    grade: str = ""
    failure: str = ""


@dataclass(frozen=True, slots=True)
class _CachedMetrics:
    metrics: WatcherMetrics
    grade: str
    age_when_read: float
    read_at: float  # monotonic seconds; this clock stops while the machine is suspended
    read_at_time: float  # Unix seconds; this clock can be set


class Collector:
    """Background refresh of metrics, by default every 30 seconds. A failed refresh keeps the last metrics.

    The collector owns its client: closing the collector closes the client. :meth:`snapshot` never waits, and may be
    called from any thread. Use it as a context manager, or call :meth:`start` and :meth:`close`.
    """

    def __init__(
        self,
        client: WatcherClient,
        *,
        interval_seconds: float = 30,
        max_age_seconds: float = 300,
        window: str | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Create the collector; nothing is read yet.

        Args:
            client: client from :func:`client.connect`.
            interval_seconds: time between refreshes.
            max_age_seconds: age from which :meth:`snapshot` refuses metrics.
            window: window to read, such as ``5m``; None for the watcher's choice.
            clock: function that returns Unix seconds; for tests.

        Raises:
            ValueError: a number of seconds is not above 0, or is above one year.
            TypeError: the client is not a watcher client.
        """
        if not hasattr(client, "metrics"):
            raise TypeError(f"client: must be a client, such as connect(...), got a {type(client).__name__}")
        self._client = client
        self._interval = arguments.seconds("interval_seconds", interval_seconds)
        self._max_age = arguments.seconds("max_age_seconds", max_age_seconds)
        self._window = window
        self._clock = clock
        self._cached: _CachedMetrics | None = None
        self._failure = "no metrics have been read yet: call start() or refresh()"
        self._outage = OutageLog(_log, "metrics cannot be refreshed", "metrics are refreshed again")
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()

    def start(self) -> Self:
        """Read once, then start to refresh in the background. If the first read fails, it is retried, not raised.

        If the collector is started already, this does nothing.

        Raises:
            RuntimeError: the collector and its client are closed.
        """
        with self._starting:
            if self._stop.is_set():
                raise RuntimeError("this collector and its client are closed: create new ones")
            if self._thread is None:
                self._refresh_safely()
                # The thread ends at once if the collector was closed meanwhile.
                self._thread = start_thread(self._run, "collector")
        return self

    def refresh(self) -> bool:
        """Read the metrics now; return True on success, even if the watcher has no newer metrics.

        Exceptions other than :class:`~client.ClientError` are raised here, and logged in the background.
        """
        try:
            metrics = self._client.metrics(self._window)
            if not metrics.data:
                # /compat returns an empty snapshot if no metrics are fresh.
                raise NoMetrics("the watcher has no fresh metrics; GET /watcher/health has the reason")
        except ClientError as error:
            self._outage.failed(str(error))
            self._failure = str(error)
            return False
        self._outage.worked()
        cached = self._cached
        # Replicas behind one address may be one fetch apart, so older metrics do not replace newer ones, unless the
        # cached ones are too old, or so far in the future that the watcher's clock must have been wrong.
        if cached is None or metrics.timestamp >= cached.metrics.timestamp or self._has_invalid_age(cached):
            age = max(0.0, self._clock() - metrics.timestamp)
            if cached is not None and metrics.timestamp == cached.metrics.timestamp:
                age = max(age, self._age_seconds(cached))  # unchanged metrics are not younger, even if a clock was set
            self._cached = _CachedMetrics(metrics, _worst_grade(metrics), age, time.monotonic(), self._clock())
        self._failure = ""
        return True

    def snapshot(self) -> Snapshot:
        """Return the newest metrics.

        Raises:
            NoMetrics: no metrics have been read yet; the message has the reason.
            StaleMetrics: the metrics are older than ``max_age_seconds``.
        """
        cached, failure = self._cached, self._failure
        if cached is None:
            raise NoMetrics(failure)
        age = self._age_seconds(cached)
        if age > self._max_age:
            raise StaleMetrics(
                f"the metrics are {age:.0f} s old, max_age_seconds is {self._max_age:.0f}"
                f"{f'; the last refresh failed: {failure}' if failure else ''}"
            )
        values = {field.name: getattr(cached.metrics, field.name) for field in fields(WatcherMetrics)}
        return Snapshot(**values, age_seconds=age, grade=cached.grade, failure=failure)

    def close(self) -> None:
        """Stop refreshing and close the client."""
        self._stop.set()
        self._client.close()
        if self._thread is not None:
            self._thread.join(timeout=5)

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:  # for example KeyboardInterrupt: nothing else would close the client
            self.close()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _run(self) -> None:
        while not self._stop.wait(self._interval):
            self._refresh_safely()

    def _refresh_safely(self) -> None:
        try:
            self.refresh()
        except Exception as error:  # noqa: BLE001
            # The cached metrics stay valid until snapshot() finds them too old.
            _log.exception("the refresh failed unexpectedly")
            self._failure = f"unexpected: {type(error).__name__}: {error}"

    def _has_invalid_age(self, cached: _CachedMetrics) -> bool:
        """Return whether metrics are too old, or too far in the future."""
        return self._age_seconds(cached) > self._max_age or cached.metrics.timestamp - self._clock() > self._max_age

    def _age_seconds(self, cached: _CachedMetrics) -> float:
        # The larger difference counts: Unix time may be set back, and the monotonic clock stops during suspension.
        passed = max(time.monotonic() - cached.read_at, self._clock() - cached.read_at_time)
        return cached.age_when_read + passed


def _worst_grade(metrics: WatcherMetrics) -> str:
    """Return the worst grade of the nodes: last_good, then shorter_window, then any other grade, such as unchecked."""
    grades = {str(each["grade"]) for each in metrics.metadata.values() if "grade" in each}
    return next(
        (grade for grade in (Grade.LAST_GOOD, Grade.SHORTER_WINDOW) if grade in grades), min(grades, default="")
    )
