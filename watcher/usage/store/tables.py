"""State of the learner and past use of pods in the watcher's store: the same file, by the same connection."""

from collections.abc import Callable, Mapping

from watcher.store import Store
from watcher.usage.store import pod_use, workload_state


class UsageTables:
    """Tables of pod use in a watcher's store. Safe to use from several threads.

    A failed write does not raise an error, see :class:`~watcher.store.Store`. Without a usable file nothing is written.

    Args:
        store: the watcher's store.
        source: name of the source of the measurements.
    """

    def __init__(self, store: Store, source: str) -> None:
        self._store, self._key = store, (source, store.origin(source))

    def save_state(self, state: Callable[[set[str]], Mapping[str, bytes | None]]) -> None:
        """Write the state of the learner in one transaction.

        Args:
            state: function that returns the state's parts by name, given the names of the stored parts; None keeps a
                stored part.
        """
        if not self._store.has_file:
            return
        stored: set[str] = set()
        with self._store.reading() as db:
            stored = workload_state.names(db, *self._key)
        parts = state(stored)
        self._store.write(lambda db: workload_state.replace(db, *self._key, parts))

    def load_state(self) -> dict[str, bytes]:
        """Return the parts of the state of the learner by name; empty if nothing is stored."""
        parts: dict[str, bytes] = {}
        with self._store.reading() as db:
            parts |= workload_state.load(db, *self._key)
        return parts

    def save_pods(self, changes: pod_use.PodUseChanges) -> None:
        """Write the changes of the past use of pods by one round in one transaction."""
        if self._store.has_file:
            self._store.write(lambda db: pod_use.write(db, *self._key, changes))

    def load_pods(self) -> pod_use.StoredPodUse:
        """Return the stored pods and the blocks of their past use; empty if nothing is stored."""
        found: list[pod_use.StoredPodUse] = []
        with self._store.reading() as db:
            found.append(pod_use.load(db, *self._key))
        return found[0] if found else pod_use.StoredPodUse([], {})
