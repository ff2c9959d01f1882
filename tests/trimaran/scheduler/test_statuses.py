"""Statuses and preemptions: what autoscalers and people read, and which pods are deleted."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest
from support.binding_api import BindingApi, refusal
from support.waiting import wait_until

from runtime.kubernetes.objects import Pod
from trimaran.scheduler.framework.decisions import Unschedulable
from trimaran.scheduler.framework.extension_points import Preemption
from trimaran.scheduler.service.pod_status_writer import StatusWriter

if TYPE_CHECKING:
    from trimaran.scheduler.service.pod_events import PodEvent

POD = Pod("web", uid="uid-1", scheduler_name="ours")


class Written:
    """A status writer with one thread, and the Events that it wrote."""

    def __init__(self) -> None:
        self.api = BindingApi()
        self.leads = True
        self.events: list[PodEvent] = []
        self.writer = StatusWriter([self.api], lambda: self.leads, self.events.append)

    def condition(self, name: str = "web") -> dict[str, str]:
        (condition,) = self.api.pods[f"default/{name}"]["status"]["conditions"]
        return {key: condition[key] for key in ("type", "status", "reason", "message")}

    def wait(self, until: Callable[[], bool]) -> None:
        wait_until(until, "the status is written")


@pytest.fixture
def written() -> Iterator[Written]:
    written = Written()
    written.api.add("web", "uid-1")
    written.writer.start()
    yield written
    assert written.writer.stop()


@pytest.mark.parametrize(("needs_room", "reason"), [(True, "Unschedulable"), (False, "Held")])
def test_only_pods_that_a_node_would_help_are_unschedulable(written: Written, needs_room: bool, reason: str) -> None:
    """Cluster autoscalers buy nodes for the reason Unschedulable."""
    written.writer.report(Unschedulable(POD, "0/3 nodes are available.", needs_room=needs_room))
    written.wait(lambda: "conditions" in written.api.pods["default/web"]["status"])
    expected = {"type": "PodScheduled", "status": "False", "reason": reason, "message": "0/3 nodes are available."}
    assert written.condition() == expected
    assert "nominatedNodeName" not in written.api.bodies[0]["status"]


def test_an_unchanged_status_is_written_once(written: Written) -> None:
    """A pod that is tried again and again with one result causes one request, and a new result another one."""
    for message in ("one", "one", "two", "two", "one"):
        written.writer.report(Unschedulable(POD, message))
        written.wait(lambda: not written.writer.waiting)
        written.wait(lambda message=message: written.api.bodies[-1:] and written.condition()["message"] == message)
    assert len(written.api.sent) == 3


def test_a_pod_that_waits_on_a_node_is_no_longer_unschedulable(written: Written) -> None:
    """An autoscaler buys no node for a pod that has one; a pod that never was Unschedulable needs no request."""
    written.writer.hold(POD, "n1")
    written.writer.report(Unschedulable(POD, "0/3 nodes are available."))
    written.wait(lambda: bool(written.api.bodies) and not written.writer.waiting)
    written.wait(lambda: written.condition()["reason"] == "Unschedulable")
    written.wait(lambda: "uid-1" in written.writer._written)
    written.writer.hold(POD, "n1")
    written.wait(lambda: written.condition()["reason"] == "Held")
    assert written.condition()["message"].startswith("the pod has node n1 and waits for approval")
    assert len(written.api.sent) == 2


def test_a_bound_pod_loses_its_queued_status(written: Written) -> None:
    """A status that waits when the pod is bound would be wrong."""
    written.writer.stop()
    written.writer.report(Unschedulable(POD, "late"))
    written.writer.forget("uid-1")
    assert written.writer.waiting == 0


def preemption() -> Unschedulable:
    victims = (Pod("victim", uid="uid-2", node_name="node-1"), Pod("going", uid="uid-4", terminating=True))
    cleared = (Pod("lower", uid="uid-3", nominated_node_name="node-1"),)
    return Unschedulable(POD, "no room", preemption=Preemption("node-1", victims, cleared))


def test_a_preemption_nominates_clears_marks_and_deletes(written: Written) -> None:
    """The order is: nominated node, lower nominations, then each victim's condition and its deletion by UID."""
    for name, uid in (("victim", "uid-2"), ("lower", "uid-3"), ("going", "uid-4")):
        written.api.add(name, uid)
    written.writer.report(preemption())
    written.wait(lambda: bool(written.events))
    steps = [f"{each.partition(' ')[0]} {each.split('/pods/')[1]}" for each in written.api.sent]
    assert steps == ["PATCH web/status", "PATCH lower/status", "PATCH victim/status", "DELETE victim"]
    assert written.api.pods["default/web"]["status"]["nominatedNodeName"] == "node-1"
    assert written.api.pods["default/lower"]["status"]["nominatedNodeName"] is None
    (condition,) = written.api.bodies[2]["status"]["conditions"]
    assert (condition["type"], condition["reason"]) == ("DisruptionTarget", "PreemptionByScheduler")
    assert condition["message"] == "ours: preempting to accommodate a higher priority pod"
    assert written.api.bodies[3]["preconditions"] == {"uid": "uid-2"}
    assert "default/going" in written.api.pods
    (event,) = written.events
    assert (event.pod.name, event.reason, event.note) == (
        "victim",
        "Preempted",
        "Preempted by pod uid-1 on node node-1",
    )


def test_no_victim_is_deleted_without_a_nomination(written: Written) -> None:
    """If the pod is gone or its status cannot be written, the room would be made for nobody."""
    written.api.add("victim", "uid-2")
    written.api.before = lambda _method, path: refusal(500) if "/web/" in path else None
    written.writer.report(preemption())
    written.wait(lambda: written.writer.failures == 1)
    assert "default/victim" in written.api.pods
    assert len(written.api.sent) == 1


def test_a_victim_of_another_uid_stays(written: Written) -> None:
    """A pod that was created again under the victim's name is not deleted."""
    written.api.add("victim", "uid-9")
    written.api.add("lower", "uid-3")
    written.writer.report(preemption())
    written.wait(lambda: len(written.api.sent) == 3)
    assert "default/victim" in written.api.pods
    assert written.events == []


def test_nothing_is_written_without_the_lease(written: Written) -> None:
    """A process that has lost the Lease deletes no pod."""
    written.leads = False
    written.writer.report(preemption())
    written.wait(lambda: not written.writer.waiting)
    assert written.api.sent == []
