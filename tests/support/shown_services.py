"""Services that the dashboard shows next to the watcher, served over HTTP in this process."""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from werkzeug.wrappers import Request, Response

from runtime.server.access import AccessCheck
from trimaran.scheduler.service.app import create_app
from trimaran.scheduler.service.telemetry import AttemptResult, SchedulerTelemetry


def scheduler_app(
    attempts: Mapping[AttemptResult, int], shadow: Mapping[str, Any] | None = None, *, leads: bool = True
) -> Any:
    """Return the application of a scheduler that binds, or compares in shadow; five pods wait."""
    telemetry = SchedulerTelemetry()
    for result, number in attempts.items():
        for _ in range(number):
            telemetry.count_attempt(result, "default", 0.01)
    telemetry.watch(lambda: {"leads": float(leads), "load_known": 1}, lambda: {"unschedulable": 4, "backoff": 1})
    report = None if shadow is None else lambda: dict(shadow)
    return create_app(telemetry, lambda: True, str, dict, report, AccessCheck())


def prometheus_app(alerts: Sequence[Mapping[str, Any]] | str) -> Any:
    """Return an application that answers as Prometheus' API of alerts does."""

    @Request.application
    def app(request: Request) -> Response:
        assert request.path == "/api/v1/alerts"
        return Response(orjson.dumps({"status": "success", "data": {"alerts": alerts}}), mimetype="application/json")

    return app
