"""HTTP API of the extender: ``POST /prioritize``, probes and metrics."""

import io
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from flask import Blueprint, Response, request

from runtime.kubernetes.pod_demand import RequestCache
from runtime.kubernetes.workloads import Workload, workload_of
from runtime.server import responses
from runtime.server.access import AccessCheck
from runtime.server.errors import ErrorCode
from runtime.server.fast_path import FastPath
from runtime.server.flask_app import open_app
from runtime.server.responses import HttpResponse
from trimaran.extender.filter_routes import FILTER, PREEMPT
from trimaran.extender.prioritizer import Prioritizer
from trimaran.extender.telemetry import ExtenderTelemetry
from trimaran.extender.wire import BadRequest, ExtenderArgs, encode

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment

PRIORITIZE = "/prioritize"
# All other routes run in threads of their own, so that they cannot block kube-scheduler's requests or kubelet's probes.
_FOREGROUND = {PRIORITIZE, FILTER, PREEMPT, "/livez", "/readyz"}
_REFUSAL_SECONDS = 0.1


def create_app(
    prioritizer: Prioritizer,
    telemetry: ExtenderTelemetry,
    why_not_ready: Callable[[], str],
    access: AccessCheck | None = None,
    more: Iterable[Blueprint] = (),
    name_workload: Callable[..., Workload] = workload_of,
) -> FastPath:
    """Return the WSGI application.

    Args:
        prioritizer: scores the candidates.
        telemetry: Prometheus metrics of the requests and their outcomes, served at /metrics.
        why_not_ready: returns the reason why pods cannot be scored yet; empty if they can.
        access: access check of the requests; None admits everyone.
        more: further routes, such as those of the filter and of the recorded decisions.
        name_workload: names the workload of a pod to score, as for :meth:`Pod.from_k8s`.
    """
    access = access or AccessCheck()
    app = open_app("extender", access, prioritizer.is_alive, why_not_ready, telemetry.exposition)
    app.after_request(_delay_refusal)
    for routes_of in more:
        app.register_blueprint(routes_of)

    request_cache = RequestCache()

    def prioritize(environ: "WSGIEnvironment") -> HttpResponse:
        """Handle a prioritize request without Flask: Flask would double the time of a request."""
        if environ["REQUEST_METHOD"] != "POST":
            return responses.error_response(405, ErrorCode.METHOD_NOT_ALLOWED, "use POST", {"Allow": "POST"})
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        began = time.perf_counter()
        try:
            args = ExtenderArgs.decode(body, request_cache, name_workload)
        except BadRequest as error:
            return responses.error_response(400, ErrorCode.BAD_REQUEST, str(error))
        result = prioritizer.answer(args)
        encoded = encode(result.names, result.points)
        telemetry.count_prioritized(result.outcome, time.perf_counter() - began)
        return HttpResponse(encoded)

    return FastPath(
        app.wsgi_app, telemetry.observe_request, access, handlers={PRIORITIZE: prioritize}, is_background=_is_background
    )


def _is_background(environ: "WSGIEnvironment") -> bool:
    """Return whether a request runs in the background threads; if so, drop its body, which no background route reads.

    Many requests may wait for these threads, each with a body of up to 32 MB.
    """
    if environ["PATH_INFO"] in _FOREGROUND:
        return False
    environ |= {"wsgi.input": io.BytesIO(), "CONTENT_LENGTH": "0"}
    return True


def _delay_refusal(response: Response) -> Response:
    """Delay the response to a refused request: a flood of them must leave CPU time for kube-scheduler's requests."""
    if response.status_code >= 400 and request.path not in _FOREGROUND:
        time.sleep(_REFUSAL_SECONDS)
    return response
