"""Binder: each pod is bound once or reported as not bound, whatever becomes of its requests."""

import queue
from collections.abc import Iterator

import pytest
import requests
from support.binding_api import BindingApi, refusal
from support.waiting import LIMIT_SECONDS, wait_until

from runtime.kubernetes.objects import Pod
from trimaran.scheduler.framework.decisions import Bind, Prepare
from trimaran.scheduler.framework.extension_points import Write
from trimaran.scheduler.service.binder import NOT_LEADING, OUTDATED, Binder, BindOutcome

LOST = requests.ConnectionError("the connection broke")


class Bound:
    """A binder with one thread, and the outcomes that it reported."""

    def __init__(self) -> None:
        self.api = BindingApi()
        self.leads = True
        self.outdated: set[str] = set()
        self.outcomes: queue.SimpleQueue[BindOutcome] = queue.SimpleQueue()
        self.binder = Binder(
            [self.api], lambda: self.leads, timeout_seconds=5, is_outdated=lambda uid: uid in self.outdated
        )
        self.binder.start(self.outcomes.put)

    def carry_out(self, decision: Bind | Prepare) -> str:
        """Carry out a decision; return the failure."""
        self.binder.carry_out(decision)
        return self.outcomes.get(timeout=LIMIT_SECONDS).failure


@pytest.fixture
def bound() -> Iterator[Bound]:
    bound = Bound()
    bound.api.add("web", "uid-1")
    yield bound
    assert bound.binder.stop()


def decision(uid: str = "uid-1") -> Bind:
    return Bind(Pod("web", uid=uid), "node-1", 1)


def test_a_pod_is_bound_with_its_uid(bound: Bound) -> None:
    """The Binding names the pod's UID, and is the only request."""
    assert bound.carry_out(decision()) == ""
    assert bound.api.pods["default/web"]["spec"]["nodeName"] == "node-1"
    assert bound.api.bodies[0]["metadata"]["uid"] == "uid-1"
    assert bound.api.sent == ["POST /api/v1/namespaces/default/pods/web/binding"]


def test_another_pod_of_the_same_name_is_not_bound(bound: Bound) -> None:
    """A StatefulSet's pod that was deleted and created again keeps its name, but not its UID."""
    assert "UID" in bound.carry_out(decision("uid-0"))
    assert "nodeName" not in bound.api.pods["default/web"]["spec"]


@pytest.mark.parametrize("status", [403, 404, 409, 429])
def test_a_refused_binding_is_reported_without_a_read(bound: Bound, status: int) -> None:
    """A status below 500 means that nothing was executed."""
    bound.api.before = lambda _method, _path: refusal(status, "no")
    assert bound.carry_out(decision()).startswith(str(status))
    assert len(bound.api.sent) == 1


@pytest.mark.parametrize("cause", [LOST, TimeoutError("late"), refusal(500), refusal(504)])
def test_a_binding_without_an_answer_is_read(bound: Bound, cause: Exception) -> None:
    """If it was executed, the pod is bound; if it never is, it is sent three times, and reported as not bound."""
    bound.api.after = lambda method, _path: cause if method == "POST" else None
    assert bound.carry_out(decision()) == ""
    bound.api.add("web", "uid-1")
    bound.api.before = lambda method, _path: cause if method == "POST" else None
    assert "no answer" in bound.carry_out(decision())
    assert [each.partition(" ")[0] for each in bound.api.sent] == ["POST", "GET"] * 4


@pytest.mark.parametrize("arrives", ["before the second", "after the second"])
def test_a_late_binding_changes_no_node(bound: Bound, arrives: str) -> None:
    """A first Binding that is executed after the pod was read has the same node as the second."""
    seen: list[str] = []

    def fault(method: str, _path: str) -> Exception | None:
        seen.append(method)
        if len(seen) == 3 and arrives == "before the second":
            bound.api.pods["default/web"]["spec"]["nodeName"] = "node-1"
        return LOST if len(seen) == 1 else None

    bound.api.before = fault
    assert bound.carry_out(decision()) == ""
    assert bound.api.pods["default/web"]["spec"]["nodeName"] == "node-1"
    assert seen == ["POST", "GET", "POST", *(["GET"] if arrives == "before the second" else [])]
    assert {each["target"]["name"] for each in bound.api.bodies if each} == {"node-1"}


