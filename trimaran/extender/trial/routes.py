"""HTTP route of the field trial: ``GET /trial`` returns its report."""

from flask import Blueprint, Response

from runtime.server import responses
from runtime.server.errors import ErrorCode
from runtime.server.flask_app import flask_response
from trimaran.extender.trial import TRIAL
from trimaran.extender.trial.field_trial import FieldTrial


def trial_routes(trial: FieldTrial) -> Blueprint:
    """Return the route of a field trial."""
    routes = Blueprint("trial", __name__)

    @routes.get(TRIAL)
    def report() -> Response:
        document = trial.document()
        if document is not None:
            return flask_response(responses.json_response(document))
        why = trial.problem or "no field trial is running: set extender.mode = trial"
        return flask_response(responses.error_response(404, ErrorCode.NOT_FOUND, why))

    return routes
