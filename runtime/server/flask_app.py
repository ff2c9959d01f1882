"""What a Flask application of ours has beside its routes: the access check, the one shape of errors, the probes."""

import logging
from collections.abc import Callable

from flask import Blueprint, Flask, Response, request
from werkzeug.exceptions import HTTPException

from runtime.server import responses
from runtime.server.access import AccessCheck, Verdict
from runtime.server.errors import ErrorCode
from runtime.server.responses import HttpResponse

_log = logging.getLogger(__name__)
_VERDICT = "trimaran.verdict"
_CODES = {404: ErrorCode.NOT_FOUND, 405: ErrorCode.METHOD_NOT_ALLOWED, 413: ErrorCode.TOO_LARGE}


def flask_response(answer: HttpResponse) -> Response:
    """Return an answer as Flask has it."""
    made = Response(answer.body, answer.status, answer.headers, content_type=answer.content_type)
    if answer.content_type is None:
        del made.headers["Content-Type"]
    if answer.on_sent is not None:
        made.call_on_close(answer.on_sent)
    return made


def require_access(app: Flask, access: AccessCheck) -> None:
    """Have every request judged before its route."""

    def admit() -> Response | None:
        rule = request.url_rule
        verdict = request.environ[_VERDICT] = access.check(rule.rule if rule else "", request.environ)
        return None if verdict in {Verdict.ADMITTED, Verdict.OPEN} else flask_response(refusal_response(verdict))

    if access.may_refuse:
        app.before_request(admit)


def is_admitted() -> bool:
    """Return whether the request is of someone who may be told everything: also why something failed."""
    return request.environ.get(_VERDICT, Verdict.ADMITTED) is Verdict.ADMITTED


def register_error_handlers(app: Flask) -> None:
    """HttpResponse what no route answers, and defects, in the one shape of errors."""

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


def probe_routes(
    is_alive: Callable[[], bool], is_ready: Callable[[], bool], exposition: Callable[[], bytes], content_type: str
) -> Blueprint:
    """Return the routes ``/livez``, ``/readyz`` and ``/metrics``.

    Args:
        is_alive: whether the service's work goes on; who answers false is restarted.
        is_ready: whether there is something to serve.
        exposition: what Prometheus reads.
        content_type: of that.
    """
    routes = Blueprint("probes", __name__)

    @routes.get("/livez")
    def livez() -> Response:
        if is_alive():
            return flask_response(responses.json_response({"alive": True}))
        return flask_response(responses.error_response(503, ErrorCode.NOT_ALIVE, "the loop has stopped"))

    @routes.get("/readyz")
    def readyz() -> Response:
        if is_ready():
            return flask_response(responses.json_response({"ready": True}))
        return flask_response(responses.error_response(503, ErrorCode.NOT_READY, "there is nothing fresh to serve"))

    @routes.get("/metrics")
    def metrics() -> Response:
        return flask_response(HttpResponse(exposition(), content_type=content_type))

    return routes


def refusal_response(verdict: Verdict) -> HttpResponse:
    """Return what is answered to who is not admitted."""
    if verdict is Verdict.WRONG_PORT:
        return responses.error_response(404, ErrorCode.NOT_FOUND, verdict.value)
    if verdict in {Verdict.NO_CERTIFICATE, Verdict.EXPIRED_CERTIFICATE}:
        return responses.error_response(403, ErrorCode.FORBIDDEN, verdict.value)
    because = ', error="invalid_token"' if verdict is Verdict.INVALID_TOKEN else ""
    challenge = {"WWW-Authenticate": f'Bearer realm="trimaran"{because}'}
    return responses.error_response(401, ErrorCode.UNAUTHORIZED, verdict.value, challenge)
