"""Checks of the requests by which a browser calls a callback: malformed ones get status 400 instead of a traceback."""

import logging
from collections.abc import Sequence
from typing import Any

from dash import Dash
from flask import Flask, Response, request
from pydantic import BaseModel, ValidationError
from werkzeug.exceptions import BadRequest

from runtime.server.errors import encode_error

_PATH = "/_dash-update-component"
_log = logging.getLogger(__name__)


class ComponentProperty(BaseModel):
    """Property of a component of the page, with its value in the browser."""

    id: str
    property: str
    value: Any = None


class CallbackRequest(BaseModel):
    """Body of a callback's request, as Dash's renderer sends it."""

    output: str
    outputs: list[ComponentProperty]
    inputs: list[ComponentProperty]
    state: list[ComponentProperty] = []
    changedPropIds: list[str] = []  # noqa: N815  the renderer's name


def check_callback_requests(server: Flask, app: Dash) -> None:
    """Answer 400 to requests that name an unknown callback, wrong inputs of a callback, or values of wrong types.

    Each callback checks the types of its arguments with ``pydantic.validate_call``.
    """

    @server.before_request
    def check() -> None:
        if request.path != _PATH:
            return
        body = CallbackRequest.model_validate_json(request.get_data())
        known = app.callback_map.get(body.output)
        outputs = f"..{'...'.join(f'{each.id}.{each.property}' for each in body.outputs)}.."
        if (
            known is None
            or outputs != body.output
            or _names(body.inputs) != [(each["id"], each["property"]) for each in known["inputs"]]
            or _names(body.state) != [(each["id"], each["property"]) for each in known["state"]]
        ):
            raise BadRequest

    @server.errorhandler(ValidationError)
    @server.errorhandler(BadRequest)
    def refuse(error: Exception) -> Response:
        _log.debug("malformed callback request", extra={"error": str(error)})
        body = encode_error("bad_request", "malformed callback request: reload the page")
        return Response(body, 400, mimetype="application/json")


def _names(properties: Sequence[ComponentProperty]) -> list[tuple[str, str]]:
    return [(each.id, each.property) for each in properties]
