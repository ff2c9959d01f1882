"""HTTP server of ``trimaran scheduler``: probes, metrics, the scheduler's state, and the comparison in shadow mode."""

from collections.abc import Callable

from flask import Response, abort

from runtime.server import responses
from runtime.server.access import AccessCheck
from runtime.server.fast_path import FastPath
from runtime.server.flask_app import flask_response, open_app
from trimaran.scheduler import STATUS
from trimaran.scheduler.service.telemetry import SchedulerTelemetry


def create_app(
    telemetry: SchedulerTelemetry,
    is_alive: Callable[[], bool],
    why_not_ready: Callable[[], str],
    status: Callable[[], dict[str, object]],
    shadow: Callable[[], dict[str, object]] | None,
    access: AccessCheck,
) -> FastPath:
    """Return the WSGI application of ``trimaran scheduler``.

    Args:
        telemetry: metrics.
        is_alive: returns whether the threads make progress.
        why_not_ready: returns the reason why the cluster is not known yet; empty if it is.
        status: returns the state, for ``trimaran doctor``.
        shadow: returns the comparison with the other scheduler; None if this scheduler binds.
        access: access check of the requests.
    """
    app = open_app("scheduler", access, is_alive, why_not_ready, telemetry.exposition)

    @app.get(STATUS)
    def show_status() -> Response:
        return flask_response(responses.json_response(status()))

    @app.get("/shadow")
    def show_shadow() -> Response:
        if shadow is None:
            abort(404, "nothing is compared, because this scheduler binds pods: set scheduler.mode = shadow")
        return flask_response(responses.json_response(shadow()))

    return FastPath(app.wsgi_app, telemetry.observe_request, access)
