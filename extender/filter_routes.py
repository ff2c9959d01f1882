"""``POST /filter``: ExtenderArgs in, ExtenderFilterResult out."""

import logging

import orjson
from flask import Blueprint, Response, request

from extender.filtering import Filtered, NodeFilter
from extender.wire import BadRequest, ExtenderArgs
from watcher.server import answers
from watcher.server.answers import Answer
from watcher.server.flask_parts import response
from watcher.wire import ErrorCode

FILTER = "/filter"
_log = logging.getLogger(__name__)


def filter_routes(filtering: NodeFilter) -> Blueprint:
    """Return the route."""
    routes = Blueprint("filter", __name__)

    @routes.post(FILTER)
    def post() -> Response:
        return response(_answered(filtering, request.get_data()))

    return routes


def encode_filtered(found: Filtered) -> bytes:
    """Return an ExtenderFilterResult: refused nodes as unresolvable, so that nothing is preempted for them."""
    return orjson.dumps({
        "Nodes": None, "NodeNames": list(found.passed), "FailedNodes": {},
        "FailedAndUnresolvableNodes": dict(found.refused), "Error": "",
    })  # fmt: skip


def _answered(filtering: NodeFilter, body: bytes) -> Answer:
    try:
        asked = ExtenderArgs.decode(body)
        if not _is_by_name(body):
            raise BadRequest("nodes are filtered by their names: nodeCacheCapable has to be true")  # noqa: TRY301
    except BadRequest as error:
        return answers.error(400, ErrorCode.BAD_REQUEST, str(error))
    try:
        found = filtering.answer(asked)
    except Exception:  # noqa: BLE001  a defect keeps no pod off any node
        _log.exception("candidates could not be filtered", extra={"pod": f"{asked.pod.namespace}/{asked.pod.name}"})
        found = Filtered(asked.node_names)
    return Answer(encode_filtered(found))


def _is_by_name(body: bytes) -> bool:
    return any(key.lower() == "nodenames" and value is not None for key, value in orjson.loads(body).items())
