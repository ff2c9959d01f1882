"""What the run before left in the store: served again before anything is fetched, the default window first."""

import threading
from collections.abc import Callable, Mapping, Sequence

from watcher.freshness import CLOCK_CORRECTION_SECONDS
from watcher.model import WatcherMetrics
from watcher.store import Store


class LastRun:
    """Reads windows from the store, each once. Safe to use from several threads.

    Reading a window of a large cluster takes a good part of a second, so the first is served before the others are
    read, which is when one of them is asked for, or with the first fetch.

    Args:
        store: where they are.
        sources: whose they have to be.
        windows: which there may be, the most wanted first.
        publish: called with all that was read so far, by window.
        clock: unix time. What is of the future when it is looked for is given up, also when that has come.
    """

    def __init__(
        self,
        store: Store,
        sources: Sequence[str],
        windows: Sequence[str],
        publish: Callable[[Mapping[str, WatcherMetrics]], None],
        clock: Callable[[], float],
    ) -> None:
        """Publish the first window that is there."""
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
        self._looked_in = 0  # which opening of the store
        self._look()

    def look_again(self) -> None:
        """Publish what is there if the store could not be opened before, unless something else was published."""
        self._store.reopen()
        if self._is_wanted and self._store.times_opened != self._looked_in:
            self._look()

    def publish_the_rest(self) -> bool:
        """Publish the windows that were not read yet; return whether there were any to look for."""
        if not self._unread:
            return False
        with self._lock:
            self._publish_with(*self._unread)
            self._unread, self._read = [], {}
        return True

    def give_up(self) -> None:
        """Publish no more of it: there is something newer, or nobody knows how old it is."""
        self._is_wanted = False
        with self._lock:
            self._unread, self._read = [], {}

    def _look(self) -> None:
        self._looked_in = self._store.times_opened
        self._until = self._clock() + CLOCK_CORRECTION_SECONDS
        self._store.forget_snapshots(since=self._until)  # else the next restart might find that it has come
        unread = list(self._windows)
        while unread and not self._read:
            self._publish_with(unread.pop(0))
        self._is_wanted = not self._read
        self._unread = unread

    def _publish_with(self, *windows: str) -> None:
        found = self._store.load_snapshots(self._sources, windows, self._until)
        if found:
            self._read |= found
            self._publish(self._read)
