"""The REST API: routes only. What they answer is decided in ``watching`` and encoded in ``cache`` and ``wire``."""

import logging
import time
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import orjson
from flask import Flask, Request, Response, request
from werkzeug.exceptions import HTTPException

from watcher import telemetry as own_metrics
from watcher import wire
from watcher.doctor import Doctor
from watcher.errors import NoMetrics, NotServed, StaleMetrics, UnknownNode
from watcher.model import WatcherMetrics, Window
from watcher.pipeline.watcher import Watcher
from watcher.server.access import Access, Verdict
from watcher.server.openapi import document as openapi_document
from watcher.settings import ServerSettings
from watcher.telemetry import Telemetry
from watcher.wire import Dialect, ErrorCode

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

_log = logging.getLogger(__name__)
_JSON = "application/json"
_VERDICT = "trimaran.verdict"


def create_app(  # noqa: C901  a route each
    watcher: Watcher,
    settings: ServerSettings,
    telemetry: Telemetry,
    doctor: Doctor | None = None,
    access: Access | None = None,
) -> Flask:
    """Return the WSGI application over a watcher.

    Args:
        watcher: what is served.
        settings: how.
        telemetry: where requests are counted, and what is at /metrics.
        doctor: what it found is part of the health, if there is one.
        access: judges requests; made from the settings when None.
    """
    app = Flask("watcher", static_folder=None)
    app.config["PROVIDE_AUTOMATIC_OPTIONS"] = False  # what is not there is a 405 that says what is
    access = access or Access(settings)
    openapi = orjson.dumps(openapi_document(settings.dialect))

    def admit() -> Response | None:
        rule = request.url_rule
        verdict = request.environ[_VERDICT] = access.judge(rule.rule if rule else "", request.environ)
        return None if verdict in {Verdict.ADMITTED, Verdict.OPEN} else _refused(verdict)

    if access.refuses_any:
        app.before_request(admit)

    @app.get("/")
    def index() -> Response:
        routes = sorted({rule.rule for rule in app.url_map.iter_rules()})
        return _json({"service": "trimaran watcher", "documentation": "/openapi.json", "routes": routes})

    @app.get("/watcher")
    def all_nodes() -> Response:
        return _asked(watcher, settings.dialect)

    @app.get("/watcher/health")
    def health() -> Response:
        return _health(watcher, doctor.problems() if doctor else ())

    @app.get("/watcher/<host>")
    def one_node(host: str) -> Response:
        return _node(watcher, host, settings.dialect)

    @app.get("/compat/watcher")
    def all_nodes_for_go() -> Response:
        return _asked(watcher, Dialect.GO)

    @app.get("/compat/watcher/<host>")
    def one_node_for_go(host: str) -> Response:
        return _node(watcher, host, Dialect.GO)

    @app.get("/livez")
    def livez() -> Response:
        alive = watcher.is_alive()
        return _json({"alive": True}) if alive else _error(503, "not_alive", "the fetch loop has stopped")

    @app.get("/readyz")
    def readyz() -> Response:
        ready = watcher.is_ready()
        return _json({"ready": True}) if ready else _error(503, "not_ready", "there is nothing fresh to serve")

    @app.get("/metrics")
    def metrics() -> Response:
        return Response(telemetry.exposition(), content_type=own_metrics.CONTENT_TYPE)

    @app.get("/findings")
    def findings() -> Response:
        found = watcher.findings()
        return _json({"findings": list(found), "counts": Counter(str(finding.kind) for finding in found)})

    @app.get("/openapi.json")
    def document() -> Response:
        return Response(openapi, mimetype=_JSON)

    @app.errorhandler(NotServed)
    def not_served(error: NotServed) -> Response:
        admitted = request.environ.get(_VERDICT, Verdict.ADMITTED) is Verdict.ADMITTED
        return _error(404, error.code, str(error) if admitted else error.what)

    @app.errorhandler(HTTPException)
    def refused(error: HTTPException) -> Response:
        codes = {404: ErrorCode.NOT_FOUND, 405: ErrorCode.METHOD_NOT_ALLOWED}
        status = error.code or 500
        reply = _error(status, codes.get(status, ErrorCode.BAD_REQUEST), error.description or error.name)
        if status == 405 and error.response is None:
            reply.headers.update(dict(error.get_headers()))
            reply.mimetype = _JSON
        return reply

    @app.errorhandler(Exception)
    def failed(error: Exception) -> Response:
        _log.error("a request failed", exc_info=error, extra={"path": request.path[:200]})
        return _error(500, ErrorCode.INTERNAL, "the watcher failed to answer; its log says why")

    # Not Flask's hooks, which take as long as all the rest of an answer about one node.
    app.wsgi_app = _Finished(app.wsgi_app, telemetry, locked=access.is_locked)  # type: ignore[method-assign]
    return app


