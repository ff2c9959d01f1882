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
    """

    def __init__(
        self,
        store: Store,
        sources: Sequence[str],
        windows: Sequence[str],
        publish: Callable[[Mapping[str, WatcherMetrics]], None],
        now: float,
    ) -> None:
        """Publish the first window that is there.

        Args:
            store: where they are.
            sources: whose they have to be.
            windows: which there may be, the most wanted first.
            publish: called with all that was read so far, by window.
            now: unix seconds; what is of the future now is given up, also when that has come.
        """
        self._store = store
        self._sources = sources
        self._unread = list(dict.fromkeys(windows))
        self._read: dict[str, WatcherMetrics] = {}
        self._publish = publish
        self._until = now + CLOCK_CORRECTION_SECONDS
        self._lock = threading.Lock()
        store.forget_snapshots(since=self._until)  # else the next restart might find that it has come
        while self._unread and not self._read:
            self._publish_with(self._unread.pop(0))

    def publish_the_rest(self) -> bool:
        """Publish the windows that were not read yet; return whether there were any to look for."""
        if not self._unread:
            return False
        with self._lock:
            self._publish_with(*self._unread)
            self._unread, self._read = [], {}
        return True

    def _publish_with(self, *windows: str) -> None:
        found = self._store.load_snapshots(self._sources, windows, self._until)
        if found:
            self._read |= found
            self._publish(self._read)
