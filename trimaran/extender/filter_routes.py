"""HTTP routes of the filter: ``POST /filter`` (ExtenderArgs in, ExtenderFilterResult out) and ``POST /preempt``.

Source: k8s.io/kube-scheduler/extender/v1.
"""

import logging

import orjson
from flask import Blueprint, Response, request

from runtime.server import responses
from runtime.server.errors import ErrorCode
from runtime.server.flask_app import flask_response
from runtime.server.responses import HttpResponse
from trimaran.extender.filtering import FilterResult, NodeFilter, VictimUids
from trimaran.extender.wire import BadRequest, ExtenderArgs, decoded_fields

FILTER, PREEMPT = "/filter", "/preempt"
_log = logging.getLogger(__name__)


def filter_routes(filtering: NodeFilter) -> Blueprint:
    """Return the HTTP routes of the filter: /filter and /preempt."""
    routes = Blueprint("filter", __name__)

    @routes.post(FILTER)
    def post() -> Response:
        return flask_response(_handle_filter(filtering, request.get_data()))

    @routes.post(PREEMPT)
    def preempt() -> Response:
        return flask_response(_handle_preempt(filtering, request.get_data()))

    return routes


def encode_filter_result(result: FilterResult) -> bytes:
    """Return the JSON of an ExtenderFilterResult.

    Refused nodes are listed as unresolvable, so that kube-scheduler evicts no pods from them to make room.
    """
    return orjson.dumps({
        "Nodes": None, "NodeNames": list(result.passed), "FailedNodes": {},
        "FailedAndUnresolvableNodes": dict(result.refused), "Error": "",
    })  # fmt: skip


def _handle_preempt(filtering: NodeFilter, body: bytes) -> HttpResponse:
    """Answer a preemption request: return the given nodes that pass once their victims are gone, and these victims."""
    try:
        with decoded_fields(body) as fields:
            victims = fields.get("nodenametometavictims")
            if not isinstance(victims, dict):
                raise BadRequest("no NodeNameToMetaVictims: set nodeCacheCapable of this extender to true")  # noqa: TRY301
            args = ExtenderArgs.from_fields(fields, tuple(victims))
        uids = {name: [str(pod["UID"]) for pod in on_node.get("Pods") or ()] for name, on_node in victims.items()}
    except BadRequest as error:
        return responses.error_response(400, ErrorCode.BAD_REQUEST, str(error))
    except (KeyError, TypeError, AttributeError):
        return responses.error_response(
            400, ErrorCode.BAD_REQUEST, "the body is not an ExtenderPreemptionArgs with uids"
        )
    passed = _filter_safely(filtering, args, uids).passed
    return responses.json_response({"NodeNameToMetaVictims": {name: victims[name] for name in passed}})


def _filter_safely(filtering: NodeFilter, args: ExtenderArgs, victims: VictimUids) -> FilterResult:
    try:
        return filtering.answer(args, victims)
    except Exception:  # noqa: BLE001  after a defect all nodes pass
        _log.exception("candidates could not be filtered", extra={"pod": f"{args.pod.namespace}/{args.pod.name}"})
        return FilterResult(args.node_names)


def _handle_filter(filtering: NodeFilter, body: bytes) -> HttpResponse:
    try:
        args = ExtenderArgs.decode(body)
        if not args.by_name:
            raise BadRequest("no NodeNames: set nodeCacheCapable of this extender to true")  # noqa: TRY301
    except BadRequest as error:
        return responses.error_response(400, ErrorCode.BAD_REQUEST, str(error))
    return HttpResponse(encode_filter_result(_filter_safely(filtering, args, {})))
