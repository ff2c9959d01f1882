"""Forged requests of the page: every malformed one gets status 400, and none a traceback."""

import copy
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from flask.testing import FlaskClient
from support.page import SCREEN
from support.workload_rounds import measured

from client.errors import NoMetrics
from runtime.http.json_service import JsonService
from trimaran.dashboard.app import create_app
from trimaran.dashboard.data import DashboardData
from trimaran.dashboard.extender import Decisions
from trimaran.dashboard.page_context import PageContext
from watcher.store import Store
from watcher.usage.learn.learner_service import LearnerService
from watcher.usage.recommend.recommendation import recommended
from watcher.wire import decode
from watcher.wire.workloads import WorkloadIndex, workload_items

NOW = int(time.time())
METRIC = {"name": "c", "type": "CPU", "operator": "AVG", "rollup": "15m", "value": 20.5}
SNAPSHOT = decode(
    json.dumps(
        {
            "timestamp": NOW,
            "window": {"duration": "15m", "start": NOW - 900, "end": NOW},
            "source": "Prometheus",
            "data": {f"node-{number}": {"metrics": [METRIC], "tags": {}, "metadata": {}} for number in range(3)},
        }
    )
)
LEARNED = LearnerService(Store(None), "x")
LEARNED.observe(*measured(0))
VALUES = {
    "location.pathname": "/", "location.search": "", "plane-type.data": "CPU", "plane-time.value": 5,
    "plane-time.max": 9, "nodes-sort.data": "name", "nodes-page.value": 1, "pod-score.n_clicks": 1,
    "decisions-mode.data": "all", "workloads-by.data": "namespace", "workloads-sort.data": "waste CPU",
    "workloads-change.data": "all", "workloads-page.value": 1,
    "overview-tick.n_intervals": 3, "node-name.data": "node-1",
}  # fmt: skip
FORGED = [
    None, 0, -1, 1.5, 1e308, 10**30, "", "a", "\0", "\ud800", "x" * 50_000, "(", "a=b,", [], [1], {}, {"a": 1}, True,
]  # fmt: skip
BODIES = [
    b"", b"{", b"null", b"[]", b"1", b'"a"', b"NaN", b"\xff", b"[" * 60_000, b'{"a":' * 10_000, b'{"output": 1}',
]  # fmt: skip


class Watcher:
    """Reader of a watcher with three nodes."""

    def metrics(self, _window=None):
        return SNAPSHOT

    def history(self, **_query):
        raise NoMetrics("no history")

    def findings(self):
        return []

    def windows(self):
        return ("15m",)

    def health(self):
        return ()

    def pod_history(self, _nodes):
        raise NoMetrics("no pods")

    def workload_totals(self):
        return LEARNED.totals()

    def workload_document(self):
        index = WorkloadIndex.of(LEARNED.table(), *recommended(LEARNED))
        return {"timestamp": index.table.timestamp, "workloads": workload_items(index, index.workloads)}

    def admit(self, _token):
        return DashboardData(self)


@pytest.fixture(scope="module")
def page() -> FlaskClient:
    """A client of the page that raises the page's exceptions."""
    app = create_app(Watcher(), PageContext(decisions=Decisions(JsonService("extender", "http://127.0.0.1:1"))))
    app.testing = True
    return app.test_client()


@pytest.fixture(scope="module")
def requests_(page) -> list[dict[str, Any]]:
    """A request for each callback, as a browser sends it."""

    def with_values(properties: list[dict[str, str]]) -> list[dict[str, Any]]:
        return [
            {
                "id": each["id"],
                "property": each["property"],
                "value": VALUES.get(f"{each['id']}.{each['property']}", ""),
            }
            for each in properties
        ]

    return [
        {
            "output": each["output"],
            "outputs": [dict(zip(("id", "property"), name.split("."), strict=True)) for name in
                        each["output"][2:-2].split("...")],
            "inputs": with_values(each["inputs"]),
            "state": with_values(each["state"]),
            "changedPropIds": [],
        }
        for each in page.get("/_dash-dependencies").json
    ]  # fmt: skip


def send(page: FlaskClient, body: Any) -> int:
    """Send a callback's request, and return the status."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return page.post("/_dash-update-component", data=content, content_type="application/json").status_code


def forgeries(request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield copies of a request with one part missing, repeated or of another type."""
    for key in request:
        yield {name: value for name, value in request.items() if name != key}
        yield from ({**request, key: value} for value in FORGED)
    for key in ("outputs", "inputs", "state", "changedPropIds"):
        yield from ({**request, key: [*request[key], value]} for value in (*request[key][:1], *FORGED))
        for number, part in enumerate(request[key]):
            others = [{**part, name: value} for name in ("id", "property", "value") for value in FORGED]
            for other in (*others, *FORGED):
                changed = copy.deepcopy(request)
                changed[key][number] = other
                yield changed


def test_a_browsers_requests_are_answered(page, requests_):
    """A request for each callback, with its inputs in order, gets its answer."""
    assert {send(page, request) for request in requests_} == {200, 204}
    assert [request["output"] for request in requests_].count(SCREEN) == 1


def test_forged_requests_are_refused(page, requests_):
    """Of thousands of forged requests each is answered, or refused with status 400; none ends in a traceback."""
    forged = [*BODIES, *(changed for request in requests_ for changed in forgeries(request))]
    statuses = [send(page, body) for body in forged]
    assert len(forged) > 2_000
    assert set(statuses) <= {200, 204, 400}
    assert statuses[: len(BODIES)] == [400] * len(BODIES)
    assert statuses.count(400) > len(forged) / 2


def test_a_refusal_says_what_to_do(page):
    """The answer to a malformed request is JSON with the way out, without details of the page."""
    answer = page.post("/_dash-update-component", data=b"{}", content_type="application/json")
    assert answer.json == {
        "error": {"code": "bad_request", "message": "malformed callback request: reload the page"},
    }


@pytest.mark.parametrize("path", ["/", "/cluster", "/nodes", "/moves", "/pod", "/decisions", "/no-such-page"])
@pytest.mark.parametrize(
    "search",
    [
        "?pod=%00",
        "?type=x&sort=y&mode=z&pool=%ff",
        "?" + "&".join(["a=b"] * 5_000),
        "???",
        "?node=%00",
        "?pod=" + "x" * 50_000,
    ],
    ids=["nul", "unknown values", "many keys", "no keys", "nul node", "long value"],
)
def test_forged_urls_are_answered(page, path, search):
    """Each page is drawn for any query in the URL."""
    request = {
        "output": SCREEN,
        "outputs": [{"id": "page", "property": "children"}, {"id": "navigation", "property": "children"}],
        "inputs": [
            {"id": "location", "property": "pathname", "value": path},
            {"id": "location", "property": "search", "value": search},
        ],
        "changedPropIds": ["location.search"],
    }
    assert send(page, request) == 200
