"""``POST /filter``: ExtenderArgs in, ExtenderFilterResult out. ``POST /preempt``: ExtenderPreemptionArgs and -Result.

Source: k8s.io/kube-scheduler/extender/v1.
"""

import logging

import orjson
from flask import Blueprint, Response, request

from runtime.server import responses as answers
from runtime.server.errors import ErrorCode
from runtime.server.flask_app import response
from runtime.server.responses import Answer
from trimaran.extender.filtering import Filtered, Leaving, NodeFilter
from trimaran.extender.wire import BadRequest, ExtenderArgs, fields_of

FILTER, PREEMPT = "/filter", "/preempt"
_log = logging.getLogger(__name__)


def filter_routes(filtering: NodeFilter) -> Blueprint:
    """Return the route."""
    routes = Blueprint("filter", __name__)

    @routes.post(FILTER)
    def post() -> Response:
        return response(_answered(filtering, request.get_data()))

    @routes.post(PREEMPT)
    def preempt() -> Response:
        return response(_preempted(filtering, request.get_data()))

    return routes


def encode_filtered(found: Filtered) -> bytes:
    """Return an ExtenderFilterResult: refused nodes as unresolvable, so that nothing is preempted for them."""
    return orjson.dumps({
        "Nodes": None, "NodeNames": list(found.passed), "FailedNodes": {},
        "FailedAndUnresolvableNodes": dict(found.refused), "Error": "",
    })  # fmt: skip


def _preempted(filtering: NodeFilter, body: bytes) -> Answer:
    """Return the nodes that preemption may make room on, with what it would kill there."""
    try:
        fields = fields_of(body)
        victims = fields.get("nodenametometavictims")
        if not isinstance(victims, dict):
            raise BadRequest("pods are told by their uids: nodeCacheCapable has to be true")  # noqa: TRY301
        asked = ExtenderArgs.of(fields, tuple(victims))
        leaving = {name: [str(each["UID"]) for each in found.get("Pods") or ()] for name, found in victims.items()}
    except BadRequest as error:
        return answers.error(400, ErrorCode.BAD_REQUEST, str(error))
    except (KeyError, TypeError, AttributeError):
        return answers.error(400, ErrorCode.BAD_REQUEST, "the body is no ExtenderPreemptionArgs by uids")
    passed = _filtered(filtering, asked, leaving).passed
    return answers.of_json({"NodeNameToMetaVictims": {name: victims[name] for name in passed}})


def _filtered(filtering: NodeFilter, asked: ExtenderArgs, leaving: Leaving) -> Filtered:
    try:
        return filtering.answer(asked, leaving)
    except Exception:  # noqa: BLE001  a defect keeps no pod off any node
        _log.exception("candidates could not be filtered", extra={"pod": f"{asked.pod.namespace}/{asked.pod.name}"})
        return Filtered(asked.node_names)


def _answered(filtering: NodeFilter, body: bytes) -> Answer:
    try:
        asked = ExtenderArgs.decode(body)
        if not asked.by_name:
            raise BadRequest("nodes are filtered by their names: nodeCacheCapable has to be true")  # noqa: TRY301
    except BadRequest as error:
        return answers.error(400, ErrorCode.BAD_REQUEST, str(error))
    return Answer(encode_filtered(_filtered(filtering, asked, {})))
