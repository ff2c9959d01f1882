"""The loop: fetch every window, clean what came, publish it, keep it. And what is served from that."""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from watcher import duration
from watcher.errors import (
    NoMetrics,
    ProviderError,
    StaleMetrics,
    UnknownWindow,
)
from watcher.findings import Changes, Finding, Kind
from watcher.freshness import CLOCK_CORRECTION_SECONDS, Freshness
from watcher.model import WatcherMetrics, Window
from watcher.pipeline import health
from watcher.pipeline.health import Health
from watcher.pipeline.recovery import LastRun
from watcher.providers.base import Fetched, WindowProvider, close_provider
from watcher.publishing.cache import Cache, Published
from watcher.quality import analyzer
from watcher.quality.anomalies import AnomalyDetector
from watcher.quality.open_findings import OpenFindings, log_changes
from watcher.settings import QualitySettings, WatchSettings
from watcher.store import Store
from watcher.telemetry import Telemetry
from watcher.transport.gather import Bulkhead, Deadline, TooManyLate, gather
from watcher.wire import Dialect

_log = logging.getLogger(__name__)

_FIRST_RETRY_SECONDS = 2.0
_STOP_SECONDS = 3.0  # less than gunicorn gives a worker to end
_RECALL_SECONDS = 2.0  # a big cluster's past must not hold up the first fetch
_GRACE_SECONDS = 1.0  # for a provider to hand over what came in time after its own calls were given up


