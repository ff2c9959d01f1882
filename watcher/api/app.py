"""Routes of the watcher's REST API; ``node_views`` builds the responses about nodes."""

from collections import Counter
from typing import TYPE_CHECKING

import orjson
from flask import Blueprint, Flask, Response, request

from runtime.server import responses
from runtime.server.access import AccessCheck
from runtime.server.errors import ErrorCode
from runtime.server.fast_path import FastPath
from runtime.server.flask_app import NOTHING_FRESH, flask_response, is_admitted, open_app
from runtime.server.responses import HttpResponse
from watcher.api.node_views import NodeViews, UnknownParameter, check_parameters
from watcher.api.openapi import document as openapi_document
from watcher.api.pod_access import PodAccess
from watcher.api.pods import pod_routes
from watcher.api.prometheus_api import prometheus_routes
from watcher.api.workloads import workload_routes
from watcher.errors import NotServed
from watcher.history import BadHistoryQuery
from watcher.pipeline.watcher import Watcher
from watcher.telemetry import WatcherTelemetry
from watcher.wire import Dialect

if TYPE_CHECKING:
    from watcher.doctor import Doctor


def create_app(
    watcher: Watcher,
    telemetry: WatcherTelemetry,
    access: AccessCheck | None = None,
    dialect: Dialect = Dialect.DOCUMENTED,
    doctor: "Doctor | None" = None,
    pod_access: PodAccess | None = None,
) -> Flask:
    """Return the WSGI application of a watcher: the routes, behind a ``FastPath`` that answers from the cache.

    Args:
        watcher: watcher to serve.
        telemetry: counters of HTTP requests, and the content of /metrics.
        access: access check of HTTP requests; None admits everyone.
        dialect: JSON dialect of ``/watcher``.
        doctor: background checks of the providers; /watcher/health lists the failed checks as warnings.
        pod_access: access check of the routes about pods; None shows everything to each admitted caller.
    """
    access = access or AccessCheck()
    views = NodeViews(watcher, dialect)
    app = create_routes(watcher, telemetry, access, dialect, views, doctor, pod_access=pod_access)
    app.wsgi_app = FastPath(  # type: ignore[method-assign]
        app.wsgi_app, telemetry.observe_request, access, views.cached_response
    )
    return app


def create_routes(
    watcher: Watcher,
    telemetry: WatcherTelemetry,
    access: AccessCheck,
    dialect: Dialect,
    views: NodeViews,
    doctor: "Doctor | None" = None,
    pod_access: PodAccess | None = None,
) -> Flask:
    """Return the routes of :func:`create_app` as a Flask application, without the ``FastPath`` in front of them.

    The caller builds its own ``FastPath`` from ``views``. The other arguments are those of :func:`create_app`.

    Args:
        watcher: watcher to serve.
        telemetry: counters of HTTP requests, and the content of /metrics.
        access: access check of HTTP requests.
        dialect: JSON dialect of ``/watcher``.
        views: responses about nodes.
        doctor: background checks of the providers.
        pod_access: access check of the routes about pods.
    """
    pod_access = pod_access or PodAccess(access)
    openapi = HttpResponse(orjson.dumps(openapi_document(dialect)))

    def why_unmeasured() -> str:
        return watcher.usage.why_empty

    def why_not_ready() -> str:
        return "" if views.is_ready() else NOTHING_FRESH

    app = open_app("watcher", access, watcher.is_alive, why_not_ready, telemetry.exposition)
    app.register_blueprint(_nodes(views))
    app.register_blueprint(_state(watcher, doctor))
    app.register_blueprint(prometheus_routes(watcher))
    app.register_blueprint(workload_routes(watcher.workloads, why_unmeasured, pod_access))
    app.register_blueprint(pod_routes(watcher.pod_use, why_unmeasured, pod_access))

    @app.get("/")
    def index() -> Response:
        routes = sorted({rule.rule for rule in app.url_map.iter_rules()})
        answer = _json({"service": "trimaran watcher", "documentation": "/openapi.json", "routes": routes})
        answer.headers["Vary"] = "Accept"  # browsers may be redirected to the dashboard
        return answer

    @app.get("/openapi.json")
    def document() -> Response:
        return flask_response(openapi)

    return app


