"""Pods that a NodeResourceTopology knows of. The fingerprints are from podfingerprint v0.2.2, in Go."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from runtime.kubernetes.objects import Pod
from trimaran.scheduler.plugins.numa.known_pods import ALL, AUTODETECT, ONLY_EXCLUSIVE, KnownPods, fingerprint
from trimaran.scheduler.plugins.numa.node_topology import NodeTopology
from trimaran.scheduler.plugins.numa.requests import has_exclusive_resources

LONG = "a-long-name-of-a-pod-with-more-than-thirty-two-characters-0"
WRITTEN = 1000.0
EXCLUSIVE = "with-exclusive-resources"


def pod(name: str, started_at: float | None = None, *, cpu: str = "2", namespace: str = "default") -> Pod:
    """Return a Guaranteed pod."""
    amounts = {"cpu": cpu, "memory": "1Gi"}
    container = {"name": "app", "resources": {"requests": amounts, "limits": amounts}}
    metadata = {"name": name, "namespace": namespace, "uid": f"{namespace}/{name}"}
    made = Pod.from_k8s({"metadata": metadata, "spec": {"containers": [container]}})
    return replace(made, namespace=namespace, started_at=started_at)


def shared(name: str, started_at: float | None = None) -> Pod:
    """Return a pod that gets nothing for itself."""
    container = {"name": "app", "resources": {"requests": {"cpu": "1"}}}
    document = {"metadata": {"name": name, "uid": name}, "spec": {"containers": [container]}}
    return replace(Pod.from_k8s(document), started_at=started_at)


def topology(pods: Sequence[Pod], method: str = "") -> NodeTopology:
    return NodeTopology("a", (), written_at=WRITTEN, fingerprint=fingerprint(pods), fingerprint_method=method)


def unknown(known: KnownPods, of: NodeTopology, *placed: Pod) -> list[str]:
    return [each.name for each in known.unknown(of, placed)]


@pytest.mark.parametrize(
    ("expected", "pods"),
    [
        ("pfp0v001ef46db3751d8e999", []),
        ("pfp0v001e2494ad8715b4de9", [("default", "web")]),
        ("pfp0v001a539da0ccc495496", [("default", "web"), ("kube-system", "proxy")]),
        ("pfp0v001a539da0ccc495496", [("kube-system", "proxy"), ("default", "web")]),
        ("pfp0v0015c621017cb65b925", [("ml", LONG), ("ml", "b"), ("ns1", "b"), ("", "x")]),
        ("pfp0v0014d10ed8a82725bcc", [(f"ns-{number % 7}", f"pod-{number}") for number in range(250)]),
    ],
)
def test_fingerprints_are_those_of_the_agents(expected: str, pods: list[tuple[str, str]]) -> None:
    """Whatever the order of the pods."""
    assert fingerprint(pod(name, namespace=namespace) for namespace, name in pods) == expected


def test_an_empty_attribute_is_as_none() -> None:
    """The annotation of older agents counts then; without both there is no fingerprint."""
    attributes = [{"name": "nodeTopologyPodsFingerprint", "value": None}]
    document = {"metadata": {"name": "a", "annotations": None}, "attributes": attributes}
    assert NodeTopology.from_k8s(document).fingerprint == ""
    document["metadata"] = {
        "name": "a",
        "annotations": {"topology.node.k8s.io/fingerprint": "pfp0v001e2494ad8715b4de9"},
    }
    assert NodeTopology.from_k8s(document).fingerprint == "pfp0v001e2494ad8715b4de9"


@pytest.mark.parametrize("count", range(4))
def test_a_match_tells_exactly_which_pods_are_known(count: int) -> None:
    """Also pods that started just before the write, and none that started after it; those without a start are last."""
    pods = [pod("first", 10.0), pod("second", WRITTEN - 1), pod("third")]
    known = KnownPods(5, AUTODETECT)
    assert unknown(known, topology(pods[:count]), pods[2], pods[1], pods[0]) == [
        each.name for each in reversed(pods[count:])
    ]


def test_what_a_topology_knew_stays_known_when_pods_end() -> None:
    """Without that the node's pods would match no more; the next topology is matched again."""
    pods = [pod("first", 10.0), pod("second", WRITTEN - 1), pod("third", WRITTEN + 1)]
    known, first = KnownPods(5, AUTODETECT), topology(pods[:2])
    assert unknown(known, first, *pods) == ["third"]
    assert unknown(known, first, *pods[1:]) == ["third"]
    known.keep(["a", "b"])
    assert unknown(known, first, *pods[1:]) == ["third"]
    assert unknown(known, topology(pods[1:]), *pods[1:]) == []


