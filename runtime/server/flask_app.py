"""Common parts of the project's Flask applications: access check, error bodies and probes."""

import logging
from collections.abc import Callable

from flask import Blueprint, Flask, Response, request
from werkzeug.exceptions import HTTPException

from runtime.server import responses
from runtime.server.access import AccessCheck, Verdict
from runtime.server.errors import ErrorCode
from runtime.server.responses import HttpResponse
from runtime.server.telemetry import CONTENT_TYPE

_log = logging.getLogger(__name__)
NOTHING_FRESH = "there is nothing fresh to serve"
_VERDICT = "trimaran.verdict"
_CODES = {404: ErrorCode.NOT_FOUND, 405: ErrorCode.METHOD_NOT_ALLOWED, 413: ErrorCode.TOO_LARGE}


def flask_response(response: HttpResponse) -> Response:
    """Convert an HttpResponse to a response of Flask."""
    converted = Response(response.body, response.status, response.headers, content_type=response.content_type)
    if response.content_type is None:
        del converted.headers["Content-Type"]
    return converted


def open_app(
    name: str,
    access: AccessCheck,
    is_alive: Callable[[], bool],
    why_not_ready: Callable[[], str],
    exposition: Callable[[], bytes],
) -> Flask:
    """Return a Flask application with the access check, error bodies and probes of all services.

    Args:
        name: name of the application.
        access: access check of the requests.
        is_alive: returns False if the service's loop has stopped and it should be restarted.
        why_not_ready: returns the reason why there is nothing to serve, empty if the service is ready. Only clients
            that may see everything get the reason.
        exposition: returns the metrics in Prometheus' text format.
    """
    app = Flask(name, static_folder=None)
    app.config["PROVIDE_AUTOMATIC_OPTIONS"] = False  # OPTIONS then gets a 405 with the allowed methods
    _require_access(app, access)
    _register_error_handlers(app)
    app.register_blueprint(_probe_routes(is_alive, why_not_ready, exposition))
    return app


def _require_access(app: Flask, access: AccessCheck) -> None:
    """Register the access check, which runs before the route of every request."""

    def admit() -> Response | None:
        rule = request.url_rule
        verdict = request.environ[_VERDICT] = access.check(rule.rule if rule else "", request.environ)
        return None if verdict in {Verdict.ADMITTED, Verdict.OPEN} else flask_response(refusal_response(verdict))

    if access.may_refuse:
        app.before_request(admit)


def is_admitted() -> bool:
    """Return whether the client may see everything, including the reasons of failures."""
    return request.environ.get(_VERDICT, Verdict.ADMITTED) is Verdict.ADMITTED


def _register_error_handlers(app: Flask) -> None:
    """Register handlers that return errors, also of unknown paths, in the body that all APIs use."""

    @app.errorhandler(HTTPException)
    def refused(error: HTTPException) -> Response:
        status = error.code or 500
        code = _CODES.get(status, ErrorCode.BAD_REQUEST)
        reply = flask_response(responses.error_response(status, code, error.description or error.name))
        if status == 405 and error.response is None:
            reply.headers.update(dict(error.get_headers()))
            reply.mimetype = responses.JSON
        return reply

    @app.errorhandler(Exception)
    def failed(error: Exception) -> Response:
        _log.error("a request failed", exc_info=error, extra={"path": request.path[:200]})
        return flask_response(
            responses.error_response(500, ErrorCode.INTERNAL, "the service failed to answer; its log says why")
        )


def _probe_routes(
    is_alive: Callable[[], bool], why_not_ready: Callable[[], str], exposition: Callable[[], bytes]
) -> Blueprint:
    """Return the routes ``/livez``, ``/readyz`` and ``/metrics``, with the arguments of :func:`open_app`."""
    routes = Blueprint("probes", __name__)

    @routes.get("/livez")
    def livez() -> Response:
        if is_alive():
            return flask_response(responses.json_response({"alive": True}))
        return flask_response(responses.error_response(503, ErrorCode.NOT_ALIVE, "the loop has stopped"))

    @routes.get("/readyz")
    def readyz() -> Response:
        reason = why_not_ready()
        if not reason:
            return flask_response(responses.json_response({"ready": True}))
        message = reason if is_admitted() else NOTHING_FRESH
        return flask_response(responses.error_response(503, ErrorCode.NOT_READY, message))

    @routes.get("/metrics")
    def metrics() -> Response:
        return flask_response(HttpResponse(exposition(), content_type=CONTENT_TYPE))

    return routes


def refusal_response(verdict: Verdict) -> HttpResponse:
    """Return the response to a request that the access check rejects."""
    if verdict is Verdict.WRONG_PORT:
        return responses.error_response(404, ErrorCode.NOT_FOUND, verdict.value)
    if verdict in {Verdict.NO_CERTIFICATE, Verdict.EXPIRED_CERTIFICATE}:
        return responses.error_response(403, ErrorCode.FORBIDDEN, verdict.value)
    because = ', error="invalid_token"' if verdict is Verdict.INVALID_TOKEN else ""
    challenge = {"WWW-Authenticate": f'Bearer realm="trimaran"{because}'}
    return responses.error_response(401, ErrorCode.UNAUTHORIZED, verdict.value, challenge)
