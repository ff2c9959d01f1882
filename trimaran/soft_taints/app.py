"""HTTP server of ``trimaran nodes``: probes and Prometheus metrics."""

from collections.abc import Callable, Iterator

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

from runtime.kubernetes.leader_election import Lease
from runtime.server.access import AccessCheck
from runtime.server.fast_path import FastPath
from runtime.server.flask_app import open_app
from runtime.server.telemetry import ServiceTelemetry, labelled
from trimaran.soft_taints.writer import WriterCounts


def create_app(
    counts: WriterCounts,
    lease: Lease,
    is_alive: Callable[[], bool],
    why_not_ready: Callable[[], str],
    access: AccessCheck,
) -> FastPath:
    """Return the WSGI application of ``trimaran nodes``.

    Args:
        counts: counters of the writer.
        lease: Lease of the leader election.
        is_alive: returns whether the threads make progress.
        why_not_ready: returns the reason why the first full list of nodes has not arrived; empty if it has.
        access: access check of the requests.
    """
    telemetry = ServiceTelemetry()
    telemetry.export(lambda: _metrics(counts, lease))
    app = open_app("nodes", access, is_alive, why_not_ready, telemetry.exposition)
    return FastPath(app.wsgi_app, telemetry.observe_request, access)


def _metrics(counts: WriterCounts, lease: Lease) -> Iterator[Metric]:
    # A replica that has lost the Lease knows no current state, and must not raise the leader's alerts.
    writes_here = int(lease.is_held)
    yield GaugeMetricFamily("trimaran_nodes_writes_here", "1 if this replica holds the Lease, else 0", writes_here)
    for name, documentation, value in (
        ("hot", "nodes that are hot now", counts.hot),
        ("warm", "nodes that are warm now, including hot nodes", counts.warm),
        ("known", "nodes of the cluster", counts.known),
        ("waiting", "nodes whose write was deferred by the budget in the last cycle", counts.deferred),
        ("failing", "nodes whose last patch failed", counts.failing),
    ):
        yield GaugeMetricFamily(f"trimaran_nodes_{name}", f"{documentation}; 0 without the Lease", value * writes_here)
    yield GaugeMetricFamily(
        "trimaran_nodes_metrics_timestamp_seconds",
        "time of the newest metrics by which nodes are marked, Unix time; 0 means never",
        counts.metrics_at,
    )
    writes = ((name, getattr(counts, name)) for name in ("taints", "annotations", "conflicts", "failures"))
    yield labelled(CounterMetricFamily, "trimaran_nodes_writes", "patches of nodes, by result", "of", writes)
