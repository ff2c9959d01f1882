"""Use of each pod over the last day, in memory and in the store, which has blocks of an hour.

Each round of pod use is written in one transaction, so after a kill all complete rounds can be loaded again.
"""

import threading
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

from watcher.store import Store
from watcher.usage.store import UsageTables

if TYPE_CHECKING:
    from runtime.kubernetes.workloads import Workload
    from watcher.pod_use_table import Float64s, PodUseTable
    from watcher.usage.history.pod_day import PodUseDay
    from watcher.usage.sources.pods import RunningPods
    from watcher.windows.container_use import ContainerUse


class PersistentPodUse:
    """Use of a watcher's pods over the last day, loaded from the store and saved to it. Threads may share it.

    Args:
        store: the watcher's store.
        source: name of the source of the measurements in the store.
        courses: returns the mean use of a pod of each workload in each hour of the day.
    """

    def __init__(self, store: Store, source: str, courses: "Callable[[], Mapping[Workload, Float64s]]") -> None:
        self._tables, self._courses = UsageTables(store, source), courses
        self._lock = threading.Lock()
        self._loaded: PodUseDay | None = None

    def observe(self, use: "ContainerUse", pods: "RunningPods", _capacity: object = None) -> None:
        """Add a measurement of all pods, and store it."""
        with self._lock:
            changes = self._day().observe(use, pods)
            if changes is not None:
                self._tables.save_pods(changes)

    def table(self, nodes: Collection[str], uids: Collection[str] = ()) -> "PodUseTable":
        """Return the use of the pods on the given nodes, and of further pods, over the last day."""
        courses = self._courses()
        with self._lock:
            return self._day().table(nodes, uids, courses)

    def _day(self) -> "PodUseDay":
        """Return the use over the last day; the first call loads it from the store."""
        if self._loaded is None:
            from watcher.usage.history.pod_day import PodUseDay  # imports numpy, which is slow

            self._loaded = PodUseDay()
            self._loaded.restore(self._tables.load_pods())
        return self._loaded
