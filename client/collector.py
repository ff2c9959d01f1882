"""A fresh copy of a watcher's metrics, kept in the background."""

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
from watcher.model import Grade, WatcherMetrics

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, repr=False)
class Snapshot(WatcherMetrics):
    """A watcher's metrics, and how far to trust them.

    Attributes:
        age_seconds: time since they were taken, when :meth:`Collector.snapshot` was called.
        grade: empty when they are what was asked for, else the worst :class:`~watcher.Grade` among the nodes.
        failure: why the last refresh failed; empty when it worked.
    """

    age_seconds: float = 0.0
    grade: str = ""
    failure: str = ""


@dataclass(frozen=True, slots=True)
class _Held:
    metrics: WatcherMetrics
    grade: str
    age_when_read: float
    read_at: float  # on the monotonic clock, which does not count while the machine is suspended
    read_at_time: float  # unix time, which can be set


class Collector:
    """Refreshes every 30 seconds; a failed refresh never costs the data that are there.

    It owns the client: closing the collector closes it. :meth:`snapshot` may be called from any thread and never waits.
    Use it as a context manager, or call :meth:`start` and :meth:`close`.
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
        """Prepare; nothing is read yet.

        Args:
            client: from :func:`client.connect`.
            interval_seconds: time between refreshes.
            max_age_seconds: older data are refused by :meth:`snapshot`.
            window: exactly this one, or the watcher's choice when None.
            clock: unix time; tests inject their own.

        Raises:
            ValueError: a number of seconds is not above 0, or is above a year.
        """
        self._client = client
        self._interval = arguments.seconds("interval_seconds", interval_seconds)
        self._max_age = arguments.seconds("max_age_seconds", max_age_seconds)
        self._window = window
        self._clock = clock
        self._held: _Held | None = None
        self._failure = "nothing was read yet"
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()

    def start(self) -> Self:
        """Read once, then keep reading in the background. A first read that fails is repeated, not raised.

        Started already, it does nothing.

        Raises:
            RuntimeError: it is closed, and its client with it: make new ones.
        """
        with self._starting:
            if self._stop.is_set():
                raise RuntimeError("this collector is closed, and its client with it: make new ones")
            if self._thread is None:
                self._refresh_whatever_happens()
                self._thread = threading.Thread(target=self._run, name="collector", daemon=True)
                self._thread.start()  # ends at once where it was closed meanwhile
        return self

    def refresh(self) -> bool:
        """Read now; return whether new data, or a word that there are none newer, came.

        What is no :class:`~client.ClientError` is raised; in the background it is logged.
        """
        try:
            metrics = self._client.metrics(self._window)
            if not metrics.data:
                # What /compat answers when nothing is fresh.
                raise NoMetrics("the watcher has nothing fresh")
        except ClientError as error:
            if self._failure != str(error):
                _log.warning("metrics cannot be refreshed", extra={"error": str(error)})
            self._failure = str(error)
            return False
        if self._failure and self._held:
            _log.info("metrics are refreshed again")
        held = self._held
        # Replicas behind one address may differ by a fetch: do not go back in time, unless what is held is too old, or
        # from so far in the future that the watcher's clock was wrong.
        if held is None or metrics.timestamp >= held.metrics.timestamp or self._is_out_of_time(held):
            age = max(0.0, self._clock() - metrics.timestamp)
            if held is not None and metrics.timestamp == held.metrics.timestamp:
                age = max(age, self._age_seconds(held))  # what is read again is no younger, whatever the clock says now
            self._held = _Held(metrics, _worst_grade(metrics), age, time.monotonic(), self._clock())
        self._failure = ""
        return True

    def snapshot(self) -> Snapshot:
        """Return the newest data.

        Raises:
            NoMetrics: nothing could be read yet; the message says why.
            StaleMetrics: the data are older than ``max_age_seconds``.
        """
        held, failure = self._held, self._failure
        if held is None:
            raise NoMetrics(failure)
        age = self._age_seconds(held)
        if age > self._max_age:
            raise StaleMetrics(
                f"the data are {age:.0f} s old, the limit is {self._max_age:.0f} s"
                f"{f'; the last refresh failed: {failure}' if failure else ''}"
            )
        values = {field.name: getattr(held.metrics, field.name) for field in fields(WatcherMetrics)}
        return Snapshot(**values, age_seconds=age, grade=held.grade, failure=failure)

    def close(self) -> None:
        """Stop refreshing and close the client."""
        self._stop.set()
        self._client.close()
        if self._thread is not None:
            self._thread.join(timeout=5)

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:  # an interrupt, say: nobody else would close the client
            self.close()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _run(self) -> None:
        while not self._stop.wait(self._interval):
            self._refresh_whatever_happens()

    def _refresh_whatever_happens(self) -> None:
        try:
            self.refresh()
        except Exception as error:  # noqa: BLE001
            # What is held stays good until it is too old, and snapshot() says so then.
            _log.exception("the refresh failed unexpectedly")
            self._failure = f"unexpected: {type(error).__name__}: {error}"

    def _is_out_of_time(self, held: _Held) -> bool:
        return self._age_seconds(held) > self._max_age or held.metrics.timestamp - self._clock() > self._max_age

    def _age_seconds(self, held: _Held) -> float:
        # A clock that is set back makes nothing younger; neither does a machine that slept, or was paused, meanwhile.
        passed = max(time.monotonic() - held.read_at, self._clock() - held.read_at_time)
        return held.age_when_read + passed


def _worst_grade(metrics: WatcherMetrics) -> str:
    grades = {str(each["grade"]) for each in metrics.metadata.values() if "grade" in each}
    return next(
        (grade for grade in (Grade.LAST_GOOD, Grade.SHORTER_WINDOW) if grade in grades), min(grades, default="")
    )
