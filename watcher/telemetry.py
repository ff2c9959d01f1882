"""Prometheus metrics about the watcher itself (requests, fetches, findings, store), in a separate registry."""

import platform
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata

from prometheus_client import Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from runtime.server.telemetry import ServiceTelemetry, labelled
from watcher.findings import Finding, Kind
from watcher.model import Grade

_FETCH_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120)


@dataclass(frozen=True, slots=True)
class LastFetch:
    """Time (Unix seconds) and number of nodes of a window's newest snapshot; both are 0 if there is no snapshot."""

    timestamp: int = 0
    nodes: int = 0


@dataclass(frozen=True, slots=True)
class PodUseState:
    """Results of the last rounds of pod use; each round measures all pods once.

    Attributes:
        timestamp: end of the newest successful round, Unix seconds; 0 before the first.
        seconds: duration of this round.
        containers: number of containers with a known use.
        pods: number of running pods.
        workloads: number of workloads of the running pods.
        recurring_share: share of the running pods whose workload recurs, 0 to 1.
        failures: number of failed rounds.
        failure: why the last round failed; "" if it succeeded.
    """

    timestamp: int = 0
    seconds: float = 0.0
    containers: int = 0
    pods: int = 0
    workloads: int = 0
    recurring_share: float = 1.0
    failures: int = 0
    failure: str = ""


@dataclass(frozen=True, slots=True)
class WatcherState:
    """State of a watcher at the time of a Prometheus scrape.

    Attributes:
        expiry_seconds: age in seconds above which a snapshot is not served.
        fetches: window to the time and the number of nodes of its newest snapshot.
        served: grade (``shorter_window``, ``last_good``) to the number of nodes that have it in the snapshot that is
            served by default; ``measured`` counts the nodes without a grade.
        findings: kind of problem to the number of open findings of this kind.
        store_works: whether snapshots are stored on disk.
        set_aside: number of corrupt database files that were renamed and replaced by a new file.
    """

    expiry_seconds: float
    fetches: Mapping[str, LastFetch]
    served: Mapping[str, int]
    findings: Mapping[Kind, int]
    store_works: bool
    set_aside: int


class WatcherTelemetry(ServiceTelemetry):
    """Counters of HTTP requests, fetches and findings, in a registry that /metrics exposes.

    No label is a node name, so that the number of series does not grow with the cluster.
    """

    def __init__(self) -> None:
        super().__init__()
        self._duration = Histogram(
            "trimaran_fetch_duration_seconds", "time one fetch of all windows took", buckets=_FETCH_BUCKETS,
            registry=self.registry,
        )  # fmt: skip
        self._failures = Counter(
            "trimaran_fetch_failures", "fetches of a window that failed", ["window"], registry=self.registry
        )
        self._opened = Counter(
            "trimaran_findings_opened", "findings that the previous fetch did not have", ["kind"],
            registry=self.registry,
        )  # fmt: skip
        for kind in Kind:  # creates every series at 0, so that rates include the first increment
            self._opened.labels(kind)
        build = Gauge("trimaran_build_info", "versions; always 1", ["version", "python"], registry=self.registry)
        build.labels(metadata.version("trimaran"), platform.python_version()).set(1)
        Gauge("trimaran_start_time_seconds", "Unix time of the start", registry=self.registry).set(time.time())

    def watch(self, state: Callable[[], WatcherState], windows: Iterable[str]) -> None:
        """Begin to export a watcher's state, and create the failure counter of each window at 0.

        Args:
            state: function that returns the watcher's state; called at every scrape.
            windows: names of the windows, such as ``15m``.
        """
        self.export(lambda: _state_metrics(state()))
        for window in windows:
            self._failures.labels(window)

    def watch_pod_use(self, state: Callable[[], PodUseState]) -> None:
        """Begin to export metrics about rounds of pod use; ``state`` is called at every scrape."""
        self.export(lambda: _pod_use_metrics(state()))

    def fetched(self, seconds: float, failed_windows: Iterable[str], opened: Iterable[Finding]) -> None:
        """Count one fetch of all windows.

        Args:
            seconds: duration of the fetch.
            failed_windows: windows that could not be fetched.
            opened: findings that the previous fetch did not have.
        """
        self._duration.observe(seconds)
        for window in failed_windows:
            self._failures.labels(window).inc()
        for finding in opened:
            self._opened.labels(finding.kind).inc()


def _state_metrics(state: WatcherState) -> Iterator[Metric]:
    yield GaugeMetricFamily(
        "trimaran_snapshot_expiry_seconds", "age from which a snapshot is not served", state.expiry_seconds
    )
    yield labelled(
        GaugeMetricFamily, "trimaran_snapshot_timestamp_seconds",
        "Unix time of the newest snapshot, 0 if there is none", "window",
        ((window, fetch.timestamp) for window, fetch in state.fetches.items()),
    )  # fmt: skip
    yield labelled(
        GaugeMetricFamily, "trimaran_snapshot_nodes", "nodes in the newest snapshot",
        "window", ((window, fetch.nodes) for window, fetch in state.fetches.items()),
    )  # fmt: skip
    yield labelled(
        GaugeMetricFamily, "trimaran_served_nodes", "nodes served by default, by how their values were obtained",
        "grade", ((grade, state.served.get(grade, 0)) for grade in ("measured", *Grade)),
    )  # fmt: skip
    yield labelled(
        GaugeMetricFamily, "trimaran_findings", "present findings, the problems with metrics",
        "kind", ((kind, state.findings.get(kind, 0)) for kind in Kind),
    )  # fmt: skip
    yield GaugeMetricFamily("trimaran_store_works", "1 if snapshots are stored on disk, else 0", int(state.store_works))
    yield CounterMetricFamily("trimaran_store_set_aside", "corrupt files that were set aside", state.set_aside)


def _pod_use_metrics(state: PodUseState) -> Iterator[Metric]:
    yield GaugeMetricFamily(
        "trimaran_pod_use_timestamp_seconds", "Unix time of the newest use of pods, 0 if there is none",
        state.timestamp,
    )  # fmt: skip
    yield GaugeMetricFamily(
        "trimaran_pod_use_round_seconds", "time that the newest round of pod use took", state.seconds
    )
    yield GaugeMetricFamily("trimaran_pod_use_containers", "containers with a known use", state.containers)
    yield GaugeMetricFamily("trimaran_pod_use_pods", "running pods", state.pods)
    yield GaugeMetricFamily("trimaran_pod_use_workloads", "workloads of the running pods", state.workloads)
    yield GaugeMetricFamily(
        "trimaran_pod_use_recurring_ratio", "share of the running pods whose workload recurs", state.recurring_share
    )
    yield CounterMetricFamily("trimaran_pod_use_failures", "rounds of pod use that failed", state.failures)
