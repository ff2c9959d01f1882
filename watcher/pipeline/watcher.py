"""The watcher: what a round does with every node's metrics, and what is served from that."""

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from watcher.errors import NotServed
from watcher.findings import Finding
from watcher.freshness import Freshness
from watcher.history import LONGEST_SECONDS, MOST_STEPS, MOST_STEPS_OF_ALL, History, Steps, length, moment
from watcher.model import MetricType, Operator, WatcherMetrics
from watcher.pipeline import health
from watcher.pipeline.clock import ClockGuard
from watcher.pipeline.fetching import Fetcher
from watcher.pipeline.health import Health
from watcher.pipeline.judging import Judge
from watcher.pipeline.loop import Loop
from watcher.pipeline.recovery import LastRun
from watcher.pipeline.round import Round
from watcher.providers.base import WindowProvider, close_provider
from watcher.publishing.cache import Cache, Published
from watcher.quality.open_findings import OpenFindings, log_changes
from watcher.settings import QualitySettings, WatchSettings
from watcher.store import Store
from watcher.telemetry import State, Taken, Telemetry
from watcher.wire import Dialect, MetricsCode

if TYPE_CHECKING:
    from watcher.quality.anomalies import AnomalyDetector

_log = logging.getLogger(__name__)

_STOP_SECONDS = 3.0  # less than a worker that stops has after its last request
_ALLOWANCE_SECONDS = 30.0  # for a round beyond twice its fetch's timeout, before the loop counts as hanging


