"""What a Flask application of ours has beside its routes: the access check, the one shape of errors, the probes."""

import logging
from collections.abc import Callable

from flask import Blueprint, Flask, Response, request
from werkzeug.exceptions import HTTPException

from runtime.server import responses as answers
from runtime.server.access import Access, Verdict
from runtime.server.errors import ErrorCode
from runtime.server.responses import Answer

_log = logging.getLogger(__name__)
_VERDICT = "trimaran.verdict"
_CODES = {404: ErrorCode.NOT_FOUND, 405: ErrorCode.METHOD_NOT_ALLOWED, 413: ErrorCode.TOO_LARGE}


def response(answer: Answer) -> Response:
    """Return an answer as Flask has it."""
    made = Response(answer.body, answer.status, answer.headers, content_type=answer.content_type)
    if answer.content_type is None:
        del made.headers["Content-Type"]
    if answer.afterwards is not None:
        made.call_on_close(answer.afterwards)
    return made


def check_access(app: Flask, access: Access) -> None:
    """Have every request judged before its route."""

    def admit() -> Response | None:
        rule = request.url_rule
        verdict = request.environ[_VERDICT] = access.judge(rule.rule if rule else "", request.environ)
        return None if verdict in {Verdict.ADMITTED, Verdict.OPEN} else response(refusal(verdict))

    if access.refuses_any:
        app.before_request(admit)


def is_admitted() -> bool:
    """Return whether the request is of someone who may be told everything: also why something failed."""
    return request.environ.get(_VERDICT, Verdict.ADMITTED) is Verdict.ADMITTED


def answer_errors(app: Flask) -> None:
    """Answer what no route answers, and defects, in the one shape of errors."""

    @app.errorhandler(HTTPException)
    def refused(error: HTTPException) -> Response:
        status = error.code or 500
        code = _CODES.get(status, ErrorCode.BAD_REQUEST)
        reply = response(answers.error(status, code, error.description or error.name))
        if status == 405 and error.response is None:
            reply.headers.update(dict(error.get_headers()))
            reply.mimetype = answers.JSON
        return reply

    @app.errorhandler(Exception)
    def failed(error: Exception) -> Response:
        _log.error("a request failed", exc_info=error, extra={"path": request.path[:200]})
        return response(answers.error(500, ErrorCode.INTERNAL, "the service failed to answer; its log says why"))


def probes(
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
            return response(answers.of_json({"alive": True}))
        return response(answers.error(503, ErrorCode.NOT_ALIVE, "the loop has stopped"))

    @routes.get("/readyz")
    def readyz() -> Response:
        if is_ready():
            return response(answers.of_json({"ready": True}))
        return response(answers.error(503, ErrorCode.NOT_READY, "there is nothing fresh to serve"))

    @routes.get("/metrics")
    def metrics() -> Response:
        return response(Answer(exposition(), content_type=content_type))

    return routes


def refusal(verdict: Verdict) -> Answer:
    """Return what is answered to who is not admitted."""
    if verdict is Verdict.NOT_HERE:
        return answers.error(404, ErrorCode.NOT_FOUND, verdict.value)
    if verdict in {Verdict.NO_CERTIFICATE, Verdict.OLD_CERTIFICATE}:
        return answers.error(403, ErrorCode.FORBIDDEN, verdict.value)
    because = ', error="invalid_token"' if verdict is Verdict.BAD_TOKEN else ""
    challenge = {"WWW-Authenticate": f'Bearer realm="trimaran"{because}'}
    return answers.error(401, ErrorCode.UNAUTHORIZED, verdict.value, challenge)
