"""The watcher's REST API: its routes. What they answer about nodes is made in ``reading``."""

from collections import Counter
from typing import TYPE_CHECKING

import orjson
from flask import Blueprint, Flask, Response, request

from runtime.server import responses
from runtime.server.access import AccessCheck
from runtime.server.errors import ErrorCode
from runtime.server.fast_path import FastPath
from runtime.server.flask_app import flask_response, is_admitted, probe_routes, register_error_handlers, require_access
from runtime.server.request_metrics import CONTENT_TYPE
from runtime.server.responses import HttpResponse
from watcher.api.node_views import Reading, UnknownParameter, check_parameters
from watcher.api.openapi import document as openapi_document
from watcher.api.prometheus_api import prometheus_routes
from watcher.errors import NotServed
from watcher.history import BadHistoryQuery
from watcher.pipeline.watcher import Watcher
from watcher.telemetry import Telemetry
from watcher.wire import Dialect

if TYPE_CHECKING:
    from watcher.doctor import Doctor


def create_app(
    watcher: Watcher,
    telemetry: Telemetry,
    access: AccessCheck | None = None,
    dialect: Dialect = Dialect.DOCUMENTED,
    doctor: "Doctor | None" = None,
) -> Flask:
    """Return the WSGI application over a watcher, with a ``Front`` before its routes.

    Args:
        watcher: what is served.
        telemetry: where requests are counted, and what is at /metrics.
        access: judges requests; everyone may read everything when None.
        dialect: of ``/watcher``.
        doctor: what it found is part of the health, if there is one.
    """
    access = access or AccessCheck()
    reading = Reading(watcher, dialect, access)
    app = create_routes(watcher, telemetry, access, dialect, reading, doctor)
    app.wsgi_app = FastPath(  # type: ignore[method-assign]
        app.wsgi_app, telemetry.answered, reading.known, private=access.requires_credentials
    )
    return app


def create_routes(
    watcher: Watcher,
    telemetry: Telemetry,
    access: AccessCheck,
    dialect: Dialect,
    reading: Reading,
    doctor: "Doctor | None" = None,
) -> Flask:
    """Return the routes of ``create_app`` alone, for a ``Front`` that is there already, and answers by ``reading``."""
    app = Flask("watcher", static_folder=None)
    app.config["PROVIDE_AUTOMATIC_OPTIONS"] = False  # what is not there is a 405 that says what is
    openapi = HttpResponse(orjson.dumps(openapi_document(dialect)))
    require_access(app, access)
    register_error_handlers(app)
    app.register_blueprint(_nodes(reading))
    app.register_blueprint(_state(watcher, doctor))
    app.register_blueprint(prometheus_routes(watcher))
    app.register_blueprint(probe_routes(watcher.is_alive, watcher.is_ready, telemetry.exposition, CONTENT_TYPE))

    @app.get("/")
    def index() -> Response:
        routes = sorted({rule.rule for rule in app.url_map.iter_rules()})
        answer = _json({"service": "trimaran watcher", "documentation": "/openapi.json", "routes": routes})
        answer.headers["Vary"] = "Accept"  # browsers may be sent to a page instead
        return answer

    @app.get("/openapi.json")
    def document() -> Response:
        return flask_response(openapi)

    return app


def _nodes(reading: Reading) -> Blueprint:
    """Return the routes of nodes, in the watcher's dialect and in Go's."""
    routes = Blueprint("nodes", __name__)

    def all_nodes() -> Response:
        window, host = _arguments("window", "host")
        rule = request.url_rule
        assert rule is not None  # noqa: S101  else this would not be called
        if host:
            return flask_response(reading.one_node(rule.rule, host, window))
        return flask_response(
            reading.all_nodes(
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
        return flask_response(reading.one_node(rule.rule.removesuffix("/<host>"), host, window))

    @routes.get("/history")
    def history() -> Response:
        asked = _arguments("host", "type", "operator", "since", "step")
        return flask_response(reading.history(*asked, encodings=request.headers.get("Accept-Encoding", "")))

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
    """Return the routes of how the watcher does."""
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
        found = watcher.findings()
        return _json({"findings": list(found), "counts": Counter(str(finding.kind) for finding in found)})

    return routes


def _arguments(*names: str) -> list[str | None]:
    """Return query arguments; an empty one is none, and one of another name is refused."""
    given = request.args
    check_parameters(tuple(given), names)
    return [given.get(name) or None for name in names]


def _json(body: object, status: int = 200) -> Response:
    return flask_response(responses.json_response(body, status))
