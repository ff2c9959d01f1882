"""Probes and metrics of ``trimaran nodes``."""

from collections.abc import Callable, Iterator

from flask import Flask
from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from runtime.kubernetes.leader_election import Lease
from runtime.server.access import Access
from runtime.server.fast_path import Front
from runtime.server.flask_app import answer_errors, check_access, probes
from trimaran.soft_taints.writer import Counts
from watcher.telemetry import CONTENT_TYPE, RequestCounters


def create_app(
    counts: Counts, lease: Lease, is_alive: Callable[[], bool], is_ready: Callable[[], bool], access: Access
) -> Front:
    """Return the WSGI application.

    Args:
        counts: of the writer.
        lease: whether this is the one that writes.
        is_alive: whether the writer gets on.
        is_ready: whether the nodes are known.
        access: judges requests.
    """
    registry = CollectorRegistry()
    registry.register(_WriterCollector(counts, lease))
    ProcessCollector(registry=registry)
    app = Flask("nodes", static_folder=None)
    app.config["PROVIDE_AUTOMATIC_OPTIONS"] = False  # what is not there is a 405 that says what is
    check_access(app, access)
    answer_errors(app)
    app.register_blueprint(probes(is_alive, is_ready, lambda: generate_latest(registry), CONTENT_TYPE))
    return Front(app.wsgi_app, RequestCounters(registry).answered, locked=access.is_locked)


class _WriterCollector(Collector):
    """The writer's counts, read at every scrape."""

    def __init__(self, counts: Counts, lease: Lease) -> None:
        self._counts, self._lease = counts, lease

    def collect(self) -> Iterator[Metric]:
        counts = self._counts
        yield GaugeMetricFamily(
            "trimaran_nodes_writes_here", "whether this is the one that writes, 1 or 0", int(self._lease.is_held)
        )
        yield GaugeMetricFamily("trimaran_nodes_hot", "nodes that are hot", counts.hot)
        yield GaugeMetricFamily("trimaran_nodes_waiting", "nodes that the budget had no room for", counts.waiting)
        family = CounterMetricFamily("trimaran_nodes_writes", "writes of nodes", labels=["of"])
        for name in ("taints", "annotations", "conflicts", "failures"):
            family.add_metric([name], getattr(counts, name))
        yield family
