"""The service's own Prometheus metrics, in a registry of their own."""

import collections
import platform
import time
from collections.abc import Iterable, Mapping
from importlib import metadata

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

from watcher.findings import Changes, Kind
from watcher.model import Grade, WatcherMetrics

_FETCH_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120)
_ANSWER_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Telemetry:
    """Counts what the watcher does. Labels are windows and routes, never nodes, so the series stay few."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._duration = Histogram(
            "trimaran_fetch_duration_seconds", "time one fetch of all windows took", buckets=_FETCH_BUCKETS,
            registry=self._registry,
        )  # fmt: skip
        self._failures = Counter(
            "trimaran_fetch_failures", "fetches of a window that failed", ["window"], registry=self._registry
        )
        self._timestamp = Gauge(
            "trimaran_snapshot_timestamp_seconds", "when the newest snapshot was taken, 0 when there is none",
            ["window"], registry=self._registry,
        )  # fmt: skip
        self._expiry = Gauge(
            "trimaran_snapshot_expiry_seconds", "the age from which a snapshot is not served", registry=self._registry
        )
        self._nodes = Gauge(
            "trimaran_snapshot_nodes", "nodes in the newest snapshot", ["window"], registry=self._registry
        )
        self._served = Gauge(
            "trimaran_served_nodes", "nodes served by default, by how their values were obtained", ["grade"],
            registry=self._registry,
        )  # fmt: skip
        self._requests = Counter(
            "trimaran_http_requests", "requests answered", ["route", "status"], registry=self._registry
        )
        self._answers = Histogram(
            "trimaran_http_request_duration_seconds", "time from a request's head to its answer", ["route"],
            buckets=_ANSWER_BUCKETS, registry=self._registry,
        )  # fmt: skip
        self._of_answer: dict[tuple[str, int], tuple[Counter, Histogram]] = {}  # looking labels up takes longest
        self._store_works = Gauge(
            "trimaran_store_works", "whether snapshots are kept on disk, 1 or 0", registry=self._registry
        )
        self._set_aside = Counter(
            "trimaran_store_set_aside", "corrupt files that were set aside", registry=self._registry
        )
        self._known_set_aside = 0
        self._findings = Gauge(
            "trimaran_findings", "what is wrong with metrics at present", ["kind"], registry=self._registry
        )
        self._opened = Counter(
            "trimaran_findings_opened", "findings that were not there in the fetch before", ["kind"],
            registry=self._registry,
        )  # fmt: skip
        for kind in Kind:  # each has its series from the start, so that rates see the first
            self._findings.labels(kind)
            self._opened.labels(kind)
        build = Gauge("trimaran_build_info", "what runs here; always 1", ["version", "python"], registry=self._registry)
        build.labels(metadata.version("trimaran"), platform.python_version()).set(1)
        ProcessCollector(registry=self._registry)
        Gauge("trimaran_start_time_seconds", "when the service started", registry=self._registry).set(time.time())

    def watching(self, windows: Iterable[str], expiry_seconds: float) -> None:
        """Say what is watched, so that each window has its series from the start."""
        self._expiry.set(expiry_seconds)
        for window in windows:
            self._failures.labels(window)
            self._timestamp.labels(window)
            self._nodes.labels(window)

    def fetched(self, seconds: float, failures: Mapping[str, str], snapshots: Mapping[str, WatcherMetrics]) -> None:
        """Count one fetch of all windows."""
        self._duration.observe(seconds)
        for window in failures:
            self._failures.labels(window).inc()
        self.published(snapshots)

    def published(self, snapshots: Mapping[str, WatcherMetrics]) -> None:
        """Say what there is, by window: of a fetch, or of the run before."""
        for window, metrics in snapshots.items():
            self._timestamp.labels(window).set(metrics.timestamp)
            self._nodes.labels(window).set(len(metrics.data))

    def found(self, changes: Changes) -> None:
        """Count what is wrong, and what of it is new."""
        now = collections.Counter(finding.kind for finding in changes.current)
        for kind in Kind:
            self._findings.labels(kind).set(now[kind])
        for finding in changes.opened:
            self._opened.labels(finding.kind).inc()

    def served(self, grades: Mapping[str, int]) -> None:
        """Say how many nodes are served with each grade; ``measured`` is that of nodes as they were asked for."""
        for grade in ("measured", *Grade):
            self._served.labels(grade).set(grades.get(grade, 0))

    def stored(self, *, works: bool, set_aside: int) -> None:
        """Say whether the store can be written, and how many corrupt files were set aside so far."""
        self._store_works.set(int(works))
        self._set_aside.inc(set_aside - self._known_set_aside)
        self._known_set_aside = set_aside

    def answered(self, route: str, status: int, seconds: float) -> None:
        """Count one request; ``route`` is the rule that matched, not the path."""
        found = self._of_answer.get((route, status))
        if found is None:
            found = self._requests.labels(route, str(status)), self._answers.labels(route)
            self._of_answer[route, status] = found
        requests, durations = found
        requests.inc()
        durations.observe(seconds)

    def exposition(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self._registry)
