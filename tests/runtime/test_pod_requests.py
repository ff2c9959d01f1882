"""What pods ask for as a whole, or while they are resized, and what no table can count."""

import pytest

from runtime.kubernetes import pod_demand
from scoring import (
    Container,
    MetricsTable,
    Node,
    NodeResourcesAllocatable,
    NodeTable,
    Pod,
    ResourceList,
    ResourceWeight,
)


def whole(resources, *containers, status=None, **spec):
    described = [{"name": f"c{n}", "resources": {"requests": each}} for n, each in enumerate(containers)]
    return Pod.from_k8s(
        {"metadata": {"name": "p"}, "spec": {"containers": described, "resources": resources, **spec}, "status": status}
    )


def test_requests_of_the_whole_pod_replace_those_of_its_containers():
    """kube-scheduler counts them for CPU and memory, overhead on top; Trimaran's sums stay the containers'."""
    asked = {"cpu": "2", "nvidia.com/gpu": "4"}
    pod = whole({"requests": asked}, {"cpu": "100m", "memory": "1Gi"}, {"cpu": "1"}, overhead={"cpu": "50m"})
    assert pod_demand.in_tree_requests(pod, "cpu") == 2050
    assert pod_demand.in_tree_requests(pod, "memory") == 2**30
    assert pod_demand.in_tree_requests(pod, "nvidia.com/gpu") == 0
    assert pod_demand.requests(pod, "cpu") == 1150
    table = NodeTable([Node("n1", allocatable=ResourceList({"cpu": 4000}))])
    table.add(pod, "n1")
    assert table.in_tree_requests("cpu").tolist() == table.in_tree_requests("cpu", non_zero=True).tolist() == [2050]
    assert table.requests("cpu").tolist() == [1150]


def test_limits_of_the_whole_pod_are_its_requests_where_nothing_is_requested():
    """As the API server sets them: only for a resource that neither the pod nor a container requests."""
    pod = whole({"limits": {"cpu": "4", "memory": "2Gi"}, "requests": {"memory": "1Gi"}}, {})
    assert dict(pod.requests) == {"cpu": 4000, "memory": 2**30}
    assert dict(whole({"limits": {"cpu": "4"}}, {"cpu": "1"}).requests) == {}


def test_containers_without_requests_beside_requests_of_the_whole_pod():
    """On a node they count as 200 MiB where nobody requests any; pending, to the fit score, each by itself."""
    pod = whole({"requests": {"cpu": "1"}}, {"memory": "256Mi"}, {})
    assert pod_demand.in_tree_requests(pod, "memory", non_zero=True) == 256 << 20
    assert pod_demand.in_tree_requests(whole({"requests": {"cpu": "1"}}, {}), "memory", non_zero=True) == 200 << 20
    assert pod_demand.fit_score_requests(pod, "memory") == (256 + 200) << 20
    assert pod_demand.fit_score_requests(pod, "cpu") == 200


@pytest.mark.parametrize(
    ("reason", "expected"),
    [(None, 3000), ("Deferred", 3000), ("Infeasible", 2000)],
)
def test_a_container_being_resized_counts_as_the_most(reason, expected):
    """Wanted, set or granted, whichever is most; what is wanted and cannot be had does not count."""
    status = {
        "containerStatuses": [
            {"name": "c0", "resources": {"requests": {"cpu": "1"}}, "allocatedResources": {"cpu": "2"}},
        ],
        "conditions": [{"type": "PodResizePending", "status": "True", "reason": reason}] if reason else [],
    }
    pod = whole(None, {"cpu": "3"}, status=status)
    assert pod_demand.in_tree_requests(pod, "cpu") == expected
    assert pod_demand.requests(pod, "cpu") == 3000


def test_a_pod_being_resized_as_a_whole_counts_as_the_most():
    """The same for the requests of the whole pod, by its own status."""
    status = {"resources": {"requests": {"cpu": "1"}}, "allocatedResources": {"cpu": "4"}}
    assert pod_demand.in_tree_requests(whole({"requests": {"cpu": "3"}}, {}, status=status), "cpu") == 4000
    shrinking = {"resources": {"requests": {"cpu": "4"}}, "allocatedResources": {"cpu": "1"}}
    assert pod_demand.in_tree_requests(whole({"requests": {"cpu": "1"}}, {}, status=shrinking), "cpu") == 4000


