"""Watcher: fetches the metrics of all nodes at a fixed interval, and serves the newest snapshots."""

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from watcher.errors import NotServed
from watcher.findings import Finding
from watcher.freshness import Freshness
from watcher.history import (
    MAX_SPAN_SECONDS,
    MAX_STEPS_ALL_NODES,
    MAX_STEPS_ONE_NODE,
    History,
    Steps,
    check_metric,
    start_time,
    step_seconds,
)
from watcher.loop import Loop
from watcher.model import MetricType, Operator, WatcherMetrics
from watcher.pipeline import health
from watcher.pipeline.backfill import Backfill
from watcher.pipeline.clock import ClockGuard
from watcher.pipeline.fetching import Fetcher
from watcher.pipeline.health import Health
from watcher.pipeline.judging import Judge
from watcher.pipeline.recovery import SnapshotRecovery
from watcher.pipeline.round import Round
from watcher.providers.base import WindowProvider, close_provider
from watcher.publishing.cache import Cache, Published
from watcher.quality.open_findings import OpenFindings, log_changes
from watcher.settings import QualitySettings, Settings, WatchSettings
from watcher.store import Store
from watcher.telemetry import LastFetch, WatcherState, WatcherTelemetry
from watcher.usage.pod_usage import PodUsage
from watcher.wire import Dialect, MetricsCode

if TYPE_CHECKING:
    from watcher.quality.anomalies import AnomalyDetector

_log = logging.getLogger(__name__)

_STOP_SECONDS = 3.0  # less than gunicorn gives a stopping worker after its last request
_ALLOWANCE_SECONDS = 30.0  # a round hangs if it takes longer than 2 * fetch timeout + this


