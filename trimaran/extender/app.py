"""The extender's HTTP API: ``POST /prioritize``, and the probes."""

import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from flask import Blueprint, Flask, Response, request

from runtime.kubernetes.pod_demand import CountedOnce
from runtime.server import responses as answers
from runtime.server.access import Access, Verdict
from runtime.server.errors import ErrorCode
from runtime.server.fast_path import Front
from runtime.server.flask_app import answer_errors, check_access, probes, refusal, response
from runtime.server.responses import Answer
from trimaran.extender.prioritizer import Prioritizer
from trimaran.extender.telemetry import Telemetry
from trimaran.extender.wire import BadRequest, ExtenderArgs, encode
from watcher.telemetry import CONTENT_TYPE

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment

PRIORITIZE = "/prioritize"


def create_app(
    prioritizer: Prioritizer,
    telemetry: Telemetry,
    is_ready: Callable[[], bool],
    access: Access | None = None,
    more: Iterable[Blueprint] = (),
) -> Front:
    """Return the WSGI application.

    Args:
        prioritizer: answers.
        telemetry: where requests and answers are counted, and what is at /metrics.
        is_ready: whether the cluster is known.
        access: judges requests; everyone may ask when None.
        more: routes beside them.
    """
    access = access or Access()
    app = Flask("extender", static_folder=None)
    app.config["PROVIDE_AUTOMATIC_OPTIONS"] = False  # what is not there is a 405 that says what is
    check_access(app, access)
    answer_errors(app)
    app.register_blueprint(probes(prioritizer.is_alive, is_ready, telemetry.exposition, CONTENT_TYPE))
    for routes_of in more:
        app.register_blueprint(routes_of)

    counted = CountedOnce()

    def prioritized(body: bytes) -> Answer:
        began = time.perf_counter()
        try:
            asked = ExtenderArgs.decode(body, counted)
        except BadRequest as error:
            return answers.error(400, ErrorCode.BAD_REQUEST, str(error))
        later: list[Callable[[], None]] = []
        found = prioritizer.answer(asked, later.append)
        encoded = encode(found.names, found.points)
        telemetry.prioritized(found.outcome, time.perf_counter() - began)
        return Answer(encoded, afterwards=later[0] if later else None)

    @app.post(PRIORITIZE)
    def prioritize() -> Response:
        return response(prioritized(request.get_data()))

    def directly(environ: "WSGIEnvironment") -> tuple[str, Answer] | None:
        """Answer what a scheduler waits for without Flask, which takes as long as the scores."""
        if environ["PATH_INFO"] != PRIORITIZE or environ["REQUEST_METHOD"] != "POST":
            return None
        verdict = access.judge(PRIORITIZE, environ)
        if verdict not in {Verdict.ADMITTED, Verdict.OPEN}:
            return PRIORITIZE, refusal(verdict)
        length = int(environ.get("CONTENT_LENGTH") or 0)
        return PRIORITIZE, prioritized(environ["wsgi.input"].read(length))

    return Front(app.wsgi_app, telemetry.answered, computed=directly, locked=access.is_locked)
