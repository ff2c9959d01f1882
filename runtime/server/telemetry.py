"""Prometheus metrics that every service has: of its requests and of its process."""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)
_Family = TypeVar("_Family", CounterMetricFamily, GaugeMetricFamily)


class ServiceTelemetry:
    """Registry of a service's metrics, with the number and duration of its requests.

    Labels are routes, not paths, so the number of series stays small.

    Attributes:
        registry: registry for the metrics of the service's own work.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "trimaran_http_requests", "requests answered", ["route", "status"], registry=self.registry
        )
        self._durations = Histogram(
            "trimaran_http_request_duration_seconds", "time from a request's head to its answer", ["route"],
            buckets=_BUCKETS, registry=self.registry,
        )  # fmt: skip
        self._children: dict[tuple[str, int], tuple[Counter, Histogram]] = {}  # looking up children by label is slow
        ProcessCollector(registry=self.registry)

    def observe_request(self, route: str, status: int, seconds: float) -> None:
        """Count one request; ``route`` is the rule that matched, not the path."""
        children = self._children.get((route, status))
        if children is None:
            children = self._requests.labels(route, str(status)), self._durations.labels(route)
            self._children[route, status] = children
        requests, durations = children
        requests.inc()
        durations.observe(seconds)

    def export(self, collect: Callable[[], Iterator[Metric]]) -> None:
        """Export metrics that a function computes at every scrape."""
        self.registry.register(_FunctionCollector(collect))

    def exposition(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self.registry)


class _FunctionCollector(Collector):
    def __init__(self, collect: Callable[[], Iterator[Metric]]) -> None:
        self._collect = collect

    def collect(self) -> Iterator[Metric]:
        return self._collect()


def labelled(
    family: type[_Family], name: str, documentation: str, label: str, values: Iterable[tuple[str, float]]
) -> _Family:
    """Return a metric family with one label, and a sample for each value of the label."""
    metric = family(name, documentation, labels=[label])
    for key, value in values:
        metric.add_metric([key], value)
    return metric
