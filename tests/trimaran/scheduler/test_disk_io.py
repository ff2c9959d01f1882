"""NodeDiskIO: nodes whose disks have the throughput that a pod asks for."""

import json

import pytest
from control_plane.manifests import Object, node
from support.configured import Configured, outcomes, pod, profile

from trimaran.scheduler.plugins.disk_io import ANNOTATION, NodeDisks

KIND = "NodeDiskIOInfo"


def asks(name: str, read: str, write: str, priority: int = 0) -> Object:
    return pod(name, priority=priority, annotations={ANNOTATION: json.dumps({"rbps": read, "wbps": write})})


def disks(name: str, *left: tuple[int, int, int], listed: tuple[str, ...] = ()) -> tuple[str, Object]:
    """Return what is left of the disks of a node: in all, to read and to write, in MiB a second."""
    devices = {
        f"disk{number}": {
            "name": f"disk{number}",
            "status": {key: f"{amount}Mi" for key, amount in zip(("total", "read", "write"), each, strict=True)},
        }
        for number, each in enumerate(left)
    }
    spec = {"nodeName": name, "reservedPods": {uid: {} for uid in listed}}
    return KIND, {"metadata": {"name": name}, "spec": spec, "status": {"allocatableBandwidth": devices}}


def cluster(*others: tuple[str, Object], **args: object) -> Configured:
    chosen = profile("NodeDiskIO", "preFilter", "filter", "score", args=args, without={"score": ["*"]})
    return Configured(chosen, [node("a"), node("b")], others)


def test_one_disk_must_have_enough_to_read_to_write_and_in_all() -> None:
    """Two disks do not add up, and a node of which nothing is known takes no such pod."""
    machine = cluster(disks("a", (100, 80, 40), (100, 40, 80)))
    assert machine.place(asks("reader", "70Mi", "0"))["reader"] == "a"
    machine = cluster(disks("a", (100, 80, 40), (100, 40, 80)))
    assert "no disk with the requested throughput" in machine.place(asks("both", "60Mi", "60Mi"))["both"]


def test_placed_pods_count_until_the_agent_lists_them() -> None:
    """They are taken off every disk; once they are listed, what is left says so itself."""
    machine = cluster(disks("a", (100, 100, 100)))
    made = machine.place(asks("first", "70Mi", "0", 1), asks("second", "60Mi", "0"))
    assert made["first"] == "a"
    assert "no disk" in made["second"]
    machine.scheduler.put_other(*disks("a", (100, 100, 100), listed=("first",)), machine.now)
    assert outcomes(machine.decide(10.0)) == {"second": "a"}


@pytest.mark.parametrize("levels", [500, 5_000, 100_000])
def test_a_deeply_nested_annotation_rejects_its_pod_only(levels: int) -> None:
    """The rejection names the annotation, and other pods are placed, on each Python."""
    machine = cluster(disks("a", (100, 100, 100)))
    hostile = pod("hostile", priority=1, annotations={ANNOTATION: "[" * levels + "]" * levels})
    made = machine.place(hostile, asks("second", "60Mi", "0"))
    assert "must be a JSON object, got '[[[" in made["hostile"]
    assert made["second"] == "a"


@pytest.mark.parametrize(("strategy", "expected"), [("LeastAllocated", "b"), ("MostAllocated", "a")])
def test_the_score_prefers_much_room_or_little(strategy: str, expected: str) -> None:
    """By the share of the disk with the most room that stays free."""
    machine = cluster(disks("a", (100, 100, 100)), disks("b", (400, 400, 400)), scoreStrategy=strategy)
    assert machine.place(asks("pod", "50Mi", "0"))["pod"] == expected


def test_a_pod_without_the_annotation_is_placed_as_ever() -> None:
    """It needs no disk."""
    assert cluster().place(pod("plain"))["plain"] in {"a", "b"}


@pytest.mark.parametrize("written", ["no JSON", "[1]", '{"rbps": "much"}'])
def test_an_annotation_that_cannot_be_read_is_a_message(written: str) -> None:
    """The pod is held with the reason, and the scheduler goes on."""
    made = cluster(disks("a", (1, 1, 1))).place(pod("bad", annotations={ANNOTATION: written}), pod("good"))
    assert ANNOTATION in made["bad"]
    assert made["good"] in {"a", "b"}


def test_an_annotation_is_short() -> None:
    """One of 256 KiB rejects its pod, and costs nothing on a node, where it would be read again for each pod."""
    long = asks("long", "20Mi", "0")
    long["metadata"]["annotations"][ANNOTATION] += " " * 250_000
    machine = cluster(disks("a", (100, 100, 100)))
    assert "1024 characters" in machine.place(long)["long"]
    placed = [{**asks(f"old-{number}", "90Mi", "0"), "spec": {**long["spec"], "nodeName": "a"}} for number in range(2)]
    for each in placed:
        each["metadata"]["annotations"][ANNOTATION] += " " * 250_000
    machine = cluster(disks("a", (100, 100, 100)))
    machine.place(*placed)
    assert machine.place(asks("next", "20Mi", "0"))["next"] == "a"


def test_an_unknown_strategy_is_an_error() -> None:
    """The message has the key and the words."""
    with pytest.raises(ValueError, match=r"^.*scoreStrategy: "):
        cluster(scoreStrategy="Best")


def test_a_device_with_an_odd_amount_is_left_out() -> None:
    """The other devices of the node count; amounts of any size are read."""
    devices = {
        name: {"status": dict.fromkeys(("total", "read", "write"), amount)}
        for name, amount in (("odd", "1e1.5"), ("huge", "9E"))
    }
    found = NodeDisks.from_k8s({"metadata": {"name": "n"}, "status": {"allocatableBandwidth": devices}})
    assert found.left.keys() == {"huge"}
    assert found.left["huge"].total == 9 * 10**18
