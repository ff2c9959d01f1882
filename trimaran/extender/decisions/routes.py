"""HTTP routes of the decision record: ``GET /explain?pod=namespace/name``, ``GET /decisions`` and ``GET /regret``."""

import re

from flask import Blueprint, Response, request

from runtime.kubernetes.access_reviews import ALL_NAMESPACES
from runtime.server import responses
from runtime.server.errors import ErrorCode
from runtime.server.flask_app import flask_response
from runtime.server.responses import HttpResponse
from trimaran.cluster.view import ClusterView
from trimaran.extender.decisions import DECISIONS, EXPLAIN, REGRET
from trimaran.extender.decisions.authorizer import PodReadAuthorizer
from trimaran.extender.decisions.record import DecisionRecord, explain_undecided

MOST = 1000
_POD = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?/[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?")


def decision_routes(record: DecisionRecord, view: ClusterView, authorizer: PodReadAuthorizer) -> Blueprint:
    """Return the HTTP routes of the decision record: /explain, /decisions and /regret.

    Args:
        record: record of the decisions.
        view: the live cluster, to explain why a running pod has no decision.
        authorizer: authorizer of /explain and /decisions.
    """
    routes = Blueprint("decisions", __name__)

    handler = _PodHandler(record, view, authorizer)

    @routes.get(EXPLAIN)
    def explain() -> Response:
        return flask_response(handler.explained(request.args.get("pod", ""), request.headers.get("Authorization", "")))

    @routes.get(DECISIONS)
    def decisions() -> Response:
        return flask_response(
            handler.recent(request.args.get("limit", "100"), request.headers.get("Authorization", ""))
        )

    @routes.get(REGRET)
    def regret() -> Response:
        return flask_response(responses.json_response(record.regrets()))

    return routes


class _PodHandler:
    """Handler of /explain and /decisions, which only authorized callers may read."""

    def __init__(self, record: DecisionRecord, view: ClusterView, authorizer: PodReadAuthorizer) -> None:
        self._record, self._view, self._authorizer = record, view, authorizer

    def explained(self, pod: str, authorization: str) -> HttpResponse:
        if not _POD.fullmatch(pod):
            return responses.error_response(400, ErrorCode.BAD_REQUEST, "name a pod: /explain?pod=namespace/name")
        if refused := self._refused(authorization, pod.partition("/")[0]):
            return refused
        document = self._record.explain(pod)
        if document is None:
            with self._view.reading() as nodes:
                nodes = nodes.copy()  # noqa: PLW2901  the search through all pods must not hold the view's lock
            document = explain_undecided(nodes, pod)
        if document is None:
            return responses.error_response(
                404, ErrorCode.NOT_FOUND, f"pod {pod} has no recorded decision and is not on a node"
            )
        return responses.json_response(document)

    def recent(self, limit: str, authorization: str) -> HttpResponse:
        if not re.fullmatch(r"[0-9]{1,4}", limit) or not 1 <= int(limit) <= MOST:
            return responses.error_response(
                400, ErrorCode.BAD_REQUEST, f"limit must be 1 to {MOST}: /decisions?limit=100"
            )
        refused = self._refused(authorization, ALL_NAMESPACES)
        return refused or responses.json_response({"decisions": self._record.recent(int(limit))})

    def _refused(self, authorization: str, namespace: str) -> HttpResponse | None:
        refused = self._authorizer.refusal(self._authorizer.judge(authorization, namespace), namespace)
        return None if refused is None else responses.error_response(*refused)