def _nodes(views: NodeViews) -> Blueprint:
    """Return the routes that serve the load of nodes: ``/watcher``, ``/compat/watcher`` and ``/history``.

    ``/watcher`` uses the configured JSON dialect, ``/compat/watcher`` the dialect of load-watcher's Go code.
    """
    routes = Blueprint("nodes", __name__)

    def all_nodes() -> Response:
        window, host = _arguments("window", "host")
        rule = request.url_rule
        assert rule is not None  # noqa: S101  Flask calls a view only for a matched rule
        if host:
            return flask_response(views.one_node(rule.rule, host, window))
        return flask_response(
            views.all_nodes(
                rule.rule,
                window,
                if_none_match=request.headers.get("If-None-Match"),
                accepted=request.headers.get("Accept", ""),
                encodings=request.headers.get("Accept-Encoding", ""),
            )
        )

    def one_node(host: str) -> Response:
        (window,) = _arguments("window")
        rule = request.url_rule
        assert rule is not None  # noqa: S101  as above
        return flask_response(views.one_node(rule.rule.removesuffix("/<host>"), host, window))

    @routes.get("/history")
    def history() -> Response:
        arguments = _arguments("host", "type", "operator", "since", "step")
        return flask_response(views.history(*arguments, encodings=request.headers.get("Accept-Encoding", "")))

    for route in ("/watcher", "/compat/watcher"):
        routes.add_url_rule(route, route.replace("/", " "), all_nodes, methods=["GET"], strict_slashes=False)
        routes.add_url_rule(f"{route}/<host>", f"one of {route}".replace("/", " "), one_node, methods=["GET"])

    @routes.app_errorhandler(NotServed)
    def not_served(error: NotServed) -> Response:
        return flask_response(responses.error_response(404, error.code, str(error) if is_admitted() else error.what))

    @routes.app_errorhandler(UnknownParameter)
    @routes.app_errorhandler(BadHistoryQuery)
    def bad_parameter(error: Exception) -> Response:
        return flask_response(responses.error_response(400, ErrorCode.BAD_REQUEST, str(error)))

    return routes


def _state(watcher: Watcher, doctor: "Doctor | None") -> Blueprint:
    """Return the routes of the watcher's state: ``/watcher/health`` and ``/findings``."""
    routes = Blueprint("state", __name__)

    @routes.get("/watcher/health")
    def health() -> Response:
        health = watcher.health()
        failed_checks = doctor.problems() if doctor else ()
        report = {
            "status": "unhealthy" if health.reasons else "ok",
            "reasons": health.reasons,
            "warnings": [*health.warnings, *(f"check: {problem}" for problem in failed_checks)],
            "age_seconds": {window: round(age, 1) for window, age in health.ages_seconds.items()},
        }
        if not health.reasons:
            return _json(report)
        return _json({**report, "error": {"code": "unhealthy", "message": "; ".join(health.reasons)}}, 503)

    @routes.get("/findings")
    def findings() -> Response:
        present = watcher.findings()
        return _json({"findings": list(present), "counts": Counter(str(finding.kind) for finding in present)})

    return routes


def _arguments(*names: str) -> list[str | None]:
    """Return the values of the query parameters with these names; None for a parameter that is missing or empty.

    Raises:
        UnknownParameter: the request has a parameter with another name.
    """
    arguments = request.args
    check_parameters(tuple(arguments), names)
    return [arguments.get(name) or None for name in names]


def _json(body: object, status: int = 200) -> Response:
    return flask_response(responses.json_response(body, status))