@pytest.mark.parametrize(
    ("amounts", "message"),
    [
        ({"cpu": "10P"}, r"requests\.cpu: '10P' is more than any node has"),
        ({"memory": "16Ei"}, r"requests\.memory: '16Ei' is more than any node has"),
        ({"memory": "1e30"}, r"requests\.memory: '1e30' is more than any node has"),
        ({"cpu": None}, r"requests\.cpu: is null"),
        ("all", r"requests: must be a mapping, got 'all'"),
    ],
)
def test_amounts_that_cannot_be_counted_are_refused(amounts, message):
    """Too much and nothing at all are refused with the pod's or node's name and the path of the field."""
    with pytest.raises(ValueError, match=rf"pod default/p: spec\.containers\[0\]\.resources\.{message}"):
        whole(None, amounts)
    with pytest.raises(ValueError, match=rf"pod default/p: spec\.resources\.{message}"):
        whole({"requests": amounts}, {})
    status = message.replace("requests", "status\\.allocatable")
    with pytest.raises(ValueError, match=f"node n1: {status}"):
        Node.from_k8s({"metadata": {"name": "n1"}, "status": {"allocatable": amounts}})


def test_containers_that_ask_for_too_much_together_are_refused():
    """Each amount may be one that a node has while their sum is not."""
    with pytest.raises(ValueError, match="pod default/p: spec: the requests and limits add up to more than any"):
        whole(None, *[{"memory": "7Pi"}] * 2000)


def test_sums_of_a_node_never_wrap():
    """Pods that together ask for more than can be counted are refused by name, and the sums stay right."""
    table = NodeTable([Node("n1", allocatable=ResourceList({"memory": 2**53}))])
    far = [Pod(name=f"far{n}", containers=(Container(ResourceList({"memory": 2**61})),)) for n in range(3)]
    with pytest.raises(ValueError, match="pod default/far2: .* would overflow"):
        for pod in far:
            table.add(pod, "n1")
    assert table.requests("memory").tolist() == [2**62]
    assert table.pod_counts.tolist() == [len(table.pods("n1"))] == [2]
    with pytest.raises(ValueError, match="pod default/far requests more than any node has"):
        table.add(Pod(name="far", containers=(Container(ResourceList({"memory": 2**70})),)), "n1")
    for pod in far[:2]:
        table.remove(pod)
    assert table.requests("memory").tolist() == [0]


def test_weighted_amounts_never_wrap():
    """Large weights of large amounts give their mean, not a wrapped product."""
    amounts = ResourceList({"cpu": 4000, "memory": 2**50})
    nodes = NodeTable([Node("n1", allocatable=amounts)])
    plugin = NodeResourcesAllocatable("Most", (ResourceWeight("memory", 2**30), ResourceWeight("cpu", 2**30)))
    assert plugin.score(Pod(name="p"), nodes, MetricsTable.empty(nodes)).tolist() == [(2**50 + 4000) // 2]


def test_pods_of_one_generate_name_are_two_pods():
    """Without a name and a uid each pod read is one of its own, under what its name will begin with."""
    written = {"metadata": {"generateName": "web-"}, "spec": {"containers": []}}
    first, second = Pod.from_k8s(written), Pod.from_k8s(written)
    assert first.name == second.name == "web-"
    table = NodeTable([Node("n1")])
    table.add(first, "n1")
    table.add(second, "n1")
    assert table.pod_counts.tolist() == [2]
    assert Pod().uid != Pod().uid
    with pytest.raises(ValueError, match=r"pod default/web-: spec\.overhead\.cpu: is null"):
        Pod.from_k8s({"metadata": written["metadata"], "spec": {"overhead": {"cpu": None}}})


def test_what_is_kept_of_pods_is_bounded():
    """Whoever makes up pods, each with a great many containers, does not fill the memory: the others' are let go."""
    counted = pod_demand.RequestCache()

    def known(image):
        containers = [{"name": f"c{n}", "image": f"{n}-{image}"} for n in range(100)]
        return Pod.from_k8s(
            {"metadata": {"name": "p"}, "spec": {"containers": containers}}, counted.lookup
        ).cached_requests

    kept = known("image")
    assert known("image") is kept
    for number in range(10):
        known(f"{number}-{'x' * 10_000}")
    assert known("image") is not kept
