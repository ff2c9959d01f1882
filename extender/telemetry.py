"""What the extender counts, as Prometheus reads it."""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from cluster.view import ClusterView
from extender.prioritizer import Outcome
from watcher.telemetry import RequestCounters

_BUCKETS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1)


class Telemetry:
    """Counts requests, answers by how they came to be, and outages."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self.answered = RequestCounters(self._registry).answered
        self._answers = Counter(
            "trimaran_extender_answers", "pods prioritized, by how the answer came to be", ["outcome"],
            registry=self._registry,
        )  # fmt: skip
        for outcome in Outcome:  # each has its series from the start, so that rates see the first
            self._answers.labels(outcome)
        self._seconds = Histogram(
            "trimaran_extender_answer_seconds", "time from a whole request to its scores", buckets=_BUCKETS,
            registry=self._registry,
        )  # fmt: skip
        self._outages = Counter(
            "trimaran_extender_outages", "times that nodes could not be scored by their load any more",
            registry=self._registry,
        )  # fmt: skip
        self._outage = Gauge(
            "trimaran_extender_outage", "whether nodes cannot be scored by their load, 1 or 0", registry=self._registry
        )
        ProcessCollector(registry=self._registry)

    def watch(self, view: ClusterView) -> None:
        """Say whose state is told, which is read at every scrape."""
        self._registry.register(_ViewCollector(view))

    def prioritized(self, outcome: Outcome, seconds: float) -> None:
        """Count an answer."""
        self._answers.labels(outcome).inc()
        self._seconds.observe(seconds)

    def outage(self, why: str) -> None:
        """Count the begin of an outage, or note its end, which has no reason."""
        self._outages.inc(bool(why))
        self._outage.set(bool(why))

    def exposition(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self._registry)


class _ViewCollector(Collector):
    """The view's state, made anew at every scrape."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view

    def collect(self) -> Iterator[Metric]:
        view = self._view
        yield _gauge("trimaran_cluster_synced", "whether nodes and pods are known, 1 or 0", view.is_synced)
        yield _gauge("trimaran_cluster_age_seconds", "how long nothing has come from the API server", view.age_seconds)
        yield CounterMetricFamily("trimaran_cluster_lists", "whole lists read", view.lists)
        outcomes = view.outcomes
        family = CounterMetricFamily(
            "trimaran_assumptions", "what became of best candidates that were assumed", labels=["outcome"]
        )
        for name in ("hits", "misses", "dropped", "expired"):
            family.add_metric([name], getattr(outcomes, name))
        yield family


def _gauge(name: str, documentation: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, documentation, value=value)
