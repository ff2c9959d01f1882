"""Everything that an API server accepts can be read; what it never sends is an error."""

import random
from collections.abc import Mapping
from typing import Any

import pytest
from support.odd_pods import ODD, odd_pod

from runtime.kubernetes import pod_demand
from runtime.kubernetes.k8s_fields import unix_seconds
from runtime.kubernetes.objects import Node, Pod
from trimaran.scheduler.plugins.numa.node_topology import NodeTopology
from trimaran.scheduler.plugins.preemption.toleration import PriorityClass
from trimaran.scheduler.plugins.storage_objects import Volume, VolumeClass
from watcher.usage.sources.manifests import ManifestReader

LARGEST = 2**63 - 1
PODS = 2000


def read(spec: Mapping[str, Any], **fields: Any) -> Pod:
    return Pod.from_k8s({"metadata": {"name": "p", "namespace": "t"}, "spec": spec, **fields})


def container(requests: Mapping[str, str], limits: Mapping[str, str] | None = None) -> Mapping[str, Any]:
    return {"name": "c", "resources": {"requests": requests, "limits": limits or {}}}


def test_pods_with_changed_leaves_are_read_or_name_their_field() -> None:
    """A pod with one to three odd leaves decodes, with amounts of 64 bits, or raises an error with the field's path."""
    dice, errors = random.Random(53), []
    for number in range(PODS):
        try:
            pod = Pod.from_k8s(odd_pod(dice, f"p{number}"))
        except ValueError as error:
            errors.append(str(error))
            continue
        for name in pod_demand.resource_names(pod):
            for count in (pod_demand.requests, pod_demand.limits, pod_demand.in_tree_requests):
                assert 0 <= count(pod, name) <= LARGEST
    assert 0 < len(errors) < PODS
    assert not [error for error in errors if not error.startswith("pod default/p")]


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_requests_count_whatever_else_is_odd(odd: Mapping[str, Any]) -> None:
    """Limits, affinities and other resources of any form leave the requests of CPU and memory as they are."""
    pod = read({"containers": [container({"cpu": "3500m", "memory": "64Mi"})], **odd})
    assert (pod_demand.in_tree_requests(pod, "cpu"), pod.containers[0].requests["memory"]) == (3500, 2**26)


def test_many_containers_with_huge_limits_are_read() -> None:
    """The sum of limits saturates, and the requests count."""
    sidecars = [container({"memory": "1Mi"}, {"memory": "500P"}) for _ in range(20)]
    pod = read({"containers": [container({"cpu": "1"}), *sidecars]})
    assert pod_demand.in_tree_requests(pod, "memory") == 20 * 2**20
    assert pod_demand.limits(pod, "memory") == LARGEST


@pytest.mark.parametrize("term", [{"operator": "Gt", "values": ["abc"]}, {"operator": "NotIn", "values": ["no label"]}])
def test_a_preference_that_cannot_be_parsed_prefers_nothing(term: Mapping[str, Any]) -> None:
    """The term has no effect, and the others do."""
    preferences = [
        {"weight": weight, "preference": {"matchExpressions": [{"key": "x", **each}]}}
        for weight, each in ((1, term), (2, {"operator": "Exists"}))
    ]
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferences}}
    assert [weight for weight, _ in read({"affinity": affinity}).scheduling.preferred_node_terms] == [2]


def test_amounts_in_a_status_are_not_checked_by_the_api_server() -> None:
    """A negative amount of a resized container does not count; claims with unreadable amounts are unknown."""
    reported = {"name": "c", "resources": {"requests": {"cpu": "-5"}}, "allocatedResources": {"cpu": "2"}}
    pod = read({"containers": [container({"cpu": "1"})]}, status={"containerStatuses": [reported]})
    assert pod_demand.in_tree_requests(pod, "cpu") == 2000
    claims = {"nodeAllocatableResourceClaimStatuses": [{"resources": {"cpu": "-1"}}]}
    assert read({"containers": []}, status=claims).claimed is None


@pytest.mark.parametrize(("size", "counted"), [(-(2**63), 0), (LARGEST, 2**53), (5, 5)])
def test_images_of_any_size_are_read(size: int, counted: int) -> None:
    """The API server does not check sizes of images."""
    status = {"images": [{"names": ["a"], "sizeBytes": size}], "allocatable": {"memory": "9E"}}
    node = Node.from_k8s({"metadata": {"name": "n", "annotations": {"trimaran.io/disk": "fast"}}, "status": status})
    assert (node.images, node.allocatable) == ({"a": counted}, {"memory": 9 * 10**18})


@pytest.mark.parametrize("text", ["0000-01-01T00:00:00Z", "-001-12-31T23:00:00Z", "10000-01-01T00:59:59Z"])
def test_years_that_python_lacks_saturate(text: str) -> None:
    """Kubernetes writes years before 1 and after 9999, which are the first and the last time here."""
    seconds = unix_seconds(text, "metadata")
    assert seconds is not None
    assert abs(seconds) > 6e10
    with pytest.raises(ValueError, match="time"):
        unix_seconds("yesterday", "metadata")


def test_a_topology_with_odd_amounts_is_read() -> None:
    """A zone lacks what is no amount; amounts, distances and numbers of any size saturate."""
    resources = [{"name": name, "available": amount} for name, amount in (("cpu", "1e1.5"), ("memory", "9E"))]
    zone = {"name": "node-0", "type": "Node", "resources": resources, "costs": [{"name": "node-0", "value": LARGEST}]}
    limit = {"name": "topologyManagerMaxNUMANodes", "value": "9" * 5000}
    topology = NodeTopology.from_k8s({"metadata": {"name": "n"}, "zones": [zone], "attributes": [limit]})
    assert topology.zones[0].available == {"memory": 9 * 10**18}
    assert topology.zones[0].costs == {0: 2**31 - 1}
    assert topology.max_zones == 8


def test_a_priority_class_with_a_huge_time_protects_nothing() -> None:
    """An annotation that is no 64-bit number is none, as in Go."""
    annotations = {"preemption-toleration.scheduling.x-k8s.io/toleration-seconds": "9" * 400}
    found = PriorityClass.from_k8s({"metadata": {"annotations": annotations}, "value": 1})
    assert not found.protects(0, 0.0, 1.0)


def test_terms_of_volumes_that_cannot_be_parsed_match_nothing() -> None:
    """A volume with such a term is on no node, and a class with such a topology makes volumes on none."""
    term = {"matchExpressions": [{"key": "x", "operator": "Gt", "values": ["abc"]}]}
    spec = {"nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}, "capacity": {"storage": "9E"}}
    volume = Volume.from_k8s({"metadata": {"name": "v"}, "spec": spec})
    assert (volume.capacity, [each.labels for each in volume.node_terms or ()]) == (9 * 10**18, [()])
    topology = {"matchLabelExpressions": [{"key": "x", "values": ["a", "no label"]}]}
    made = VolumeClass.from_k8s({"metadata": {"name": "c"}, "allowedTopologies": [topology]})
    assert [each.labels for each in made.topologies] == [()]


def test_impossible_amounts_teach_no_use() -> None:
    """The watcher takes requests that no node has as missing: saturated, they would decide what the pod may use."""
    each = container({"cpu": "1e15", "memory": "9E"}, {"memory": "-1"})
    found = ManifestReader().read({"metadata": {"name": "p"}, "spec": {"nodeName": "n", "containers": [each]}})
    assert found is not None
    (amounts,) = found[0].template.containers
    assert (amounts.cpu_request_milli, amounts.memory_request_bytes) == (None, None)
    assert amounts.memory_limit_bytes is None