class Watcher:
    """Keeps every window of every node fresh. Reading is safe from any thread and never waits for a fetch.

    It closes the provider and the store it was given when it stops.
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
        telemetry: Telemetry | None = None,
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
        self._cache = Cache(self._order, settings.expiry_seconds, dialect)
        self._open_findings = OpenFindings()
        self._last = Round()
        self._taken = dict.fromkeys(settings.windows, Taken())
        self._loop = Loop(self.fetch_once, settings.interval_seconds, round_seconds)
        self._last_run = LastRun(store, sources, [*self._order, *settings.windows], self._publish_last_run, clock)
        self._telemetry = telemetry or Telemetry()
        self._telemetry.watch(self._state, settings.windows)

    def fetch_once(self) -> bool:
        """Run one round: fetch, judge, keep, publish; return whether every window came.

        What came is kept before it is published, so that nobody has seen what a crash could take back. The loop calls
        this; tests may too.
        """
        began, now = time.monotonic(), int(self._clock())
        self._last_run.look_again()
        self._last_run.publish_the_rest()  # before there is anything newer
        self._give_up_what_cannot_be_dated()
        fetched = self._fetcher.fetch(now)
        if self._loop.is_stopped:
            return False  # what failed, failed because the provider was closed
        judged = self._judge.judge(fetched)
        publication = self._cache.prepare(judged.snapshots, self._clock())
        unpublishable = f"{self._source} returned what cannot be published"
        outcome = judged.with_failures({name: f"{unpublishable}: {why}" for name, why in publication.failures.items()})
        if outcome.snapshots:
            self._store.save_snapshots(outcome.snapshots, publication.encode, self._order[0])
        self._cache.show(publication)
        self._report(outcome, time.monotonic() - began)
        return not outcome.failures

    def start(self) -> None:
        """Begin to fetch in the background; what the store had is served already."""
        self._loop.start()

    def stop(self) -> None:
        """Stop fetching, and close the provider and the store. A fetch that is under way is not waited for."""
        self._loop.stop()
        try:
            close_provider(self._provider)
        except Exception:  # noqa: BLE001  the store is closed all the same
            _log.exception("the provider failed to close")
        self._loop.join(_STOP_SECONDS)
        self._store.close()

    def wait_for_first_fetch(self, timeout_seconds: float) -> None:
        """Wait until the first fetch is done, whether it worked or not."""
        self._loop.wait_for_first(timeout_seconds)

    # -- what is served ------------------------------------------------------------------------------------------

    def published(self, window: str | None = None) -> Published:
        """Return the snapshot to serve.

        Args:
            window: exactly this one; or the default window, a shorter one, or the last good one when None.

        Raises:
            NotServed: the window is not configured, nothing was fetched yet, or the last fetch is too old.
        """
        if window is not None and window not in self._settings.windows:
            there_are = ", ".join(self._settings.windows)
            raise NotServed(MetricsCode.UNKNOWN_WINDOW, f"window {window[:40]!r} is not kept; there are: {there_are}")
        found = self._served(window)
        if found is not None:
            return found
        order = [window] if window is not None else self._order
        ages = [self._age_seconds(kept) for name in order if (kept := self._cache.get(name)) is not None]
        if not ages:
            raise NotServed(MetricsCode.NO_METRICS, "no metrics yet", self._why())
        limit = self._settings.expiry_seconds
        age = f"the last metrics are {min(ages):.0f} s old, the limit is {limit} s"
        raise NotServed(MetricsCode.STALE, age, self._why())

    @property
    def windows(self) -> tuple[str, ...]:
        """The windows that may be asked for."""
        return tuple(self._settings.windows)

    def ready(self, window: str | None = None) -> Published | None:
        """Return what ``published`` does where that is only looked up, without waiting for anything; else None."""
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
        """Return what nodes used over the last hours, in the default window.

        Args:
            node: one, with all its metrics; all, with one metric, when None.
            type_: only this resource; of all nodes CPU when None.
            operator: only this one; of all nodes AVG when None.
            since: unix seconds, or how long ago; a day when None. No more than is kept, and 31 days.
            step: whole minutes, as seconds or as text; as short as is possible when None.

        Raises:
            BadHistoryQuery: that would be too much, or there is no such time or step.
        """
        now = self._clock()
        begin = max(moment(since, now), now - min(self._store.keep_seconds, LONGEST_SECONDS))
        steps = Steps.between(begin, now, length(step), MOST_STEPS_OF_ALL if node is None else MOST_STEPS)
        if node is None:
            type_, operator = type_ or MetricType.CPU, operator or Operator.AVG
        return self._store.load_history(self._sources, steps, node, type_, operator)

    def newest(self) -> WatcherMetrics | None:
        """Return the newest snapshot of the default window or a shorter one, however old."""
        found = [kept.metrics for name in self._order if (kept := self._cache.get(name)) is not None]
        return max(found, key=lambda metrics: metrics.timestamp, default=None)

    def health(self) -> Health:
        """Report on the last fetch. Reads what is known; never calls the provider."""
        self._last_run.publish_the_rest()
        last = self._last
        freshness = Freshness(self._clock(), self._settings.expiry_seconds)
        ages = {name: self._age_seconds(kept) for name in self._settings.windows if (kept := self._cache.get(name))}
        stale = [
            name
            for name in self._settings.windows
            if name not in ages or not freshness.is_fresh(freshness.now - ages[name])
        ]
        reasons = health.reasons(last.failures, ages, stale)
        if not last.timestamp:
            reasons = ("nothing was fetched since the start", *reasons)
        return Health(reasons, health.warnings(self._store, last.findings), ages)

    def findings(self) -> tuple[Finding, ...]:
        """Return what was wrong with the last fetch."""
        return self._last.findings

    def is_ready(self) -> bool:
        """Return whether there is something fresh to serve."""
        return self._served(None) is not None

    def is_alive(self) -> bool:
        """Return whether the loop still ticks; a provider that is down does not stop it."""
        return self._loop.is_alive

    def _served(self, window: str | None) -> Published | None:
        found = self._cache.served(window, self._clock())
        if found is None and self._last_run.publish_the_rest():
            found = self._cache.served(window, self._clock())
        return found

    def _age_seconds(self, found: Published) -> float:
        return self._clock() - found.metrics.timestamp

    def _why(self) -> str:
        return "; ".join(dict.fromkeys(self._last.failures.values())) or "the first fetch is not done"

    # -- parts of a round ----------------------------------------------------------------------------------------

    def _give_up_what_cannot_be_dated(self) -> None:
        """Where the clock was set back, serve nothing that it stamped before, now or after a restart."""
        now = self._clock()
        back = self._guard.seconds_set_back(now)
        if back:
            _log.warning("the clock was set back", extra={"seconds": round(back)})
            self._last_run.give_up()
            self._cache.clear()
            self._store.forget_snapshots(since=now - self._settings.expiry_seconds)

    def _publish_last_run(self, kept: Mapping[str, WatcherMetrics]) -> None:
        self._cache.publish(kept, self._clock())
        self._count(kept)

    def _count(self, snapshots: Mapping[str, WatcherMetrics]) -> None:
        self._taken = self._taken | {
            name: Taken(metrics.timestamp, len(metrics.data)) for name, metrics in snapshots.items()
        }

    def _report(self, outcome: Round, seconds: float) -> None:
        """Remember what the round came to, log what is new against the one before, and count it."""
        # What was wrong in a window that did not come is still wrong, as far as anybody knows.
        unseen = outcome.failures if outcome.snapshots else {*outcome.failures, ""}
        changes = self._open_findings.update(outcome.timestamp, outcome.findings, unseen)
        if outcome.snapshots:
            self._last_run.give_up()
        self._count(outcome.snapshots)
        before, self._last = self._last, Round(outcome.timestamp, {}, outcome.failures, changes.current)
        outcome.log_changes_since(before)
        log_changes(changes)
        self._telemetry.fetched(seconds, outcome.failures, changes.opened)

    def _state(self) -> State:
        """Return what telemetry tells of the present."""
        served = self._cache.served(None, self._clock())
        return State(
            expiry_seconds=self._settings.expiry_seconds,
            taken=self._taken,
            served=served.grades() if served else Counter(),
            findings=Counter(finding.kind for finding in self._last.findings),
            store_works=not self._store.failure,
            set_aside=self._store.times_set_aside,
        )


def _detector(quality: QualitySettings, settings: WatchSettings) -> "AnomalyDetector":
    from watcher.quality.anomalies import AnomalyDetector  # numpy is behind it

    return AnomalyDetector(quality, settings.windows, settings.interval_seconds)
