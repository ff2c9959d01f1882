"""Prometheus metrics of a service's requests."""

from prometheus_client import CollectorRegistry, Counter, Histogram

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)


class RequestMetrics:
    """Number and duration of requests. Labels are routes, not paths, so the number of series stays small."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._requests = Counter("trimaran_http_requests", "requests answered", ["route", "status"], registry=registry)
        self._durations = Histogram(
            "trimaran_http_request_duration_seconds", "time from a request's head to its answer", ["route"],
            buckets=_BUCKETS, registry=registry,
        )  # fmt: skip
        self._children: dict[tuple[str, int], tuple[Counter, Histogram]] = {}  # looking up children by label is slow

    def observe(self, route: str, status: int, seconds: float) -> None:
        """Count one request; ``route`` is the rule that matched, not the path."""
        children = self._children.get((route, status))
        if children is None:
            children = self._requests.labels(route, str(status)), self._durations.labels(route)
            self._children[route, status] = children
        requests, durations = children
        requests.inc()
        durations.observe(seconds)
