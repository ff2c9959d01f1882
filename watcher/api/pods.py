"""Route of single pods: their use over the last day, for named nodes."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from flask import Blueprint, Response, request

from runtime.kubernetes.access_reviews import ALL_NAMESPACES
from runtime.server.flask_app import flask_response, is_admitted
from runtime.server.responses import HttpResponse
from watcher.api.node_views import UnknownParameter, check_parameters
from watcher.api.pod_access import PodAccess
from watcher.errors import NotServed
from watcher.wire import MetricsCode
from watcher.wire.pod_use import encode_pod_use

if TYPE_CHECKING:
    from watcher.usage.history.persistent_pod_use import PersistentPodUse

_PARAMETERS = ("node", "pod")
_MOST = 100  # nodes, and as many single pods: with 110 pods on each node the response has 11 MB


def pod_routes(past: "PersistentPodUse", why_empty: Callable[[], str], access: PodAccess) -> Blueprint:
    """Return the route ``/pods/history``.

    Args:
        past: past use of pods.
        why_empty: returns the reason why no use is known.
        access: admits the callers that may list the pods of all namespaces.
    """
    routes = Blueprint("pods", __name__)

    @routes.get("/pods/history")
    def history() -> Response:
        caller = access.caller(request.headers.get("Authorization", ""), is_admitted=is_admitted())
        caller.require(ALL_NAMESPACES)
        check_parameters(tuple(request.args), _PARAMETERS)
        nodes, uids = (list(filter(None, request.args.getlist(name))) for name in _PARAMETERS)
        if not nodes and not uids:
            raise UnknownParameter("node: name the nodes whose pods to return, such as ?node=a&node=b")
        for name, values in zip(_PARAMETERS, (nodes, uids), strict=True):
            if len(values) > _MOST:
                raise UnknownParameter(
                    f"{name}: at most {_MOST} in a request, got {len(values)}: send several requests"
                )
        table = past.table(nodes, uids)
        if not table.timestamp:
            raise NotServed(MetricsCode.NO_METRICS, "the use of no pod is known", why_empty())
        return flask_response(HttpResponse(encode_pod_use(table)))

    return routes
