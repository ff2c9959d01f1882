"""Objects that no API server can have sent: read once, named, and neither costly nor forgotten."""

import time
from typing import Any

import pytest
from control_plane.manifests import Object, container, node, pod

from runtime.kubernetes.objects import Node, Pod
from trimaran.cluster.object_reader import pod_reader
from trimaran.cluster.unknown_requests import UnknownRequests
from trimaran.scheduler.framework.decisions import Bind, Unschedulable
from trimaran.scheduler.profiles.configuration import default_document, read_setup
from trimaran.scheduler.service.event_queue import EventQueue, PodFeed

MANY = 4000


def odd(number: int, cpu: str, **spec: Any) -> Object:
    made = pod(f"odd-{number}", container(requests={"cpu": cpu}), **spec)
    made["metadata"] |= {"uid": f"uid-{number}", "namespace": "t"}
    return made


def seconds_of(count: int, cpu: str) -> float:
    """Return the processor time in which pods are read, observed, and deleted."""
    reader, unknown = pod_reader(), UnknownRequests()
    began = time.process_time()
    pods = [odd(number, cpu, nodeName=f"node-{number % 100}") for number in range(count)]
    for each in pods:
        unknown.observe(each, reader.read(each))
    for each in pods:
        reader.forget(each)
        unknown.forget(each["metadata"]["uid"])
    assert not reader.unreadable
    assert not unknown.by_node()
    return time.process_time() - began


@pytest.mark.parametrize("cpu", ["much", "1e18"])
def test_many_odd_pods_take_linear_time(cpu: str) -> None:
    """Four times as many pods, all unreadable or all huge, take far less than sixteen times as long."""
    seconds_of(100, cpu)
    assert seconds_of(4 * MANY, cpu) < 8 * max(seconds_of(MANY, cpu), 0.05)


@pytest.mark.parametrize("change", [{"name": ""}, {"name": None}])
def test_an_object_without_a_name_is_unreadable(change: Object) -> None:
    """No API server sends such an object."""
    reader, made = pod_reader(), odd(1, "1")
    made["metadata"] |= change
    assert reader.read(made) is None
    assert "metadata.name is missing" in str(reader.unreadable)


@pytest.mark.parametrize("spec", [{"containers": [{"ports": 5}]}, {"tolerations": 5}, {"containers": "x"}])
def test_fields_of_another_type_are_unreadable(spec: object) -> None:
    """The error of an object in another form than Kubernetes' is recorded and does not spread."""
    reader = pod_reader()
    assert reader.read({"metadata": {"name": "p", "uid": "u"}, "spec": spec}) is None
    assert reader.unreadable.keys() == {"p"}


def test_a_node_with_an_unreadable_pod_gets_no_pods() -> None:
    """Its free CPU is not known, so a pending pod gets a status that says so, until the unreadable pod has gone."""
    scheduler = read_setup(default_document("ours")).scheduler(seed=0)
    scheduler.put_node(Node.from_k8s(node("node-1")), 0.0)
    event_queue = EventQueue()
    feed = PodFeed(event_queue)

    def apply() -> None:
        while (change := event_queue.take()) is not None:
            change(scheduler, 0.0)

    bad = odd(1, "much", nodeName="node-1")
    feed.put(bad)
    assert feed.unknown.by_node() == {"node-1": "pod t/odd-1 cannot be read"}
    feed.put(odd(2, "1", schedulerName="ours"))
    apply()
    refused = scheduler.next(0.0)
    assert isinstance(refused, Unschedulable)
    assert "they have a pod whose requests are not known: node-1." in refused.message
    feed.drop(bad)
    apply()
    placed = scheduler.next(60.0)
    assert isinstance(placed, Bind)
    assert placed.node_name == "node-1"


def test_a_pending_pod_that_cannot_be_read_is_refused_once() -> None:
    """Its identity and the reason reach the writer of statuses; a bound one does not."""
    refused: list[tuple[Pod, str]] = []
    event_queue = EventQueue()
    feed = PodFeed(event_queue, on_refusal=lambda each, why: refused.append((each, why)))
    for _ in range(2):
        feed.put(odd(1, "much", schedulerName="ours"))
    feed.replace([odd(2, "much", nodeName="node-1")])
    scheduler = read_setup(default_document("ours")).scheduler(seed=0)
    while (change := event_queue.take()) is not None:
        change(scheduler, 0.0)
    ((each, why),) = refused
    assert (each.namespace, each.name, each.uid, each.scheduler_name) == ("t", "odd-1", "uid-1", "ours")
    assert "not a quantity: 'much'" in why
