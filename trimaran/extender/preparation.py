"""Preparation of profiles for new metrics and newly learned use of workloads, in a thread of its own.

A profile is prepared from a copy of the node table, without the lock of the cluster view. Later changes of the table
update it. The previous profile is used until the next one is ready, so that no request has to wait.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from scoring import FallbackPolicy, Profile, UseLevels
from scoring.profiles.profile import PreparedProfile
from trimaran.cluster.view import ClusterView
from watcher.model import WatcherMetrics


@dataclass(slots=True)
class _Preparation:
    """Preparation of a profile for a snapshot.

    Attributes:
        snapshot: metrics to score by; None without metrics.
        levels: expected use of pods; None to expect their requests.
        result: the prepared profile.
        previous: earlier preparation that is ready, used until this preparation is ready.
    """

    snapshot: WatcherMetrics | None
    levels: UseLevels | None
    result: "Future[PreparedProfile]"
    previous: "_Preparation | None" = None

    def is_of(self, snapshot: WatcherMetrics | None, levels: UseLevels | None) -> bool:
        """Return whether this is the preparation for the given metrics and levels."""
        return (self.snapshot and self.snapshot.data) is (snapshot and snapshot.data) and self.levels is levels

    def is_ready(self) -> bool:
        return self.result.done() and not self.has_failed()

    def has_failed(self) -> bool:
        return self.result.done() and self.result.exception() is not None


class ProfilePreparer:
    """Thread-safe preparation of profiles, one at a time.

    Args:
        view: the live cluster.
        policy: policy that decides for each node whether its metrics are trusted.
        clock: Unix time.
        levels: returns the expected use of pods; None to expect their requests.

    Attributes:
        thread: the worker thread.
    """

    def __init__(
        self,
        view: ClusterView,
        policy: FallbackPolicy,
        clock: Callable[[], float],
        levels: Callable[[], UseLevels | None],
    ) -> None:
        self._view, self._policy, self._clock, self._levels = view, policy, clock, levels
        self._latest: dict[str, _Preparation] = {}  # by scheduler
        self._lock = threading.Lock()
        self.thread = ThreadPoolExecutor(1, "prioritizer")

    def close(self) -> None:
        """Stop the worker thread."""
        self.thread.shutdown(wait=False, cancel_futures=True)

    def prepare(self, profile: Profile, snapshot: WatcherMetrics | None) -> None:
        """Begin to prepare a profile for a snapshot, unless this preparation is running, done or failed."""
        latest = self._latest.get(profile.scheduler_name)
        if latest is None or not latest.is_of(snapshot, self._levels_for(profile)):
            self._preparation(profile, snapshot)

    def prepared(
        self, profile: Profile, snapshot: WatcherMetrics | None, seconds: float
    ) -> tuple[PreparedProfile, WatcherMetrics | None, UseLevels | None]:
        """Return a prepared profile, with the metrics and levels that it was prepared for.

        If the snapshot's profile is not ready after half of ``seconds``, return the previous one if it is recent.

        Raises:
            TimeoutError: no such profile is ready after ``seconds``.
        """
        preparation = self._preparation(profile, snapshot)
        previous = preparation.previous
        try:
            prepared = preparation.result.result(max(0.0, seconds if previous is None else seconds / 2))
        except TimeoutError:
            if previous is None:
                raise
            return previous.result.result(0), previous.snapshot, previous.levels
        preparation.previous = None
        return prepared, snapshot, preparation.levels

    def _preparation(self, profile: Profile, snapshot: WatcherMetrics | None) -> _Preparation:
        """Return the preparation for a snapshot, which concurrent callers share.

        A prepared profile is updated with the node table, so it is used until the next snapshot.
        """
        levels = self._levels_for(profile)
        with self._lock:
            latest = self._latest.get(profile.scheduler_name)
            if latest is None or latest.has_failed() or not latest.is_of(snapshot, levels):
                previous = latest if latest is None or latest.is_ready() else latest.previous
                if previous is not None and not self._can_replace(previous.snapshot, snapshot):
                    previous = None
                result = self.thread.submit(self._prepare_now, profile, snapshot, levels)
                latest = _Preparation(snapshot, levels, result, previous)
                self._latest[profile.scheduler_name] = latest
            if latest.is_ready():
                latest.previous = None
            return latest

    def _levels_for(self, profile: Profile) -> UseLevels | None:
        """Return the levels; None for a profile that does not read them, so that new levels do not affect it."""
        return self._levels() if profile.reads_levels else None

    def _can_replace(self, previous: WatcherMetrics | None, snapshot: WatcherMetrics | None) -> bool:
        """Return whether the previous snapshot is recent enough to score by until the next one is prepared."""
        if previous is None or snapshot is None:
            return False
        return 0 <= snapshot.timestamp - previous.timestamp <= self._policy.max_age_seconds

    def _prepare_now(
        self, profile: Profile, snapshot: WatcherMetrics | None, levels: UseLevels | None
    ) -> PreparedProfile:
        with self._view.reading() as table:
            nodes = table.copy()
            if snapshot is not None:
                window = snapshot.window
                self._view.remember_departed(window.end - window.start + self._policy.max_age_seconds)
        prepared = profile.prepare(nodes, self._policy.judge(nodes, snapshot, self._clock()), levels)
        prepared.attach(table)
        return prepared
