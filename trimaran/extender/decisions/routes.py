"""``GET /explain?pod=namespace/name``, ``GET /decisions`` and ``GET /regret``."""

import re

from flask import Blueprint, Response, request

from runtime.server import responses as answers
from runtime.server.errors import ErrorCode
from runtime.server.flask_app import response
from runtime.server.responses import Answer
from trimaran.extender.decisions import DECISIONS, EXPLAIN, REGRET
from trimaran.extender.decisions.readers import Readers, Reading
from trimaran.extender.decisions.record import Record, View, not_asked

MOST = 1000
_ALL_NAMESPACES = ""
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

    asked = _Asked(record, view, readers)

    @routes.get(EXPLAIN)
    def explain() -> Response:
        return response(asked.explained(request.args.get("pod", ""), request.headers.get("Authorization", "")))

    @routes.get(DECISIONS)
    def decisions() -> Response:
        return response(asked.recent(request.args.get("limit", "100"), request.headers.get("Authorization", "")))

    @routes.get(REGRET)
    def regret() -> Response:
        return response(answers.of_json(record.regrets()))

    return routes


class _Asked:
    """What is answered about pods, to those who may know of them."""

    def __init__(self, record: Record, view: View, readers: Readers) -> None:
        self._record, self._view, self._readers = record, view, readers

    def explained(self, pod: str, authorization: str) -> Answer:
        if not _POD.fullmatch(pod):
            return answers.error(400, ErrorCode.BAD_REQUEST, "which pod? /explain?pod=namespace/name")
        if refused := self._refused(authorization, pod.partition("/")[0]):
            return refused
        found = self._record.explain(pod)
        if found is None:
            with self._view.reading() as nodes:
                nodes = nodes.copy()  # noqa: PLW2901  to look through all pods without the view's lock
            found = not_asked(nodes, pod)
        if found is None:
            return answers.error(404, ErrorCode.NOT_FOUND, f"no decision for pod {pod} is kept, and it is on no node")
        return answers.of_json(found)

    def recent(self, limit: str, authorization: str) -> Answer:
        if not re.fullmatch(r"[0-9]{1,4}", limit) or not 1 <= int(limit) <= MOST:
            return answers.error(400, ErrorCode.BAD_REQUEST, f"how many? /decisions?limit=100, 1 to {MOST}")
        refused = self._refused(authorization, _ALL_NAMESPACES)
        return refused or answers.of_json({"decisions": self._record.recent(int(limit))})

    def _refused(self, authorization: str, namespace: str) -> Answer | None:
        reading = self._readers.judge(authorization, namespace)
        if reading not in _REFUSALS:
            return None
        status, code = _REFUSALS[reading]
        challenge = {"WWW-Authenticate": 'Bearer realm="kubernetes"'} if status == 401 else None
        said = reading.value if namespace else reading.value.replace("of the namespace", "of all namespaces")
        return answers.error(status, code, said, challenge)
