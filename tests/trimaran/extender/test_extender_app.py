"""HTTP API of the extender."""

import orjson
import pytest
from support.extending import SettableMetrics, StaticView, extender_args, profiles
from werkzeug.test import Client

from runtime.server.access import AccessCheck
from trimaran.extender.app import create_app
from trimaran.extender.prioritizer import Prioritizer, PrioritizerOptions
from trimaran.extender.telemetry import ExtenderTelemetry

LOADS = {"node-1": 80.0, "node-2": 10.0}
TOKEN = "of-the-scheduler-"


@pytest.fixture
def view() -> StaticView:
    return StaticView(*LOADS)


def client(view: StaticView, access: AccessCheck | None = None) -> Client:
    telemetry = ExtenderTelemetry()
    prioritizer = Prioritizer(profiles(), view, SettableMetrics(LOADS), PrioritizerOptions(deadline_seconds=20))
    return Client(create_app(prioritizer, telemetry, lambda: "" if view.is_synced else "no list yet", access))


def error(response, status: int, code: str) -> str:
    """Check the response of an error, and return its message."""
    assert response.status_code == status
    assert response.headers["Content-Type"] == "application/json"
    error_body = response.json["error"]
    assert error_body["code"] == code
    return error_body["message"]


def test_candidates_are_prioritized(view: StaticView) -> None:
    """A prioritize request is answered with a HostPriorityList as JSON."""
    response = client(view).post("/prioritize", data=orjson.dumps(extender_args(*LOADS)))
    assert response.status_code == 200
    assert response.headers["Content-Type"] == "application/json"
    assert response.headers["Cache-Control"] == "no-store"
    assert [each["Host"] for each in response.json] == list(LOADS)
    first, second = (each["Score"] for each in response.json)
    assert 0 <= first < second <= 500


def test_other_methods_and_paths_are_refused(view: StaticView) -> None:
    """Unknown paths are answered with 404, and wrong methods with 405."""
    error(client(view).get("/prioritize"), 405, "method_not_allowed")
    error(client(view).post("/filter"), 404, "not_found")


def test_probes_and_metrics_are_served(view: StaticView) -> None:
    """The probes report the state of the cluster, and /metrics counts requests and outcomes."""
    asking = client(view)
    asking.post("/prioritize", data=orjson.dumps(extender_args(*LOADS)))
    asking.post("/prioritize", data=b"{")
    assert asking.get("/livez").status_code == asking.get("/readyz").status_code == 200
    text = asking.get("/metrics").text
    assert 'trimaran_extender_answers_total{outcome="scored"} 1.0' in text
    assert 'trimaran_http_requests_total{route="/prioritize",status="200"} 1.0' in text
    assert 'trimaran_http_requests_total{route="/prioritize",status="400"} 1.0' in text
    view.is_synced = False
    assert asking.get("/readyz").status_code == 503


def test_unauthorized_requests_are_refused_before_the_body_is_read(view: StaticView) -> None:
    """With a token set, requests without it get 401, and the probes stay open."""
    asking = client(view, AccessCheck(token=TOKEN))
    error(asking.post("/prioritize", data=b"{"), 401, "unauthorized")
    error(asking.get("/metrics"), 401, "unauthorized")
    assert asking.get("/livez").status_code == 200
    admitted = {"Authorization": f"Bearer {TOKEN}"}
    assert asking.post("/prioritize", data=orjson.dumps(extender_args(*LOADS)), headers=admitted).status_code == 200