@dataclass(frozen=True, slots=True)
class Round:
    """The outcome of one fetch.

    Attributes:
        timestamp: when it began, unix seconds; 0 before the first.
        failures: window to why it could not be fetched.
        findings: what was wrong with what came.
    """

    timestamp: int = 0
    failures: Mapping[str, str] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()


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
        dialect: Dialect = Dialect.DOCUMENTED,
        telemetry: Telemetry | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._provider = provider
        self._store = store
        self._settings = settings
        self._source = source
        self._cache = Cache(settings.fallback_order(), settings.expiry_seconds, dialect)
        self._telemetry = telemetry or Telemetry()
        self._clock = clock
        self._sources = (source, *fallback_sources)
        self._suspicion = AnomalyDetector(quality or QualitySettings(), settings.windows, settings.interval_seconds)
        self._open_findings = OpenFindings()
        self._recalled = self._clock_was_set_back = False
        self._last = Round()
        self._ticked_at = self._fetched_at = time.monotonic()
        self._first = threading.Event()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._late = Bulkhead()
        self._cleaning = threading.Lock()
        self._order = settings.fallback_order()
        self._telemetry.watching(settings.windows, settings.expiry_seconds)
        self._looked_in = store.times_opened
        self._last_run = self._look_for_last_run()
        self._telemetry.served(self._cache.grades())
        self._telemetry.stored(works=not store.failure, set_aside=store.times_set_aside)

    def start(self) -> None:
        """Begin to fetch in the background; what the store had is served already."""
        self._thread = threading.Thread(target=self._run, name="watching", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop fetching, and close the provider and the store. A fetch that is under way is not waited for."""
        self._stop.set()
        try:
            close_provider(self._provider)
        except Exception:  # noqa: BLE001  the store is closed all the same
            _log.exception("the provider failed to close")
        if self._thread is not None:
            self._thread.join(timeout=_STOP_SECONDS)
        self._store.close()

    def fetch_once(self) -> bool:
        """Fetch all windows side by side now; return whether every one came. The loop calls this; tests may too."""
        self._look_again_for_last_run()
        self._last_run.publish_the_rest()  # before there is anything newer
        now, began = int(self._clock()), time.monotonic()
        self._notice_a_clock_set_back(now, began)
        deadline = Deadline.after(self._settings.fetch_timeout_seconds)
        answers = gather(
            {name: partial(self._fetch, name, now, deadline) for name in self._settings.windows},
            Deadline(deadline.at + _GRACE_SECONDS),
        )
        snapshots: dict[str, WatcherMetrics] = {}
        failures: dict[str, str] = {}
        findings: list[Finding] = []
        newest: list[Mapping[str, float]] = []
        for name, answer in answers.items():
            if isinstance(answer, Exception):
                failures[name] = _reason(answer)
                findings.append(Finding(Kind.FETCH_FAILED, failures[name], name))
            else:
                metrics, found, times = answer
                findings += found
                newest.append(times)
                if metrics is not None:
                    snapshots[name] = metrics
                    continue
                failures[name] = f"{self._source} returned no node with usable metrics"
                if found:
                    failures[name] += f"; for one: {found[0].message}"
                findings.append(Finding(Kind.FETCH_FAILED, failures[name], name))
        if self._stop.is_set():
            return False  # what failed, failed because the provider was closed
        self._recall()
        snapshots, suspicions = self._judge(now, snapshots, newest, findings)
        for finding in suspicions:
            if finding.kind is Kind.FETCH_FAILED:
                failures[finding.window] = finding.message
        findings += suspicions
        for name, error in self._cache.publish(snapshots, self._clock()).items():
            failures[name] = f"{self._source} returned what cannot be published: {error}"
            findings.append(Finding(Kind.FETCH_FAILED, failures[name], name))
            del snapshots[name]
        if snapshots:
            self._store.save_snapshots(snapshots, self._cache.encode)
        unseen = {*failures, ""} if len(failures) == len(answers) else failures
        changes = self._open_findings.update(now, findings, unseen)
        self._report(Round(now, failures, changes.current), changes, len(answers))
        self._telemetry.found(changes)
        self._telemetry.fetched(time.monotonic() - began, failures, snapshots)
        self._telemetry.served(self._cache.grades())
        self._telemetry.stored(works=not self._store.failure, set_aside=self._store.times_set_aside)
        return not failures

    def wait_for_first_fetch(self, timeout_seconds: float) -> None:
        """Wait until the first fetch is done, whether it worked or not."""
        self._first.wait(timeout_seconds)

    def published(self, window: str | None = None) -> Published:
        """Return the snapshot to serve.

        Args:
            window: exactly this one; or the default window, a shorter one, or the last good one when None.

        Raises:
            UnknownWindow: no such window is configured.
            NoMetrics: nothing was ever fetched.
            StaleMetrics: what was fetched is older than the expiry.
        """
        if window is not None and window not in self._settings.windows:
            raise UnknownWindow(f"window {window[:40]!r} is not kept; there are: {', '.join(self._settings.windows)}")
        found = self._served(window)
        if found is not None:
            return found
        order = [window] if window is not None else self._order
        ages = [self._age_seconds(kept) for name in order if (kept := self._cache.get(name)) is not None]
        if not ages:
            raise NoMetrics("no metrics yet", self._why())
        limit = self._settings.expiry_seconds
        raise StaleMetrics(f"the last metrics are {min(ages):.0f} s old, the limit is {limit} s", self._why())

    def newest(self) -> WatcherMetrics | None:
        """Return the newest snapshot of the default window or a shorter one, however old."""
        found = [kept.metrics for name in self._order if (kept := self._cache.get(name)) is not None]
        return max(found, key=lambda metrics: metrics.timestamp, default=None)

    def health(self) -> Health:
        """Report on the last fetch. Reads what is known; never calls the provider."""
        self._last_run.publish_the_rest()
        last = self._last
        fresh = Freshness(self._clock(), self._settings.expiry_seconds)
        ages = {name: self._age_seconds(kept) for name in self._settings.windows if (kept := self._cache.get(name))}
        stale = [name for name in self._settings.windows if name not in ages or not fresh.holds(fresh.now - ages[name])]
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
        bound = self._settings.interval_seconds + 2 * self._settings.fetch_timeout_seconds + 30
        return not self._stop.is_set() and time.monotonic() - self._ticked_at < bound

    def _run(self) -> None:
        retry = _FIRST_RETRY_SECONDS
        while not self._stop.is_set():
            self._ticked_at = began = time.monotonic()
            try:
                worked = self.fetch_once()
            except Exception:  # noqa: BLE001
                # A defect of ours must not end the service: what it has stays good until it expires.
                _log.exception("the fetch failed unexpectedly")
                worked = False
            self._first.set()
            interval = self._settings.interval_seconds
            pause = interval if worked else min(retry, interval)
            retry = _FIRST_RETRY_SECONDS if worked else min(2 * retry, interval)
            self._stop.wait(max(0.0, began + pause - time.monotonic()))

    def _served(self, window: str | None) -> Published | None:
        found = self._cache.served(window, self._clock())
        if found is None and self._last_run.publish_the_rest():
            found = self._cache.served(window, self._clock())
        return found

    def _notice_a_clock_set_back(self, now: int, began: float) -> None:
        """Give up what the clock stamped before it was set back: it would pass for younger than it is."""
        elapsed, self._fetched_at = began - self._fetched_at, began
        if self._last.timestamp and now - self._last.timestamp < elapsed - CLOCK_CORRECTION_SECONDS:
            _log.warning("the clock was set back", extra={"seconds": round(self._last.timestamp + elapsed - now)})
            self._clock_was_set_back = True
            self._cache.clear()
            self._store.forget_snapshots(since=now - self._settings.expiry_seconds)

    def _look_again_for_last_run(self) -> None:
        """Serve what the run before left where the store could not be opened at the start and there is nothing yet."""
        self._store.reopen()
        if self._store.times_opened != self._looked_in:
            self._looked_in = self._store.times_opened
            if not self._clock_was_set_back and not any(map(self._cache.get, self._settings.windows)):
                self._last_run = self._look_for_last_run()

    def _look_for_last_run(self) -> LastRun:
        windows = [*self._order, *self._settings.windows]
        return LastRun(self._store, self._sources, windows, self._serve_last_run, self._clock())

    def _serve_last_run(self, kept: Mapping[str, WatcherMetrics]) -> None:
        self._cache.publish(kept, self._clock())
        self._telemetry.published(kept)

    def _recall(self) -> None:
        """Make the kept snapshots part of the past that metrics are held against, once, the newest if not all."""
        if self._recalled:
            return
        self._recalled = True
        began, kept = time.monotonic(), []
        for metrics in self._store.load_recent(self._suspicion.window, self._suspicion.depth, *self._sources):
            kept.append(metrics)
            if time.monotonic() - began > _RECALL_SECONDS:
                break
        for metrics in reversed(kept):
            self._suspicion.remember(metrics)

    def _judge(
        self,
        now: int,
        snapshots: dict[str, WatcherMetrics],
        newest: Iterable[Mapping[str, float]],
        known: Sequence[Finding],
    ) -> tuple[dict[str, WatcherMetrics], list[Finding]]:
        """Hold the fetch against the ones before; a window that nothing is left of has failed."""
        times: dict[str, float] = {}
        for window in newest:
            for node, time_ in window.items():
                times[node] = max(time_, times.get(node, time_))
        try:
            judged, found = self._suspicion.judge(now, snapshots, times, known)
        except Exception:  # noqa: BLE001
            # A shape that no provider of ours gives metrics; whether they can be published, publishing tells.
            _log.exception("the metrics cannot be judged and are served as they are")
            return snapshots, []
        reason = f"{self._source} returned no node whose metrics are beyond suspicion (quality.*_action)"
        found += [Finding(Kind.FETCH_FAILED, reason, name) for name in snapshots if name not in judged]
        return judged, found

    def _fetch(
        self, name: str, now: int, deadline: Deadline
    ) -> tuple[WatcherMetrics | None, list[Finding], Mapping[str, float]]:
        """Return one window's metrics, None when none can be published, what is wrong, and nodes' newest samples."""
        window = Window(name, now - duration.seconds(name), now)
        fetched: Fetched = self._late.run(name, partial(self._provider.fetch, window, deadline))
        with self._cleaning:  # side by side it would be no faster, and requests would have to wait for them all
            nodes, findings = analyzer.clean(fetched.nodes, name)
        metrics = WatcherMetrics(now, window, fetched.source or self._source, nodes) if nodes else None
        return metrics, [*fetched.findings, *findings], fetched.newest

    def _report(self, now: Round, changes: Changes, windows: int) -> None:
        """Remember the round, and log what changed against the one before."""
        before, self._last = self._last, now
        for name, why in now.failures.items():
            if before.failures.get(name) != why:
                _log.warning("a window cannot be fetched", extra={"window": name, "error": why})
        for name in before.failures.keys() - now.failures.keys():
            _log.info("a window is fetched again", extra={"window": name})
        log_changes(changes)
        if not before.timestamp:
            _log.info("first fetch", extra={"windows": windows - len(now.failures), "failed": len(now.failures)})

    def _age_seconds(self, found: Published) -> float:
        return self._clock() - found.metrics.timestamp

    def _why(self) -> str:
        return "; ".join(dict.fromkeys(self._last.failures.values())) or "the first fetch is not done"


def _reason(error: Exception) -> str:
    if isinstance(error, ProviderError):
        return str(error)
    if isinstance(error, TooManyLate):
        return f"the provider {error}"
    if isinstance(error, TimeoutError):
        return "the provider did not answer in time (watch.fetch_timeout_seconds)"
    _log.error("the provider failed unexpectedly", exc_info=error)
    return f"the provider failed unexpectedly: {type(error).__name__}: {error}"
