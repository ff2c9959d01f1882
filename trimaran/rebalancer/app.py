"""HTTP server of ``trimaran rebalance``: probes, Prometheus metrics, state, and explanations why a pod stays."""

from collections.abc import Callable, Iterator
from typing import Any

from flask import Response, abort, request
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

from runtime.server import responses
from runtime.server.access import AccessCheck
from runtime.server.fast_path import FastPath
from runtime.server.flask_app import flask_response, open_app
from runtime.server.telemetry import ServiceTelemetry, labelled
from trimaran.rebalancer.controller import Rebalancer
from trimaran.rebalancer.status import explanation


def create_app(
    rebalancer: Rebalancer,
    status: Callable[[], dict[str, Any]],
    rights: Callable[[], dict[str, Any]],
    is_alive: Callable[[], bool],
    why_not_ready: Callable[[], str],
    leads: Callable[[], bool],
    access: AccessCheck,
) -> FastPath:
    """Return the WSGI application of ``trimaran rebalance``.

    Args:
        rebalancer: the controller.
        status: returns the state of the rebalancer.
        rights: returns the rights that the account lacks, as reviewed by the API server.
        is_alive: returns whether the threads make progress.
        why_not_ready: returns the reason why the cluster is not known yet; empty if it is.
        leads: returns whether this replica may act, or only observes.
        access: access check of the requests.
    """
    telemetry = ServiceTelemetry()
    telemetry.export(lambda: _metrics(rebalancer, leads=int(leads())))
    app = open_app("rebalancer", access, is_alive, why_not_ready, telemetry.exposition)

    @app.get("/status")
    def show_status() -> Response:
        return flask_response(responses.json_response(status()))

    @app.get("/rights")
    def show_rights() -> Response:
        return flask_response(responses.json_response(rights()))

    @app.get("/explain")
    def explain() -> Response:
        pod = request.args.get("pod", "")
        if pod.count("/") != 1:
            abort(400, "pod: give NAMESPACE/NAME")
        found = explanation(rebalancer.published, pod)
        if found is None:
            abort(404, f"no running pod {pod[:300]!r} in the last search")
        return flask_response(responses.json_response(found))

    return FastPath(app.wsgi_app, telemetry.observe_request, access)


def _metrics(rebalancer: Rebalancer, leads: int) -> Iterator[Metric]:
    # A replica that does not hold the Lease knows no current state, and must not raise the leader's alerts.
    counts, published = rebalancer.counts, rebalancer.published
    for name, documentation, value in (
        ("leads", "1 if this replica holds the Lease, or only observes, so that it needs none", leads),
        ("acts", "1 if this replica moves pods, 0 if it observes or waits for the Lease", int(published.acts)),
        ("brake", "1 if the brake is set, so that nothing moves", int(published.ledger.brake is not None)),
        ("open", "moves whose replacement is not Ready yet", counts.open),
        ("planned", "moves of the last search", counts.planned),
        ("hot_nodes", "nodes that the last search found worth relieving", counts.hot),
        ("unknown_nodes", "nodes that are no targets, because what a pod on them requests is not known",
         0 if published.look is None else len(published.look.unknown_nodes)),
        ("moved_twice", "pods, counted with their replacements, that moved more than once within a day", counts.twice),
    ):  # fmt: skip
        yield GaugeMetricFamily(f"trimaran_rebalancer_{name}", documentation, value * leads)
    yield GaugeMetricFamily(
        "trimaran_rebalancer_use_timestamp_seconds",
        "end of the measured use of the last search, Unix time; 0 means never", counts.used_at,
    )  # fmt: skip
    yield CounterMetricFamily("trimaran_rebalancer_searches", "searches for moves", counts.searches)
    yield labelled(
        CounterMetricFamily, "trimaran_rebalancer_moves", "moves of pods, by what became of them", "result",
        counts.moves.items(),
    )  # fmt: skip
    yield labelled(
        CounterMetricFamily, "trimaran_rebalancer_refusals", "moves that were refused, by the reason", "reason",
        counts.refusals.items(),
    )  # fmt: skip
    yield labelled(
        GaugeMetricFamily, "trimaran_rebalancer_stays",
        "pods that may not move, by the reason, in the last search", "reason",
        ((reason, number * leads) for reason, number in counts.stays.items()),
    )  # fmt: skip
    gain = GaugeMetricFamily(
        "trimaran_rebalancer_gain",
        "mean gain of the measured moves of a day, in hot nodes; held: of moves that were not made",
        labels=["group", "kind"],
    )
    for labels, mean in counts.gains.items():
        gain.add_metric(list(labels), mean * leads)
    yield gain
    yield labelled(
        GaugeMetricFamily, "trimaran_rebalancer_measured", "measured moves of a day", "group",
        ((group, number * leads) for group, number in counts.measured.items()),
    )  # fmt: skip
