"""Nodes that other schedulers use, too: decisions that become outdated, kubelets' rejections, backoff of nodes."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from runtime.kubernetes.constraints import Taint
from runtime.kubernetes.objects import Container, Node, Pod, ResourceList
from scoring import NodeResourcesFit, Profile
from scoring.plugins.taint_toleration import TaintToleration
from trimaran.scheduler.framework.decisions import Bind, Unschedulable
from trimaran.scheduler.framework.node_backoff import REJECTED
from trimaran.scheduler.framework.profile import SchedulerProfile
from trimaran.scheduler.framework.scheduler import Scheduler
from trimaran.scheduler.plugins.preemption.shared_nodes import keeps_others_away
from trimaran.scheduler.service.kubelet_rejections import RejectionFeed, rejection_reason


def node(name: str, millicores: int = 1000, **fields: object) -> Node:
    amounts = ResourceList({"cpu": millicores, "memory": 1 << 30, "pods": 10})
    return Node(name, amounts, amounts, **fields)  # type: ignore[arg-type]


def pod(name: str, millicores: int = 400, *, owner: str = "ours", on: str = "") -> Pod:
    requests = ResourceList({"cpu": millicores})
    return Pod(name, containers=(Container(requests),), scheduler_name=owner, node_name=on, uid=name)


@pytest.fixture
def scheduler() -> Scheduler:
    """Scheduler of one node with room for two pods."""
    scores = replace(Profile.of(NodeResourcesFit()), scheduler_name="ours")
    scheduler = Scheduler(
        [SchedulerProfile(scores, filters=(TaintToleration(), NodeResourcesFit()))], np.random.default_rng(0)
    )
    scheduler.replace_nodes([node("a")], 0.0)
    return scheduler


def decide(scheduler: Scheduler, name: str, now: float = 1.0) -> str:
    """Return the node that a new pod gets; "" if it gets none."""
    scheduler.put_pod(pod(name), now)
    decision = scheduler.next(now)
    assert isinstance(decision, Bind | Unschedulable)
    return decision.node_name if isinstance(decision, Bind) else ""


def test_a_decision_is_outdated_once_another_scheduler_has_taken_the_room(scheduler: Scheduler) -> None:
    """The newest decision gives way; all count until their outcome is known; then the pod is tried again."""
    assert [decide(scheduler, name) for name in ("old", "new")] == ["a", "a"]
    scheduler.put_pod(pod("small", 100, owner="other", on="a"), 1.0)
    assert not scheduler.is_outdated("new")
    scheduler.put_pod(pod("other", owner="other", on="a"), 1.0)
    assert [scheduler.is_outdated(name) for name in ("old", "new")] == [False, True]
    assert {each.pod.name for _, each in scheduler.state.table.placed_pods()} == {"old", "new", "small", "other"}
    scheduler.not_bound("new", 1.0)
    assert not scheduler.is_outdated("new")
    scheduler.drop_pod("other", 2.0)
    again = scheduler.next(9.0)
    assert isinstance(again, Bind)
    assert again.pod.name == "new"


@pytest.mark.parametrize("change", ["shrink", "drop", "relist"])
def test_a_decision_is_outdated_once_its_node_has_changed(scheduler: Scheduler, change: str) -> None:
    """The node has less room, or is gone; what other schedulers do on other nodes changes nothing."""
    assert decide(scheduler, "web") == "a"
    scheduler.put_node(node("b"), 1.0)
    scheduler.put_pod(pod("other", 1000, owner="other", on="b"), 1.0)
    assert not scheduler.is_outdated("web")
    if change == "shrink":
        scheduler.put_node(node("a", 300), 1.0)
    elif change == "drop":
        scheduler.drop_node("a")
    else:
        scheduler.replace_nodes([node("b")], 1.0)
    assert scheduler.is_outdated("web")
    assert not scheduler.bound("web")
    assert not scheduler.is_outdated("web")


def test_a_node_that_rejects_pods_gets_none_for_a_growing_time(scheduler: Scheduler) -> None:
    """10, 20, ... 300 seconds; rejections within a backoff do not count; after a quiet time it begins with 10 again."""
    lengths, now = [], 0.0
    for number in range(7):
        scheduler.reject_pod("a", now)
        scheduler.reject_pod("a", now + 1.0)
        name = f"web-{number}"
        assert decide(scheduler, name, now + 1.0) == ""
        until = scheduler.node_backoff.next_at()
        assert until is not None
        lengths.append(until - now)
        assert scheduler.next(until - 0.01) is None
        scheduler.put_node(node("a"), until - 0.01)  # a heartbeat does not end it
        decision = scheduler.next(until)
        assert isinstance(decision, Bind)
        assert decision.pod.name == name
        scheduler.drop_pod(name, until)
        now = until
    assert lengths == [10.0, 20.0, 40.0, 80.0, 160.0, 300.0, 300.0]
    assert decide(scheduler, "later", now + 301.0) == "a"
    scheduler.reject_pod("a", now + 302.0)
    assert scheduler.node_backoff.next_at() == now + 312.0
    assert scheduler.counts["nodes_in_backoff"] == 1
    assert scheduler.is_outdated("later")
    assert not keeps_others_away(node("a", taints=(REJECTED,)))


def test_a_node_in_backoff_has_its_own_reason(scheduler: Scheduler) -> None:
    """The message of a pending pod tells the backoff from taints; after it the node has no reason."""
    scheduler.put_node(node("b", taints=(Taint("dedicated", "other"),)), 0.0)
    scheduler.reject_pod("a", 0.0)
    scheduler.put_pod(pod("web"), 1.0)
    refused = scheduler.next(1.0)
    assert isinstance(refused, Unschedulable)
    backoff = "1 node(s) whose kubelet rejected a pod, and that get none for a while"
    assert refused.message.startswith(f"0/2 nodes are available: 1 node(s) had untolerated taint(s), {backoff}.")


def failed(uid: str, reason: str = "OutOfcpu", scheduler: str = "ours", message: str = "") -> dict[str, Any]:
    status = {"phase": "Failed", "reason": reason, "message": message}
    return {"metadata": {"uid": uid}, "spec": {"nodeName": "a", "schedulerName": scheduler}, "status": status}


def test_rejections_are_reported_once_and_only_for_own_pods() -> None:
    """Those of the first list are old; those that a later list shows first are new."""
    reported: list[tuple[str, str]] = []
    feed = RejectionFeed(["ours"], lambda *each: reported.append(each))
    feed.replace([failed("old")])
    feed.put(failed("old"))
    feed.put(failed("one", "UnexpectedAdmissionError"))
    feed.put(failed("one", "UnexpectedAdmissionError"))
    feed.put(failed("theirs", scheduler="default-scheduler"))
    feed.put(failed("ended", "Error"))
    feed.replace([failed("one"), failed("two", "OutOfpods")])
    feed.drop(failed("two"))
    assert reported == [("a", "UnexpectedAdmissionError"), ("a", "OutOfpods")]


def test_a_rejection_of_a_pod_that_we_did_not_bind_does_not_count() -> None:
    """A tenant may create pods with our name that are on a node already; their kubelet rejects them."""
    reported: list[tuple[str, str]] = []
    bound = {("own", "a"), ("moved", "b")}
    feed = RejectionFeed(["ours"], lambda *each: reported.append(each), lambda *each: each in bound)
    feed.replace([])
    for uid in ("forged", "moved", "own"):
        feed.put(failed(uid))
    assert reported == [("a", "OutOfcpu")]


def test_a_tenth_of_the_nodes_rejects_at_most(scheduler: Scheduler) -> None:
    """Pods that every kubelet rejects keep few nodes from the others, and never all of several."""
    nodes = [node(f"n-{number:02}") for number in range(39)]
    scheduler.replace_nodes(nodes, 0.0)
    for each in nodes:
        scheduler.reject_pod(each.name, 1.0)
    assert scheduler.node_backoff.nodes == ("n-00", "n-01", "n-02")
    assert {decide(scheduler, f"web-{number}", 2.0) for number in range(60)} == {each.name for each in nodes[3:]}
    assert scheduler.next(11.0) is None
    scheduler.reject_pod("n-20", 12.0)
    assert scheduler.node_backoff.nodes == ("n-20",)


@pytest.mark.parametrize(
    ("reason", "message", "expected"),
    [
        ("OutOfmemory", "", "OutOfmemory"), ("NodeAffinity", "", "NodeAffinity"),
        ("Brand new", "Pod was rejected: it is Monday", "other"), ("Evicted", "The node was low on memory", ""),
        ("", "", ""),
    ],
)  # fmt: skip
def test_only_the_kubelets_reasons_are_rejections(reason: str, message: str, expected: str) -> None:
    """A pod that ran and failed was not rejected; an unknown reason counts as other."""
    assert rejection_reason(failed("x", reason, message=message)) == expected
