"""``GET /explain?pod=namespace/name`` and ``GET /regret``."""

import re

from flask import Blueprint, Response, request

from extender.decisions.readers import Readers, Reading
from extender.decisions.record import Record, View, not_asked
from watcher.server import answers
from watcher.server.answers import Answer
from watcher.server.flask_parts import response
from watcher.wire import ErrorCode

EXPLAIN, REGRET = "/explain", "/regret"
_POD = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?/[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?")
_REFUSALS = {
    Reading.UNKNOWN: (401, ErrorCode.UNAUTHORIZED),
    Reading.FORBIDDEN: (403, ErrorCode.FORBIDDEN),
    Reading.UNDECIDED: (503, "no_review"),
}


def decision_routes(record: Record, view: View, readers: Readers) -> Blueprint:
    """Return the routes.

    Args:
        record: of decisions.
        view: the live cluster, for pods that were not asked about.
        readers: who may know of pods.
    """
    routes = Blueprint("decisions", __name__)

    @routes.get(EXPLAIN)
    def explain() -> Response:
        return response(_explained(request.args.get("pod", ""), request.headers.get("Authorization", "")))

    @routes.get(REGRET)
    def regret() -> Response:
        return response(answers.of_json(record.regrets()))

    def _explained(pod: str, authorization: str) -> Answer:
        if not _POD.fullmatch(pod):
            return answers.error(400, ErrorCode.BAD_REQUEST, "which pod? /explain?pod=namespace/name")
        reading = readers.judge(authorization, pod.partition("/")[0])
        if reading in _REFUSALS:
            status, code = _REFUSALS[reading]
            challenge = {"WWW-Authenticate": 'Bearer realm="kubernetes"'} if status == 401 else None
            return answers.error(status, code, reading.value, challenge)
        found = record.explain(pod)
        if found is None:
            with view.reading() as nodes:
                nodes = nodes.copy()  # noqa: PLW2901  to look through all pods without the view's lock
            found = not_asked(nodes, pod)
        if found is None:
            return answers.error(404, ErrorCode.NOT_FOUND, f"no decision for pod {pod} is kept, and it is on no node")
        return answers.of_json(found)

    return routes