def test_without_a_match_the_times_tell() -> None:
    """So it is if a pod of the fingerprint ended before it was read, if there is none, and for forgotten nodes."""
    pods = [pod("first", 10.0), pod("second", WRITTEN - 1), pod("third", WRITTEN + 1)]
    known, first = KnownPods(5, AUTODETECT), topology(pods[:2])
    assert unknown(known, first, *pods[1:]) == ["second", "third"]
    assert unknown(known, replace(first, fingerprint=""), *pods) == ["second", "third"]
    assert unknown(known, first, *pods) == ["third"]
    known.keep(["b"])
    assert unknown(known, first, *pods[1:]) == ["second", "third"]


def test_many_new_pods_are_told_by_their_times() -> None:
    """The search for a match ends after 16 pods."""
    old, new = pod("old", WRITTEN - 1), [pod(f"new-{number}", WRITTEN + 1) for number in range(17)]
    assert len(unknown(KnownPods(5, AUTODETECT), topology([old]), old, *new[1:])) == 16
    assert len(unknown(KnownPods(5, AUTODETECT), topology([old]), old, *new)) == 18


@pytest.mark.parametrize(
    ("configured", "method", "matches"),
    [
        (AUTODETECT, EXCLUSIVE, True),
        (AUTODETECT, "all", False),
        (AUTODETECT, "", False),
        (ALL, EXCLUSIVE, False),
        (ONLY_EXCLUSIVE, "all", True),
    ],
)
def test_a_fingerprint_may_have_only_pods_with_exclusive_resources(
    configured: str, method: str, *, matches: bool
) -> None:
    """As the agent says, unless the setting says otherwise."""
    pods = [pod("first", WRITTEN - 1), shared("burstable", WRITTEN - 2), pod("second", WRITTEN - 1)]
    found = unknown(KnownPods(5, configured), topology([pods[0], pods[2]], method), *pods)
    assert found == ([] if matches else ["first", "second"])
    found = unknown(KnownPods(5, configured), topology(pods, method), *pods)
    assert found == (["first", "second"] if matches else [])


@pytest.mark.parametrize("method", ["", EXCLUSIVE])
def test_pods_without_exclusive_resources_take_nothing(method: str) -> None:
    """They get no part of a NUMA node, and a topology does not show them."""
    assert unknown(KnownPods(5, AUTODETECT), topology([], method), shared("late", WRITTEN + 1), shared("new")) == []


def test_exclusive_resources_are_devices_and_what_guaranteed_pods_have_for_themselves() -> None:
    """Whole CPUs, memory and huge pages of Guaranteed pods, devices of all, also of init containers."""

    def made(requests: dict[str, str], limits: dict[str, str], kind: str = "containers", quality: str = "") -> Pod:
        containers = {"containers": [{"name": "app"}]}
        containers[kind] = [{"name": "one", "resources": {"requests": requests, "limits": limits}}]  # type: ignore[dict-item]
        return Pod.from_k8s({"metadata": {"name": "pod"}, "spec": containers, "status": {"qosClass": quality}})

    whole, part, huge, device = {"cpu": "2"}, {"cpu": "1500m"}, {"hugepages-2Mi": "4Mi"}, {"vendor.com/nic": "1"}
    assert has_exclusive_resources(made(device, device))
    assert has_exclusive_resources(made(device, device, kind="initContainers"))
    assert not has_exclusive_resources(made(whole, {}))
    for amounts, exclusive in ((whole, True), (part, False), ({"memory": "1Gi"}, True), (huge, True)):
        assert has_exclusive_resources(made(amounts, amounts, quality="Guaranteed")) is exclusive
    assert not has_exclusive_resources(made({"ephemeral-storage": "1Gi"}, {}, quality="Guaranteed"))