def test_a_repeated_binding_may_be_refused(bound: Bound) -> None:
    """A refusal of the second Binding is the reason, if the pod still has no node."""
    answers = [LOST, None, refusal(403, "no")]
    bound.api.before = lambda _method, _path: answers.pop(0) if answers else None
    assert bound.carry_out(decision()).startswith("403")


def test_the_pod_is_read_until_the_api_server_answers(bound: Bound, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the outcome is unknown nothing is reported, so the pod counts on its node; reads become rare."""
    failures, pauses = [LOST, *[LOST, refusal(503)] * 4, None], list[float]()
    bound.api.after = lambda _method, _path: failures.pop(0)
    monkeypatch.setattr(bound.binder._stop, "wait", pauses.append)
    assert bound.carry_out(decision()) == ""
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]


def test_without_the_right_to_read_the_next_binding_tells(bound: Bound) -> None:
    """A pod that may not be read holds no thread: its Binding is repeated, and refused if the first was executed."""
    answers = {"POST": [LOST, LOST, LOST], "GET": [refusal(403), refusal(403), refusal(403)]}
    bound.api.before = lambda method, _path: answers[method].pop(0)
    assert "no answer" in bound.carry_out(decision())
    assert bound.api.sent[-1].startswith("GET")
    answers |= {"POST": [LOST, refusal(409, "already bound")], "GET": [refusal(403), refusal(403)]}
    assert bound.carry_out(decision()).startswith("409")


def test_the_reader_finds_another_node_or_another_pod(bound: Bound) -> None:
    """A pod that another scheduler has bound, or that is gone, is not bound by us."""
    bound.api.before = lambda method, _path: LOST if method == "POST" else None
    bound.api.add("web", "uid-1", "node-2")
    assert bound.carry_out(decision()) == "the pod is bound to node-2"
    bound.api.add("web", "uid-2", "node-1")
    assert bound.carry_out(decision()) == "the pod has been deleted"
    bound.api.pods.clear()
    assert bound.carry_out(decision()) == "the pod has been deleted"


def test_nothing_is_sent_without_the_lease(bound: Bound) -> None:
    """200 queued decisions of a process that has lost the Lease send no request."""
    bound.leads = False
    for _ in range(200):
        bound.binder.carry_out(decision())
    assert {bound.outcomes.get(timeout=60).failure for _ in range(200)} == {NOT_LEADING}
    assert bound.api.sent == []


def test_an_outdated_decision_sends_nothing(bound: Bound) -> None:
    """Neither a Binding nor the writes before it are sent once the pod no longer fits."""
    bound.outdated = {"uid-1"}
    assert bound.carry_out(decision()) == OUTDATED
    assert bound.carry_out(Prepare(Pod("web", uid="uid-1"), "node-1", ())) == OUTDATED
    assert bound.api.sent == []


def test_writes_before_a_binding_stop_at_the_first_failure(bound: Bound) -> None:
    """A Prepare sends its writes in order, and no Binding."""
    writes = tuple(
        Write(f"/api/v1/namespaces/default/pods/{name}/status", {"metadata": {"uid": "uid-1"}, "status": {}})
        for name in ("web", "missing", "web")
    )
    assert bound.carry_out(Prepare(Pod("web", uid="uid-1"), "node-1", writes[:1])) == ""
    assert "404" in bound.carry_out(Prepare(Pod("web", uid="uid-1"), "node-1", writes))
    assert [path.split("/")[-2] for path in bound.api.sent] == ["web", "web", "missing"]


def test_a_defect_is_reported(bound: Bound) -> None:
    """A pod does not stay on its node forever because of an unexpected exception."""
    bound.api.before = lambda _method, _path: RuntimeError("defect")
    assert bound.carry_out(decision()) == "RuntimeError: defect"


def test_stopping_ends_a_reader(bound: Bound) -> None:
    """A binder whose API server is gone stops in time, and reports no outcome that it does not know."""
    bound.api.before = lambda _method, _path: LOST
    bound.binder.carry_out(decision())
    wait_until(lambda: len(bound.api.sent) >= 2, "it has read")
    assert bound.binder.stop()
    assert bound.outcomes.empty()