class _Finished:
    """WSGI middleware around the application: adds the headers that all answers have, and counts the answers."""

    def __init__(self, application: "WSGIApplication", telemetry: Telemetry, *, locked: bool) -> None:
        self._application = application
        self._telemetry = telemetry
        self._locked = locked

    def __call__(self, environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        began = time.perf_counter()

        def start(status: str, headers: list[tuple[str, str]], *failure: Any) -> Any:
            self._finish(headers)
            rule = environ["werkzeug.request"].url_rule
            self._telemetry.answered(rule.rule if rule else "none", int(status[:3]), time.perf_counter() - began)
            return start_response(status, headers, *failure)

        return self._application(environ, start)

    def _finish(self, headers: list[tuple[str, str]]) -> None:
        headers.append(("X-Content-Type-Options", "nosniff"))
        for place, (name, _) in enumerate(headers):
            if name == "Cache-Control":
                if self._locked:
                    headers[place] = name, "private, no-cache"
                return
        headers.append(("Cache-Control", "no-store"))


def _asked(watcher: Watcher, dialect: Dialect) -> Response:
    """Answer for all nodes, or for the one in ``?host=``."""
    host = _argument("host")
    if host:
        return _node(watcher, host, dialect)
    try:
        return _nodes(watcher, dialect)
    except (NoMetrics, StaleMetrics):
        if dialect is not Dialect.GO:
            raise
        # The Go plugins keep their last data for ever on anything but 200; with an empty map all nodes score alike.
        head = watcher.newest() or WatcherMetrics(int(time.time()), Window("15m", 0, 0), "", {})
        return Response(wire.assemble(head, (), dialect), mimetype=_JSON, headers={"Cache-Control": "no-cache"})


def _nodes(watcher: Watcher, dialect: Dialect) -> Response:
    columnar = _prefers_columns(request)
    body = watcher.published(_argument("window")).body(None if columnar else dialect)
    headers = {"ETag": body.etag, "Vary": "Accept, Accept-Encoding", "Cache-Control": "no-cache"}
    if request.if_none_match.contains_weak(body.etag.removeprefix("W/").strip('"')):
        return Response(status=304, headers=headers)
    mimetype = wire.COLUMNS_TYPE if columnar else _JSON
    if _accepts_gzip(request):
        return Response(body.gzip, mimetype=mimetype, headers={**headers, "Content-Encoding": "gzip"})
    return Response(body.identity, mimetype=mimetype, headers=headers)


def _node(watcher: Watcher, host: str, dialect: Dialect) -> Response:
    body = watcher.published(_argument("window")).node_body(host, dialect)
    if body is None:
        raise UnknownNode(f"there are no metrics for a node {host[:80]!r}")
    return Response(body, mimetype=_JSON)


def _health(watcher: Watcher, failed_checks: tuple[str, ...]) -> Response:
    health = watcher.health()
    report = {
        "status": "unhealthy" if health.reasons else "ok",
        "reasons": health.reasons,
        "warnings": [*health.warnings, *(f"check: {problem}" for problem in failed_checks)],
        "age_seconds": {window: round(age, 1) for window, age in health.ages_seconds.items()},
    }
    if not health.reasons:
        return _json(report)
    return _json({**report, "error": {"code": "unhealthy", "message": "; ".join(health.reasons)}}, 503)


def _argument(name: str) -> str | None:
    """Return a query argument; an empty one is none. Most requests have no query, and reading it takes its time."""
    return (request.args.get(name) or None) if request.query_string else None


def _refused(verdict: Verdict) -> Response:
    if verdict is Verdict.NOT_HERE:
        return _error(404, ErrorCode.NOT_FOUND, verdict.value)
    if verdict in {Verdict.NO_CERTIFICATE, Verdict.OLD_CERTIFICATE}:
        return _error(403, ErrorCode.FORBIDDEN, verdict.value)
    refused = _error(401, ErrorCode.UNAUTHORIZED, verdict.value)
    because = ', error="invalid_token"' if verdict is Verdict.BAD_TOKEN else ""
    refused.headers["WWW-Authenticate"] = f'Bearer realm="trimaran"{because}'
    return refused


def _prefers_columns(incoming: Request) -> bool:
    # Nearly nobody else asks for it, and to weigh what a browser accepts takes its time.
    if wire.COLUMNS_TYPE not in incoming.headers.get("Accept", "").lower():
        return False
    return incoming.accept_mimetypes.best_match([_JSON, wire.COLUMNS_TYPE]) == wire.COLUMNS_TYPE


def _accepts_gzip(incoming: Request) -> bool:
    return incoming.accept_encodings.quality("gzip") > 0


def _json(body: object, status: int = 200) -> Response:
    return Response(orjson.dumps(body), status, mimetype=_JSON)


def _error(status: int, code: str, message: str) -> Response:
    return Response(wire.encode_error(code, message), status, mimetype=_JSON)
