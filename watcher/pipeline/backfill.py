"""Backfill: fills gaps of the history from a provider that knows the past, in the background.

There is a gap on the first day, after an outage of the watcher, and after failed fetches. Each gap is read in chunks of
at most an hour, the newest first, between fetches, so that no fetch is delayed. After a restart only the gaps that
remain are read.
"""

import contextlib
import logging
import math
import threading
import time
from collections.abc import Iterator, Sequence

from runtime.http.budget import use_budget
from runtime.http.gather import Deadline
from runtime.threads import start_thread
from watcher.errors import ProviderError
from watcher.history import RESOLUTION_SECONDS
from watcher.model import WatcherMetrics
from watcher.providers.base import PastProvider
from watcher.settings import WatchSettings
from watcher.store import Store

_log = logging.getLogger(__name__)
_HOUR_MINUTES = 60
_FULL_RESOLUTION_NODES = 1000  # with more nodes, one minute of five is filled: a day of 5,000 nodes takes half a minute
_COARSE_MINUTES = 5
_CHUNK_SHARE = 0.25  # share of the interval; after a chunk that takes longer, chunks get shorter
_RETRY_SECONDS = 300.0
_STOP_SECONDS = 2.0


class Backfill:
    """Background thread that fills the gaps of the history.

    Args:
        provider: the provider; None if there is no provider that knows the past.
        source: the provider's name.
        store: the store of the history.
        sources: names of all sources whose values the history shows.
        settings: the windows, the interval, and the limits of a fetch, which hold for each chunk, too.
        hours: number of hours before the present that are filled; 0 fills nothing.
    """

    def __init__(
        self,
        provider: PastProvider | None,
        source: str,
        store: Store,
        sources: Sequence[str],
        settings: WatchSettings,
        hours: float,
    ) -> None:
        self._provider, self._source, self._store, self._sources = provider, source, store, sources
        self._settings, self._hours = settings, hours
        self._window = settings.fallback_order()[0]
        self._nodes = 0  # in the newest snapshot
        self._recorded = 0  # minute of the newest snapshot; 0 before the first one
        self._since: int | None = None  # minute from which gaps have to be filled; None if there are none
        self._chunk_minutes = _HOUR_MINUTES
        self._chunk_seconds = 0.0
        self._next_fetch = math.inf
        self._fetching = False
        self._stopped = threading.Event()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    @contextlib.contextmanager
    def fetch(self) -> Iterator[None]:
        """Return a context manager for a fetch: while its block runs, no chunk starts."""
        with self._changed:
            self._fetching = True
            self._next_fetch = time.monotonic() + self._settings.interval_seconds
        try:
            yield
        finally:
            with self._changed:
                self._fetching = False
                self._changed.notify_all()

    def note(self, snapshot: WatcherMetrics | None) -> None:
        """Record the snapshot that a fetch added to the history; fill the gap before it, if there is one."""
        if snapshot is None or self._provider is None or not self._hours or not self._store.keeps_history:
            return
        minute, before = snapshot.timestamp // RESOLUTION_SECONDS, self._recorded
        self._nodes, self._recorded = len(snapshot.data), minute
        if minute - before > 2 * self._step_minutes():
            self._add_gap(max(before, minute - math.floor(self._hours * _HOUR_MINUTES)))

    def start(self) -> None:
        """Start to fill gaps in a background thread, if there is a provider that knows the past."""
        if self._provider is not None and self._hours:
            self._thread = start_thread(self._run, "backfill")

    def stop(self) -> None:
        """Prevent further chunks."""
        self._stopped.set()
        with self._changed:
            self._changed.notify_all()

    def join(self) -> None:
        """Wait a moment for the chunk in progress, which ends when its provider is closed."""
        if self._thread is not None:
            self._thread.join(_STOP_SECONDS)

    def fill_once(self) -> None:
        """Fill the gaps that are known. The background thread calls this method; tests can call it directly.

        Raises:
            ProviderError: the provider failed; the gaps remain known.
        """
        with self._changed:
            since, self._since = self._since, None
        if since is None:
            return
        try:
            self._fill(since, self._recorded)
        except Exception:
            self._add_gap(since)
            raise

    def _run(self) -> None:
        while not self._stopped.is_set():
            with self._changed:
                self._changed.wait_for(lambda: self._stopped.is_set() or self._since is not None)
            try:
                self.fill_once()
            except Exception as error:  # noqa: BLE001  a provider may raise anything
                trace = None if isinstance(error, ProviderError) else error
                if not self._stopped.is_set():
                    _log.warning("the history cannot be filled", extra={"error": str(error)}, exc_info=trace)
                    self._stopped.wait(_RETRY_SECONDS)

    def _add_gap(self, since: int) -> None:
        with self._changed:
            self._since = since if self._since is None else min(since, self._since)
            self._changed.notify_all()

    def _fill(self, since: int, until: int) -> None:
        """Fill the gaps from the minute ``since`` to the one before ``until``, the newest hours first.

        Raises:
            ProviderError: the provider failed.
        """
        began, filled = time.monotonic(), 0
        for hour in range((until - 1) // _HOUR_MINUTES, since // _HOUR_MINUTES - 1, -1):
            for ends in self._gaps(hour, since, until):
                if not self._wait_for_turn():
                    return
                filled += self._fill_chunk(ends)
        if filled:
            _log.info(
                "gaps of the history are filled",
                extra={"values": filled, "source": self._source, "seconds": round(time.monotonic() - began, 1)},
            )

    def _gaps(self, hour: int, since: int, until: int) -> Iterator[range]:
        """Yield the chunks of an hour that are missing, the newest first, as ranges of Unix seconds."""
        step = self._step_minutes()
        recorded = self._store.recorded_minutes(self._sources, hour)
        first = hour * _HOUR_MINUTES
        missing = [
            minute
            for minute in range(first + -first % step, min(first + _HOUR_MINUTES, until), step)
            if minute >= since and not recorded[minute - first : minute - first + step].any()
        ]
        while missing:
            chunk = max(1, self._chunk_minutes // step)
            start = next(
                (each for each in range(len(missing) - 1, 0, -1) if missing[each] - missing[each - 1] != step), 0
            )
            start = max(start, len(missing) - chunk)
            ends, missing = missing[start:], missing[:start]
            yield range(ends[0] * RESOLUTION_SECONDS, (ends[-1] + step) * RESOLUTION_SECONDS, step * RESOLUTION_SECONDS)

    def _fill_chunk(self, ends: range) -> int:
        """Read and store a chunk, in two halves if it cannot be read at once; return the number of stored values."""
        assert self._provider is not None  # noqa: S101
        from watcher.quality.past_values import clean_past  # imports numpy, which is slow

        began = time.monotonic()
        try:
            with use_budget(self._settings.fetch_budget()):
                past = self._provider.past(self._window, ends, Deadline.after(self._settings.fetch_timeout_seconds))
        except ProviderError:
            if len(ends) == 1 or self._stopped.is_set():
                raise
            middle = len(ends) // 2
            self._chunk_minutes = max(1, self._chunk_minutes // 2)
            return sum(self._fill_chunk(half) for half in (ends[middle:], ends[:middle]) if self._wait_for_turn())
        if self._stopped.is_set():
            return 0  # the store may be closed
        past = clean_past(past, self._settings.max_nodes)
        self._store.fill_history(past, self._source)
        self._chunk_seconds = time.monotonic() - began
        share = self._chunk_seconds / self._settings.interval_seconds
        if share > _CHUNK_SHARE:
            self._chunk_minutes = max(self._step_minutes(), self._chunk_minutes // 2)
        elif share < _CHUNK_SHARE / 2:
            self._chunk_minutes = min(_HOUR_MINUTES, 2 * self._chunk_minutes)
        return sum(int((values == values).sum()) for values in past.series.values())  # noqa: PLR0124  not NaN

    def _wait_for_turn(self) -> bool:
        """Wait until no fetch is in progress, nor due before the next chunk would end; return False after a stop."""
        half = self._settings.interval_seconds / 2  # of each interval may be used, however long a chunk takes

        def is_free() -> bool:
            left = self._next_fetch - time.monotonic()
            return self._stopped.is_set() or (not self._fetching and (left > half or left > 2 * self._chunk_seconds))

        with self._changed:
            self._changed.wait_for(is_free)
            return not self._stopped.is_set()

    def _step_minutes(self) -> int:
        """Return the number of minutes from one filled minute to the next."""
        interval = math.ceil(self._settings.interval_seconds / RESOLUTION_SECONDS)
        return max(interval, 1 if self._nodes <= _FULL_RESOLUTION_NODES else _COARSE_MINUTES)
