"""Requests of pods as a whole, in-place resizing, and amounts that are too large."""

import pytest

from runtime.kubernetes import pod_demand
from scoring import MetricsTable, Node, NodeResourcesAllocatable, NodeTable, Pod, ResourceList
from scoring.plugins.node_resources_fit import ResourceWeight


def whole(resources, *containers, status=None, **spec):
    described = [{"name": f"c{n}", "resources": {"requests": each}} for n, each in enumerate(containers)]
    return Pod.from_k8s(
        {"metadata": {"name": "p"}, "spec": {"containers": described, "resources": resources, **spec}, "status": status}
    )


def test_requests_of_the_whole_pod_replace_those_of_its_containers():
    """kube-scheduler counts the pod's own requests plus overhead; the Trimaran plugins count its containers."""
    requests = {"cpu": "2", "nvidia.com/gpu": "4"}
    pod = whole({"requests": requests}, {"cpu": "100m", "memory": "1Gi"}, {"cpu": "1"}, overhead={"cpu": "50m"})
    assert pod_demand.in_tree_requests(pod, "cpu") == 2050
    assert pod_demand.in_tree_requests(pod, "memory") == 2**30
    assert pod_demand.in_tree_requests(pod, "nvidia.com/gpu") == 0
    assert pod_demand.requests(pod, "cpu") == 1150
    table = NodeTable([Node("n1", allocatable=ResourceList({"cpu": 4000}))])
    table.add(pod, "n1")
    assert table.in_tree_requests("cpu").tolist() == table.in_tree_requests("cpu", non_zero=True).tolist() == [2050]
    assert table.requests("cpu").tolist() == [1150]


def test_limits_of_the_whole_pod_set_missing_requests():
    """A limit of the pod sets its request, unless the pod or a container requests the resource."""
    pod = whole({"limits": {"cpu": "4", "memory": "2Gi"}, "requests": {"memory": "1Gi"}}, {})
    assert dict(pod.requests) == {"cpu": 4000, "memory": 2**30}
    assert dict(whole({"limits": {"cpu": "4"}}, {"cpu": "1"}).requests) == {}


def test_containers_without_requests_in_a_pod_with_its_own_requests():
    """NON_ZERO_REQUESTS apply to resources that nobody requests, and in the fit score to each container."""
    pod = whole({"requests": {"cpu": "1"}}, {"memory": "256Mi"}, {})
    assert pod_demand.in_tree_requests(pod, "memory", non_zero=True) == 256 << 20
    assert pod_demand.in_tree_requests(whole({"requests": {"cpu": "1"}}, {}), "memory", non_zero=True) == 200 << 20
    assert pod_demand.fit_score_requests(pod, "memory") == (256 + 200) << 20
    assert pod_demand.fit_score_requests(pod, "cpu") == 200


@pytest.mark.parametrize(
    ("reason", "expected"),
    [(None, 3000), ("Deferred", 3000), ("Infeasible", 2000)],
)
def test_a_resized_container_counts_its_maximum(reason, expected):
    """A resized container counts the maximum of desired, actual and allocated; an infeasible desire does not count."""
    status = {
        "containerStatuses": [
            {"name": "c0", "resources": {"requests": {"cpu": "1"}}, "allocatedResources": {"cpu": "2"}},
        ],
        "conditions": [{"type": "PodResizePending", "status": "True", "reason": reason}] if reason else [],
    }
    pod = whole(None, {"cpu": "3"}, status=status)
    assert pod_demand.in_tree_requests(pod, "cpu") == expected
    assert pod_demand.requests(pod, "cpu") == 3000


def test_a_resized_pod_counts_its_maximum():
    """A pod that is resized as a whole counts the maximum of desired, actual and allocated requests."""
    status = {"resources": {"requests": {"cpu": "1"}}, "allocatedResources": {"cpu": "4"}}
    assert pod_demand.in_tree_requests(whole({"requests": {"cpu": "3"}}, {}, status=status), "cpu") == 4000
    shrinking = {"resources": {"requests": {"cpu": "4"}}, "allocatedResources": {"cpu": "1"}}
    assert pod_demand.in_tree_requests(whole({"requests": {"cpu": "1"}}, {}, status=shrinking), "cpu") == 4000


CLAIM_FORMS = {
    "1.36": [{"resourceClaimName": "c", "resources": {"cpu": "2", "memory": "1Gi"}}],
    "1.37": [
        {"resourceClaimName": "c", "mapping": [{"name": "cpu", "quantity": "1500m"}]},
        {
            "resourceClaimName": "d",
            "containers": ["c0", "c1"],
            "overhead": [
                {"name": "memory", "perPod": "512Mi", "perContainer": "256Mi"},
                {"name": "cpu", "perContainer": "250m"},
            ],
        },
    ],
}


@pytest.mark.parametrize("claims", CLAIM_FORMS.values(), ids=CLAIM_FORMS)
def test_what_resource_claims_hold_of_the_node_is_counted(claims):
    """CPU and memory of claims are added to the containers, also during a resize; the Trimaran plugins ignore them."""
    status = {"nodeAllocatableResourceClaimStatuses": claims}
    pod = whole(None, {"cpu": "1"}, {"cpu": "500m"}, status=status)
    assert pod.claimed == {"cpu": 2000, "memory": 2**30}
    assert [pod_demand.in_tree_requests(pod, name) for name in ("cpu", "memory")] == [3500, 2**30]
    assert pod_demand.requests(pod, "cpu") == 1500
    table = NodeTable([Node("n1", allocatable=ResourceList({"cpu": 4000, "memory": 2**31}))])
    table.add(pod, "n1")
    assert table.in_tree_requests("memory").tolist() == [2**30]  # which no container requests
    resized = {"containerStatuses": [{"name": "c0", "resources": {"requests": {"cpu": "3"}}}], **status}
    assert pod_demand.in_tree_requests(whole(None, {"cpu": "1"}, {"cpu": "500m"}, status=resized), "cpu") == 5500
    whole_pod = whole({"requests": {"cpu": "4"}}, {"cpu": "1"}, status=status)
    assert pod_demand.in_tree_requests(whole_pod, "cpu") == 4000  # which has to cover the claims
    assert pod_demand.in_tree_requests(whole_pod, "memory") == 2**30


