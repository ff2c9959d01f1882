"""Recovery of the snapshots that the previous run stored, to serve them until new ones have been fetched."""

import threading
from collections.abc import Callable, Mapping, Sequence

from watcher.freshness import CLOCK_CORRECTION_SECONDS
from watcher.model import WatcherMetrics
from watcher.store import Store


class SnapshotRecovery:
    """Loads the newest stored snapshot of each window at the start. Safe to use from several threads.

    Loading one window of a large cluster takes a good part of a second. So the first window is published before the
    other windows are loaded. They are loaded when one of them is requested, or right before the first fetch.

    Args:
        store: the store to load from.
        sources: names of the providers whose snapshots are loaded.
        windows: windows to load, the default window first.
        publish: function that serves snapshots; called with all snapshots that were loaded so far, by window.
        clock: function that returns Unix seconds. Snapshots from more than 5 seconds in the future are never published.
    """

    def __init__(
        self,
        store: Store,
        sources: Sequence[str],
        windows: Sequence[str],
        publish: Callable[[Mapping[str, WatcherMetrics]], None],
        clock: Callable[[], float],
    ) -> None:
        """Load and publish the first of the windows that the store has a snapshot of."""
        self._store = store
        self._sources = sources
        self._windows = tuple(dict.fromkeys(windows))
        self._publish = publish
        self._clock = clock
        self._lock = threading.Lock()
        self._unread: list[str] = []
        self._read: dict[str, WatcherMetrics] = {}
        self._until = 0.0
        self._is_wanted = True
        self._seen_opening = 0  # value of store.times_opened at the last attempt
        self._recover()

    def retry(self) -> None:
        """Load snapshots if the database file has been opened since the last attempt, for example after an error.

        Nothing is loaded if stored or newer snapshots have been published already.
        """
        self._store.reopen()
        if self._is_wanted and self._store.times_opened != self._seen_opening:
            self._recover()

    def publish_remaining(self) -> bool:
        """Load and publish the windows that were not loaded yet; return False if no window was left to load."""
        if not self._unread:
            return False
        with self._lock:
            self._publish_with(*self._unread)
            self._unread, self._read = [], {}
        return True

    def discard(self) -> None:
        """Stop publishing stored snapshots, because there are newer ones or the age of the stored ones is unknown."""
        self._is_wanted = False
        with self._lock:
            self._unread, self._read = [], {}

    def _recover(self) -> None:
        self._seen_opening = self._store.times_opened
        self._until = self._clock() + CLOCK_CORRECTION_SECONDS
        self._store.forget_snapshots(since=self._until)  # otherwise the next restart could publish them
        unread = list(self._windows)
        while unread and not self._read:
            self._publish_with(unread.pop(0))
        self._is_wanted = not self._read
        self._unread = unread

    def _publish_with(self, *windows: str) -> None:
        loaded = self._store.load_snapshots(self._sources, windows, self._until)
        if loaded:
            self._read |= loaded
            self._publish(self._read)
