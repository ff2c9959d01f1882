"""Newest load of nodes and use of workloads, read from a watcher in the background, for the scheduling thread.

Without usable metrics the nodes are scored by the fallback policy; scheduling never waits for metrics.
"""

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from client import ClientError, Collector, WatcherClient
from scoring import FallbackPolicy, UseLevels
from trimaran.cluster.measured_nodes import why_unmeasured
from trimaran.cluster.workload_use import WorkloadUse
from trimaran.scheduler.framework.scheduler import Scheduler

if TYPE_CHECKING:
    from watcher.model import WatcherMetrics

_JUDGE_SECONDS = 15.0  # after this time metrics are graded again, because they may have become too old


class LoadReader:
    """Background reader of a watcher.

    Args:
        watcher: client of the watcher; closed with the reader.
        interval_seconds: time between two reads of the load.
        workloads_seconds: time between two reads of the use of workloads; 0 to expect requests.
        policy: decides for each node whether its metrics are trusted.
        clock: Unix time.

    Attributes:
        why_unknown: reason why no node is scored by its load; empty if some are.
    """

    def __init__(
        self,
        watcher: WatcherClient,
        interval_seconds: float,
        workloads_seconds: float,
        policy: FallbackPolicy,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._collector = Collector(watcher, interval_seconds=interval_seconds, max_age_seconds=policy.max_age_seconds)
        self._use = WorkloadUse(watcher, workloads_seconds) if workloads_seconds else None
        self._policy, self._clock = policy, clock
        self._used: tuple[object, UseLevels | None] = (None, None)
        self._judged_at = float("-inf")
        self.why_unknown = "the load has not been read yet"

    def start(self) -> None:
        """Start to read, without waiting for the watcher."""
        threading.Thread(target=self._collector.start, name="first read", daemon=True).start()
        if self._use is not None:
            self._use.start()

    def close(self) -> None:
        """Stop reading, and close the client."""
        if self._use is not None:
            self._use.close()
        self._collector.close()

    def update(self, scheduler: Scheduler) -> None:
        """Let the scheduler score by the newest metrics. For the scheduling thread."""
        snapshot: WatcherMetrics | None = None
        try:
            snapshot = self._collector.snapshot()
        except ClientError as error:
            self.why_unknown = str(error)
        levels = None if self._use is None else self._use.levels()
        data = None if snapshot is None else snapshot.data
        now = self._clock()
        if data is self._used[0] and levels is self._used[1] and abs(now - self._judged_at) < _JUDGE_SECONDS:
            return
        if snapshot is not None:
            self.why_unknown = why_unmeasured(scheduler.state.table.names, snapshot)
        scheduler.use_load(self._policy.judge(scheduler.state.table, snapshot, now), levels)
        self._used, self._judged_at = (data, levels), now
