"""Requests for evictions: the kinds of refusals, as the API server sends them."""

from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest
from support.moving_api import Answer, MovingApi
from support.rebalancing import hot_and_cold

from runtime.kubernetes.api import ApiServerConfig, KubernetesApi
from trimaran.cluster.target_note import TargetNote
from trimaran.rebalancer.evictions import EvictionAnswer, Evictor
from watcher.testing import serving

UID = "uid-of-default-app-a-hot"
BUDGET: dict[str, Any] = {
    "kind": "Status", "code": 429, "message": "Cannot evict pod as it would violate the pod's disruption budget.",
    "details": {"causes": [{"reason": "DisruptionBudget", "message": "web needs 2 healthy pods"}]},
}  # fmt: skip
WEBHOOK = {
    "message": 'admission webhook "virt-launcher-eviction-interceptor.kubevirt.io" denied the request: migrating'
}
TWO = {"message": "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."}

ANSWERS: list[tuple[Answer, EvictionAnswer, float]] = [
    ((429, BUDGET, {}), EvictionAnswer.BUDGET, 10),
    ((429, BUDGET, {"Retry-After": "25"}), EvictionAnswer.BUDGET, 25),
    ((429, {"message": "too many requests"}, {"Retry-After": "40"}), EvictionAnswer.OVERLOAD, 40),
    ((429, WEBHOOK, {}), EvictionAnswer.DENIED, 10),
    ((403, WEBHOOK, {}), EvictionAnswer.DENIED, 10),
    ((403, {"message": 'User "x" cannot create resource "pods/eviction"'}, {}), EvictionAnswer.FORBIDDEN, 10),
    ((500, TWO, {}), EvictionAnswer.TWO_BUDGETS, 86400),
    ((500, {"message": "etcd is slow"}, {}), EvictionAnswer.UNKNOWN, 10),
    ((504, {}, {}), EvictionAnswer.UNKNOWN, 10),
    ((404, {}, {}), EvictionAnswer.GONE, 0),
    ((409, {}, {}), EvictionAnswer.GONE, 0),
    ((400, {"message": "bad"}, {}), EvictionAnswer.DENIED, 10),
    ((0, {}, {}), EvictionAnswer.UNKNOWN, 10),
    *(
        ((429, BUDGET, {"Retry-After": text}), EvictionAnswer.BUDGET, wait)
        for text, wait in (
            ("inf", 86400),
            ("1e999", 86400),
            ("9" * 400, 86400),
            ("nan", 10),
            ("-inf", 10),
            ("soon", 10),
        )
    ),
]


@pytest.mark.parametrize(("answer", "kind", "wait"), ANSWERS)
def test_each_refusal_has_its_kind_and_wait(answer: Answer, kind: EvictionAnswer, wait: float) -> None:
    """Status, cause and message tell the kind of a refusal, and Retry-After sets the wait."""
    api = MovingApi(hot_and_cold())
    api.fault = lambda _method, _path: answer
    outcome = Evictor(api, 5).evict("default", "app-a-hot", UID)
    assert (outcome.answer, outcome.wait) == (kind, wait)
    assert api.evicted == []


@pytest.mark.parametrize(("status", "body"), [(200, b"<html>"), (201, b""), (204, b""), (200, b"null"), (200, b"7")])
def test_a_success_counts_whatever_its_body_is(status: int, body: bytes) -> None:
    """Every request that is answered with a success is an eviction, which counts for the caps."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.rfile.read(int(handler.headers["Content-Length"]))
        handler.send_response(status)
        if status != 204:
            handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    with serving(answer) as server:
        api = KubernetesApi(ApiServerConfig(address=server.url))
        try:
            assert Evictor(api, 5).evict("default", "web", UID).answer is EvictionAnswer.EVICTED
        finally:
            api.close()


def test_another_pod_of_the_same_name_is_not_evicted() -> None:
    """The UID is a precondition: a pod that has only the name of the planned one stays."""
    api = MovingApi(hot_and_cold())
    assert Evictor(api, 5).evict("default", "app-a-hot", "another").answer is EvictionAnswer.GONE
    assert Evictor(api, 5).evict("default", "app-a-hot", UID).answer is EvictionAnswer.EVICTED
    assert api.evicted == [UID]


def test_a_note_is_written_read_and_removed() -> None:
    """The note on a pod reads as it was written, and its removal leaves no annotation of it."""
    world = hot_and_cold()
    evictor, note = Evictor(MovingApi(world), 5), TargetNote("node-idle", "node-hot", 1_795_000_000.0)
    assert evictor.note("default", "app-a-hot", UID, note) == ""
    assert TargetNote.read(world.pods[0]["metadata"]["annotations"]) == note
    assert evictor.note("default", "app-a-hot", UID, None) == ""
    assert world.pods[0]["metadata"]["annotations"] == {}
    assert evictor.note("default", "app-a-hot", "another", note) != ""
    assert evictor.note("default", "gone", UID, None) == ""
    assert TargetNote.read({"rebalancer.trimaran.io/target": "node-1"}) is None


def test_the_version_of_an_evicted_pod_is_that_of_this_pod() -> None:
    """The version is of the pod with the UID; it is 0 for another pod of that name, and if none can be read."""
    world = hot_and_cold()
    world.pods[0]["metadata"]["resourceVersion"] = "77"
    api = MovingApi(world)
    evictor = Evictor(api, 5)
    found = [
        evictor.version("default", *pod)
        for pod in (("app-a-hot", UID), ("app-a-hot", "another"), ("gone", UID), ("app-b-hot", UID))
    ]
    assert found == [77, 0, 0, 0]
    api.fault = lambda _method, _path: (403, {}, {})
    assert evictor.version("default", "app-a-hot", UID) == 0
