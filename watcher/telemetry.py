"""Prometheus metrics of the service itself, in a registry of their own."""

import platform
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from runtime.server.request_metrics import RequestMetrics
from watcher.findings import Finding, Kind
from watcher.model import Grade

_FETCH_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120)


@dataclass(frozen=True, slots=True)
class LastFetch:
    """Time (Unix seconds) and number of nodes of the newest snapshot of a window; 0 if there is none."""

    timestamp: int = 0
    nodes: int = 0


@dataclass(frozen=True, slots=True)
class WatcherState:
    """State of a watcher at one time.

    Attributes:
        expiry_seconds: age from which a snapshot is not served.
        fetches: window to its newest snapshot.
        served: grade to the number of nodes that are served with it by default; ``measured`` counts nodes without a
            grade.
        findings: kind to the number of findings.
        store_works: whether snapshots are stored on disk.
        set_aside: number of corrupt files that were set aside.
    """

    expiry_seconds: float
    fetches: Mapping[str, LastFetch]
    served: Mapping[str, int]
    findings: Mapping[Kind, int]
    store_works: bool
    set_aside: int


class WatcherTelemetry:
    """Counters of requests, fetches and findings. Labels are windows and routes, never nodes, so the series stay few.

    Attributes:
        answered: counts one request; it is ``RequestMetrics.observe``.
    """

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._duration = Histogram(
            "trimaran_fetch_duration_seconds", "time one fetch of all windows took", buckets=_FETCH_BUCKETS,
            registry=self._registry,
        )  # fmt: skip
        self._failures = Counter(
            "trimaran_fetch_failures", "fetches of a window that failed", ["window"], registry=self._registry
        )
        self.answered = RequestMetrics(self._registry).observe
        self._opened = Counter(
            "trimaran_findings_opened", "findings that the previous fetch did not have", ["kind"],
            registry=self._registry,
        )  # fmt: skip
        for kind in Kind:  # creates every series at 0, so that rates include the first increment
            self._opened.labels(kind)
        build = Gauge(
            "trimaran_build_info",
            "versions; always 1",
            ["version", "python"],
            registry=self._registry,
        )
        build.labels(metadata.version("trimaran"), platform.python_version()).set(1)
        ProcessCollector(registry=self._registry)
        Gauge("trimaran_start_time_seconds", "Unix time of the start", registry=self._registry).set(time.time())
        self._state = _StateCollector()
        self._registry.register(self._state)

    def watch(self, state: Callable[[], WatcherState], windows: Iterable[str]) -> None:
        """Set the function that every scrape reads the state from, and create the series of the windows at 0."""
        self._state.read = state
        for window in windows:
            self._failures.labels(window)

    def fetched(self, seconds: float, failed_windows: Iterable[str], opened: Iterable[Finding]) -> None:
        """Count one fetch of all windows, and the findings that the previous fetch did not have."""
        self._duration.observe(seconds)
        for window in failed_windows:
            self._failures.labels(window).inc()
        for finding in opened:
            self._opened.labels(finding.kind).inc()

    def exposition(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self._registry)


class _StateCollector(Collector):
    """Collector of the gauges of a watcher's state, which are computed at every scrape.

    Attributes:
        read: returns the state; None until there is a watcher.
    """

    def __init__(self) -> None:
        self.read: Callable[[], WatcherState] | None = None

    def collect(self) -> Iterator[Metric]:
        if self.read is None:
            return
        state = self.read()
        yield GaugeMetricFamily(
            "trimaran_snapshot_expiry_seconds", "age from which a snapshot is not served", state.expiry_seconds
        )
        yield _gauges(
            "trimaran_snapshot_timestamp_seconds", "Unix time of the newest snapshot, 0 if there is none",
            "window", ((window, fetch.timestamp) for window, fetch in state.fetches.items()),
        )  # fmt: skip
        yield _gauges(
            "trimaran_snapshot_nodes", "nodes in the newest snapshot",
            "window", ((window, fetch.nodes) for window, fetch in state.fetches.items()),
        )  # fmt: skip
        yield _gauges(
            "trimaran_served_nodes", "nodes served by default, by how their values were obtained",
            "grade", ((grade, state.served.get(grade, 0)) for grade in ("measured", *Grade)),
        )  # fmt: skip
        yield _gauges(
            "trimaran_findings", "present findings, the problems with metrics",
            "kind", ((kind, state.findings.get(kind, 0)) for kind in Kind),
        )  # fmt: skip
        yield GaugeMetricFamily(
            "trimaran_store_works", "1 if snapshots are stored on disk, else 0", int(state.store_works)
        )
        yield CounterMetricFamily("trimaran_store_set_aside", "corrupt files that were set aside", state.set_aside)


def _gauges(name: str, documentation: str, label: str, values: Iterable[tuple[str, float]]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, documentation, labels=[label])
    for key, value in values:
        family.add_metric([key], value)
    return family