def test_claims_in_an_unknown_form_are_unknown():
    """Amounts of a claim in none of the known forms are unknown, not zero; what else is known counts."""
    pod = whole(None, {"cpu": "1"}, status={"nodeAllocatableResourceClaimStatuses": [{"resourceClaimName": "c"}]})
    assert pod.claimed is None
    assert pod_demand.in_tree_requests(pod, "cpu") == 1000


@pytest.mark.parametrize(
    ("amounts", "message"),
    [
        ({"cpu": "-1"}, r"requests\.cpu: must not be negative, got '-1'"),
        ({"cpu": "much"}, r"requests\.cpu: not a quantity: 'much'"),
        ({"cpu": None}, r"requests\.cpu: is null"),
        ("all", r"requests: must be a mapping, got 'all'"),
    ],
)
def test_invalid_amounts_are_rejected(amounts, message):
    """Amounts that the API server refuses are rejected with the object's name and the field's path."""
    with pytest.raises(ValueError, match=rf"pod default/p: spec\.containers\[0\]\.resources\.{message}"):
        whole(None, amounts)
    with pytest.raises(ValueError, match=rf"pod default/p: spec\.resources\.{message}"):
        whole({"requests": amounts}, {})
    status = message.replace("requests", "status\\.allocatable")
    with pytest.raises(ValueError, match=f"node n1: {status}"):
        Node.from_k8s({"metadata": {"name": "n1"}, "status": {"allocatable": amounts}})


@pytest.mark.parametrize(
    ("amounts", "counted"),
    [
        ({"cpu": "10P"}, 2**63 - 1),
        ({"cpu": "9P"}, 9 * 10**18),
        ({"memory": "9E"}, 9 * 10**18),
        ({"memory": "16Ei"}, 2**63 - 1),
        ({"memory": "1e30"}, 2**63 - 1),
    ],
)
def test_large_amounts_saturate(amounts, counted):
    """Amounts beyond 64 bits count as the largest 64-bit integer, of a container, of a pod, and of a node."""
    (name,) = amounts
    assert whole(None, amounts).containers[0].requests[name] == counted
    assert pod_demand.in_tree_requests(whole(None, *[amounts] * 3), name) == 2**63 - 1
    assert pod_demand.limits(whole(None, *[amounts] * 3), name) == 2**63 - 1
    node = Node.from_k8s({"metadata": {"name": "n1"}, "status": {"allocatable": amounts}})
    assert NodeTable([node]).allocatable(name).tolist() == [counted]


@pytest.mark.parametrize("text", ["much", "-1", "", None])
def test_an_annotation_that_is_no_amount_counts_as_missing(text):
    """A tenant may write any text in the annotations with demands: the pod can be read, and the others count."""
    annotations = {"trimaran.io/network": text, "trimaran.io/disk": "5M"}
    pod = Pod.from_k8s({"metadata": {"name": "p", "annotations": annotations}, "spec": {"containers": []}})
    assert pod.annotated == {"trimaran.io/disk": 5_000_000}


def test_weighted_amounts_do_not_overflow():
    """Large weights of large amounts give the correct mean."""
    amounts = ResourceList({"cpu": 4000, "memory": 2**50})
    nodes = NodeTable([Node("n1", allocatable=amounts)])
    plugin = NodeResourcesAllocatable("Most", (ResourceWeight("memory", 2**30), ResourceWeight("cpu", 2**30)))
    assert plugin.score(Pod(name="p"), nodes, MetricsTable.empty(nodes)).tolist() == [(2**50 + 4000) // 2]


def test_pods_with_a_generate_name_are_distinct():
    """Pods without name and uid are distinct, and are named by their generateName."""
    written = {"metadata": {"generateName": "web-"}, "spec": {"containers": []}}
    first, second = Pod.from_k8s(written), Pod.from_k8s(written)
    assert first.name == second.name == "web-"
    table = NodeTable([Node("n1")])
    table.add(first, "n1")
    table.add(second, "n1")
    assert table.pod_counts.tolist() == [2]
    assert Pod().uid != Pod().uid
    with pytest.raises(ValueError, match=r"pod default/web-: spec\.overhead\.cpu: "):
        Pod.from_k8s({"metadata": written["metadata"], "spec": {"overhead": {"cpu": None}}})


def test_the_request_cache_is_limited():
    """Many different pods with many containers clear the cache."""
    cache = pod_demand.RequestCache()

    def cached(image):
        containers = [{"name": f"c{n}", "image": f"{n}-{image}"} for n in range(100)]
        return Pod.from_k8s(
            {"metadata": {"name": "p"}, "spec": {"containers": containers}}, cache.lookup
        ).cached_requests

    first = cached("image")
    assert cached("image") is first
    for number in range(10):
        cached(f"{number}-{'x' * 10_000}")
    assert cached("image") is not first