class Watcher:
    """Fetches the metrics of all nodes in a background thread, and serves the newest snapshot of each window.

    A second loop, ``usage``, measures pods once it is started. Reading is safe from any thread and never waits for a
    fetch. ``stop()`` ends both loops, and closes the provider and the store that were passed to the constructor.

    Attributes:
        usage: loop that measures the use of pods.
        workloads: learner of the use of workloads, part of ``usage``.
        pod_use: use of each pod over the last day, part of ``usage``.
    """

    def __init__(
        self,
        provider: WindowProvider,
        store: Store,
        settings: WatchSettings,
        quality: QualitySettings | None = None,
        *,
        source: str,
        fallback_sources: Sequence[str] = (),
        standing: Sequence[Finding] = (),
        dialect: Dialect = Dialect.DOCUMENTED,
        telemetry: WatcherTelemetry | None = None,
        backfill: Backfill | None = None,
        usage: PodUsage | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        sources = (source, *fallback_sources)
        detector = partial(_detector, quality or QualitySettings(), settings)
        round_seconds = 2 * settings.fetch_timeout_seconds + _ALLOWANCE_SECONDS
        self._provider = provider
        self._source = source
        self._sources = sources
        self._store = store
        self._settings = settings
        self._order = settings.fallback_order()
        self._clock = clock
        self._guard = ClockGuard(clock())
        self._fetcher = Fetcher(provider, source, settings, standing)
        self._judge = Judge(detector, store, sources)
        self.usage = usage or PodUsage(Settings(), store, source)
        self.workloads, self.pod_use = self.usage.workloads, self.usage.pods
        self._backfill = backfill or Backfill(None, source, store, sources, settings, 0)
        self._cache = Cache(self._order, settings.expiry_seconds, dialect)
        self._open_findings = OpenFindings()
        self._last = Round()
        self._fetches = dict.fromkeys(settings.windows, LastFetch())
        self._loop = Loop(self.fetch_once, settings.interval_seconds, round_seconds)
        self._recovery = SnapshotRecovery(
            store, sources, [*self._order, *settings.windows], self._publish_recovered, clock
        )
        self._telemetry = telemetry or WatcherTelemetry()
        self._telemetry.watch(self._state, settings.windows)
        self._telemetry.watch_pod_use(lambda: self.usage.state)

    def fetch_once(self) -> bool:
        """Run one round: fetch all windows, detect suspect metrics, store and publish the snapshots.

        Snapshots are stored before they are published, so that a crash cannot lose a snapshot that was served. The
        background thread calls this method; tests can call it directly.

        Returns:
            True if every window has a new snapshot, False if a window failed.
        """
        with self._backfill.fetch():
            return self._fetch_once()

    def _fetch_once(self) -> bool:
        began, now = time.monotonic(), int(self._clock())
        self._recovery.retry()
        self._recovery.publish_remaining()  # before newer snapshots replace them
        self._handle_clock_set_back()
        fetched = self._fetcher.fetch(now)
        if self._loop.is_stopped:
            return False  # the provider was closed, which explains any failure
        judged = self._judge.judge(fetched)
        publication = self._cache.prepare(judged.snapshots, self._clock())
        unpublishable = f"{self._source} returned metrics that cannot be published"
        outcome = judged.with_failures({name: f"{unpublishable}: {why}" for name, why in publication.failures.items()})
        if outcome.snapshots:
            self._store.save_snapshots(outcome.snapshots, publication.encode, self._order[0])
            self._backfill.note(outcome.snapshots.get(self._order[0]))
        self._cache.show(publication)
        self._report(outcome, time.monotonic() - began)
        return not outcome.failures

    def start(self) -> None:
        """Start to fetch in a background thread. Snapshots from the store are served even before this call.

        Pods are measured from ``usage.start()`` on.
        """
        self._backfill.start()
        self._loop.start()

    def stop(self) -> None:
        """Stop both loops, and close the provider and the store, without waiting for a fetch in progress."""
        self._loop.stop()
        self._backfill.stop()
        for close in (self.usage.stop, partial(close_provider, self._provider)):
            try:
                close()
            except Exception:  # noqa: BLE001  the store must be closed, too
                _log.exception("the provider failed to close")
        self._loop.join(_STOP_SECONDS)
        self._backfill.join()
        self._store.close()

    def wait_for_first_fetch(self, timeout_seconds: float) -> None:
        """Wait until the first fetch has ended, successfully or not."""
        self._loop.wait_for_first(timeout_seconds)

    # -- served snapshots ------------------------------------------------------------------------------------------

    def published(self, window: str | None = None) -> Published:
        """Return the snapshot to serve.

        Args:
            window: the window, such as ``15m``; None selects the default window or, if it has no fresh data, a shorter
                window or the last good snapshot.

        Raises:
            NotServed: the window is not configured, nothing was fetched yet, or the last snapshot is too old.
        """
        if window is not None and window not in self._settings.windows:
            configured = ", ".join(self._settings.windows)
            message = f"window {window[:40]!r} is not configured; the windows are: {configured}"
            raise NotServed(MetricsCode.UNKNOWN_WINDOW, message)
        snapshot = self._served(window)
        if snapshot is not None:
            return snapshot
        order = [window] if window is not None else self._order
        ages = [self._age_seconds(kept) for name in order if (kept := self._cache.get(name)) is not None]
        if not ages:
            raise NotServed(MetricsCode.NO_METRICS, "no metrics yet", self._why())
        limit = self._settings.expiry_seconds
        age = f"the last metrics are {min(ages):.0f} s old, the limit is {limit} s"
        raise NotServed(MetricsCode.STALE, age, self._why())

    @property
    def windows(self) -> tuple[str, ...]:
        """Names of the configured windows, such as ``15m``."""
        return tuple(self._settings.windows)

    def ready(self, window: str | None = None) -> Published | None:
        """Return the same snapshot as :meth:`published` if the cache has it ready, otherwise None. Never waits."""
        return self._cache.ready(window, self._clock())

    def history(
        self,
        node: str | None = None,
        type_: str | None = None,
        operator: str | None = None,
        *,
        since: float | str | None = None,
        step: int | str | None = None,
    ) -> History:
        """Return the history of the nodes' load over the last hours, in the default window.

        Args:
            node: only this node; None means all nodes.
            type_: only this resource; None means all resources of one node, or CPU of all nodes.
            operator: only this operator; None means all operators of one node, or AVG of all nodes.
            since: start, Unix seconds or a duration before now; None means one day before now. The start is at most 31
                days ago, and not before the time for which the store keeps data.
            step: length of a step, whole minutes, in seconds or as a duration; None selects the shortest possible.

        Raises:
            BadHistoryQuery: ``since`` or ``step`` is invalid, there would be too many steps, or the history has no such
                metric.
        """
        now = self._clock()
        begin = max(start_time(since, now), now - min(self._store.keep_seconds, MAX_SPAN_SECONDS))
        steps = Steps.between(
            begin, now, step_seconds(step), MAX_STEPS_ALL_NODES if node is None else MAX_STEPS_ONE_NODE
        )
        default = (MetricType.CPU, Operator.AVG) if node is None else (None, None)
        metric = type_ or default[0], operator or default[1]
        history = self._store.load_history(self._sources, steps, node, *metric, until=now)
        if not history.series:
            check_metric(type_, operator, self._store.history_metrics(self._sources))
        return history

    def newest(self) -> WatcherMetrics | None:
        """Return the newest snapshot of the default window or a shorter one, however old."""
        snapshots = [kept.metrics for name in self._order if (kept := self._cache.get(name)) is not None]
        return max(snapshots, key=lambda metrics: metrics.timestamp, default=None)

    def health(self) -> Health:
        """Return the health of the watcher, according to the last fetch. Does not call the provider."""
        self._recovery.publish_remaining()
        last = self._last
        freshness = Freshness(self._clock(), self._settings.expiry_seconds)
        ages = {name: self._age_seconds(kept) for name in self._settings.windows if (kept := self._cache.get(name))}
        stale = [
            name
            for name in self._settings.windows
            if name not in ages or not freshness.is_fresh(freshness.now - ages[name])
        ]
        reasons = health.reasons(last.failures, last.findings, ages, stale)
        if not last.timestamp:
            reasons = ("nothing was fetched since the start", *reasons)
        return Health(reasons, health.warnings(self._store, last.findings), ages)

    def findings(self) -> tuple[Finding, ...]:
        """Return the findings that are open after the last fetch."""
        return self._last.findings

    @property
    def last_fetch(self) -> int:
        """Time of the last fetch, successful or not, Unix seconds; 0 before the first."""
        return self._last.timestamp

    def is_ready(self) -> bool:
        """Return whether there is a fresh snapshot to serve."""
        return self._served(None) is not None

    def is_alive(self) -> bool:
        """Return whether the fetch loop runs. It also runs while fetches fail."""
        return self._loop.is_alive

    def _served(self, window: str | None) -> Published | None:
        snapshot = self._cache.served(window, self._clock())
        if snapshot is None and self._recovery.publish_remaining():
            snapshot = self._cache.served(window, self._clock())
        return snapshot

    def _age_seconds(self, snapshot: Published) -> float:
        return self._clock() - snapshot.metrics.timestamp

    def _why(self) -> str:
        return "; ".join(dict.fromkeys(self._last.failures.values())) or "the first fetch has not ended"

    # -- parts of a round ----------------------------------------------------------------------------------------

    def _handle_clock_set_back(self) -> None:
        """If the system clock was set back, stop serving all earlier snapshots, since their age is unknown.

        Snapshots that could count as fresh by the new time are also deleted from the store.
        """
        now = self._clock()
        back = self._guard.seconds_set_back(now)
        if back:
            _log.warning("the clock was set back", extra={"seconds": round(back)})
            self._recovery.discard()
            self._cache.clear()
            self._store.forget_snapshots(since=now - self._settings.expiry_seconds)

    def _publish_recovered(self, snapshots: Mapping[str, WatcherMetrics]) -> None:
        self._cache.publish(snapshots, self._clock())
        self._count(snapshots)

    def _count(self, snapshots: Mapping[str, WatcherMetrics]) -> None:
        self._fetches = self._fetches | {
            name: LastFetch(metrics.timestamp, len(metrics.data)) for name, metrics in snapshots.items()
        }

    def _report(self, outcome: Round, seconds: float) -> None:
        """Record the outcome of a round for health and telemetry, and log the changes since the previous round.

        Args:
            outcome: the round, after publishing.
            seconds: duration of the round.
        """
        # Findings of a window that was not fetched stay open: nothing shows that they have ended.
        unseen = outcome.failures if outcome.snapshots else {*outcome.failures, ""}
        changes = self._open_findings.update(outcome.timestamp, outcome.findings, unseen)
        if outcome.snapshots:
            self._recovery.discard()
        self._count(outcome.snapshots)
        before, self._last = self._last, Round(outcome.timestamp, {}, outcome.failures, changes.current)
        outcome.log_changes_since(before)
        log_changes(changes)
        self._telemetry.fetched(seconds, outcome.failures, changes.opened)

    def _state(self) -> WatcherState:
        """Return the present state, which telemetry exports at every Prometheus scrape."""
        served = self._cache.served(None, self._clock())
        return WatcherState(
            expiry_seconds=self._settings.expiry_seconds,
            fetches=self._fetches,
            served=served.grades() if served else Counter(),
            findings=Counter(finding.kind for finding in self._last.findings),
            store_works=not self._store.failure,
            set_aside=self._store.times_set_aside,
        )


def _detector(quality: QualitySettings, settings: WatchSettings) -> "AnomalyDetector":
    from watcher.quality.anomalies import AnomalyDetector  # imports numpy, which is slow

    return AnomalyDetector(quality, settings.windows, settings.interval_seconds)
