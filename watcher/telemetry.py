"""The service's own Prometheus metrics, in a registry of their own."""

import collections
import time
from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from watcher.findings import Kind
from watcher.model import WatcherMetrics
from watcher.open_findings import Changes

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Telemetry:
    """Counts what the watcher does. Labels are windows and routes, never nodes, so the series stay few."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._duration = Histogram(
            "trimaran_fetch_duration_seconds", "time one fetch of all windows took", registry=self._registry
        )
        self._failures = Counter(
            "trimaran_fetch_failures", "fetches of a window that failed", ["window"], registry=self._registry
        )
        self._timestamp = Gauge(
            "trimaran_snapshot_timestamp_seconds", "when the newest snapshot was taken", ["window"],
            registry=self._registry,
        )  # fmt: skip
        self._nodes = Gauge(
            "trimaran_snapshot_nodes", "nodes in the newest snapshot", ["window"], registry=self._registry
        )
        self._requests = Counter(
            "trimaran_http_requests", "requests answered", ["route", "status"], registry=self._registry
        )
        self._store_works = Gauge(
            "trimaran_store_works", "whether snapshots are kept on disk, 1 or 0", registry=self._registry
        )
        self._set_aside = Counter(
            "trimaran_store_set_aside", "corrupt files that were set aside", registry=self._registry
        )
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
        Gauge("trimaran_start_time_seconds", "when the service started", registry=self._registry).set(time.time())

    def fetched(self, seconds: float, failures: Mapping[str, str], snapshots: Mapping[str, WatcherMetrics]) -> None:
        """Count one fetch of all windows."""
        self._duration.observe(seconds)
        for window in failures:
            self._failures.labels(window).inc()
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

    def stored(self, *, works: bool) -> None:
        """Say whether the store can be written."""
        self._store_works.set(int(works))

    def set_aside(self) -> None:
        """Count one corrupt file that was set aside."""
        self._set_aside.inc()

    def answered(self, route: str, status: int) -> None:
        """Count one request; ``route`` is the rule that matched, not the path."""
        self._requests.labels(route, str(status)).inc()

    def exposition(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self._registry)
