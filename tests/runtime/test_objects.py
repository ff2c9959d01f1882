"""Pods and nodes read from Kubernetes objects."""

import json
import math
from datetime import UTC, datetime
from functools import partial
from types import SimpleNamespace

import kubernetes
import pytest

from runtime.kubernetes import pod_demand
from runtime.kubernetes.kinds import items_of
from runtime.kubernetes.workloads import workload_of
from scoring import Node, Owner, Pod, ResourceList, Workload

POD = {
    "metadata": {
        "name": "web-1",
        "namespace": "shop",
        "uid": "u-1",
        "annotations": {"trimaran.io/network": "10M", "other": "x"},
        "deletionTimestamp": "2026-01-01T00:00:00Z",
    },
    "spec": {
        "nodeName": "n1",
        "overhead": {"cpu": "50m"},
        "containers": [
            {"name": "a", "image": "web", "resources": {"requests": {"cpu": "1500m", "memory": "1Gi"}}},
            {"name": "b", "resources": {"limits": {"cpu": "2"}}},
            {"name": "c"},
        ],
        "initContainers": [{"name": "i", "restartPolicy": "Always", "resources": {"requests": {"cpu": 1}}}],
    },
    "status": {
        "phase": "Running",
        "startTime": "2026-01-01T00:00:05Z",
        "conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
    },
}


def snake(value):
    """Return the dict as ``to_dict()`` of the kubernetes client does, with snake_case keys."""
    if isinstance(value, list):
        return [snake(item) for item in value]
    if not isinstance(value, dict):
        return value
    unchanged = {"requests", "limits", "annotations", "overhead"}
    return {
        "".join("_" + c.lower() if c.isupper() else c for c in key): item if key in unchanged else snake(item)
        for key, item in value.items()
    }


def as_objects(value):
    """Return the dict as the kubernetes client's objects: attributes, and dicts only for maps."""
    if isinstance(value, list):
        return [as_objects(item) for item in value]
    if not isinstance(value, dict):
        return value
    unchanged = {"requests", "limits", "annotations", "overhead"}
    fields = {key: item if key in unchanged else as_objects(item) for key, item in value.items()}
    return SimpleNamespace(**fields)


def test_a_pod_is_read():
    """All fields that scores use are read from a pod."""
    pod = Pod.from_k8s(POD)
    assert (pod.name, pod.namespace, pod.uid, pod.node_name) == ("web-1", "shop", "u-1", "n1")
    assert dict(pod.containers[0].requests) == {"cpu": 1500, "memory": 2**30}
    assert dict(pod.containers[1].limits) == {"cpu": 2000}
    assert dict(pod.containers[2].requests) == dict(pod.containers[2].limits) == {}
    assert pod.containers[0].image == "web"
    assert pod.init_containers[0].restartable
    assert dict(pod.overhead) == {"cpu": 50}
    assert dict(pod.annotated) == {"trimaran.io/network": 10_000_000}
    assert pod.terminating
    assert not pod.finished
    assert pod.scheduled_at == datetime(2026, 1, 1, tzinfo=UTC).timestamp()


@pytest.mark.parametrize("spelling", [snake, lambda pod: as_objects(snake(pod))], ids=["snake_case", "objects"])
def test_all_forms_give_the_same_pod(spelling):
    """snake_case dicts and objects of the kubernetes client give the same pod as camelCase dicts."""
    read, expected = Pod.from_k8s(spelling(POD)), Pod.from_k8s(POD)
    assert repr(read) == repr(expected)


def test_a_datetime_is_read():
    """A datetime gives the same time as its text."""
    status = {"start_time": datetime(2026, 1, 1, tzinfo=UTC)}
    assert (
        Pod.from_k8s({"metadata": {"name": "web"}, "status": status}).scheduled_at
        == datetime(2026, 1, 1, tzinfo=UTC).timestamp()
    )


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"spec": {"containers": [{"resources": {"request": {"cpu": 1}}}]}}, r"\[0\].resources.request: .* requests"),
        ({"spec": {"containers": [{"resources": {"Limits": {"cpu": 1}}}]}}, r"\[0\].resources.Limits: .* limits"),
        ({"spec": {"containers": [{"resource": {}}]}}, r"spec.containers\[0\].resource: .* resources"),
        ({"spec": {"initContainers": [{"resources": {"requets": {}}}]}}, "resources.requets: .* requests"),
        ({"spec": {"resources": {"limit": {"cpu": 1}}}}, "web: spec.resources.limit: .* limits"),
        ({"spec": {"container": []}}, "web: spec.container: .* containers"),
        ({"spec": {"containers": [{"resources": {"requests": {"memroy": 1}}}]}}, "requests.memroy: .* example.com/gpu"),
        ({"spec": {"containers": [], "init-containers": []}}, "spec.init-containers: .* initContainers"),
        ({"spec": {"containers": [], "nodeselector": {}}}, "spec.nodeselector: .* nodeSelector"),
        ({"spec": {"containers": [], "toleration": []}}, "spec.toleration: .* tolerations"),
        ({"Spec": {}}, "pod.Spec: .* spec"),
        ({"spec": {"affinity": {"podAntiaffinity": {}}}}, "spec.affinity.podAntiaffinity: .* podAntiAffinity"),
        ({"spec": []}, "web: spec: must be a mapping"),
        ({"spec": {"affinity": "hostname"}}, "spec.affinity: must be a mapping, got 'hostname'"),
        ({"spec": {"resources": "1"}}, "spec.resources: must be a mapping"),
        ({"spec": {"containers": ["web"]}}, r"spec.containers\[0\]: must be a mapping"),
        ({"spec": {"containers": [{"resources": ["cpu"]}]}}, r"containers\[0\].resources: must be a mapping"),
        ({"spec": {"containers": [{"resources": {"requests": {"cpu": "-1"}}}]}}, r"\[0\].resources.requests.cpu"),
        ({"spec": {"containers": [{"resources": {"limits": {"memory": "many"}}}]}}, r"resources.limits.memory"),
        ({"spec": {"containers": [{"resources": {"limits": {"memory": math.nan}}}]}}, r"resources.limits.memory"),
        ({"status": {"startTime": "noon"}}, "pod default/web: status .*'noon'"),
    ],
)
def test_a_misspelled_or_invalid_field_is_refused(changed, problem):
    """A field of another spelling raises, so that no request is missing in silence; so does another type or value."""
    with pytest.raises(ValueError, match=problem):
        Pod.from_k8s({"metadata": {"name": "web"}, **changed})
    newer = {"ofANewerVersion": {}, "containers": [{"resources": {"requests": {"cpu": 1}, "ofANewerVersion": {}}}]}
    assert Pod.from_k8s({"metadata": {"name": "web"}, "spec": newer}).containers[0].requests["cpu"] == 1000


def test_an_object_of_the_api_server_has_no_misspelled_fields():
    """An object with a UID is from the API server; a newer one may have fields with nearly the same names."""
    spec = {"nodeSelectors": {}, "containers": [{"restartPolicys": "x", "resources": {"request": {}}}]}
    assert Pod.from_k8s({"metadata": {"name": "web", "uid": "1"}, "spec": spec}).name == "web"
    node = {"metadata": {"name": "n1", "uid": "1"}, "spec": {"taint": []}, "status": {"capacitys": {}}}
    assert Node.from_k8s(node).name == "n1"


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"status": {"allocatables": {}}}, "node n1: status.allocatables"),
        ({"metadata": {"name": ["n1"]}}, "node: metadata.name"),
        ({"status": {"Capacity": {}}}, "status.Capacity: .* capacity"),
        ({"spec": {"taint": []}}, "spec.taint: .* taints"),
        ({"statuss": {}}, "node.statuss: .* status"),
        ({"status": ["cpu"]}, "node n1: status"),
        ({"spec": "cordoned"}, "node n1: spec"),
        ({"metadata": {}}, r"node: metadata\.name"),
        ({"status": {"allocatable": {"cpu": "-1m"}}}, r"node n1: status\.allocatable\.cpu"),
        ({"status": {"images": [{"names": ["a"], "sizeBytes": "7"}]}}, r"node n1: status\.images\[0\]\.sizeBytes"),
        ({"metadata": {"name": "n1", "creationTimestamp": "noon"}}, "node n1: metadata .*'noon'"),
    ],
)
def test_a_misspelled_or_invalid_field_of_a_node_is_refused(changed, problem):
    """A node without taints, or without room, because of its spelling would be another node."""
    with pytest.raises(ValueError, match=problem):
        Node.from_k8s({"metadata": {"name": "n1"}, **changed})


@pytest.mark.parametrize("expected", ["Pod", "Node"])
@pytest.mark.parametrize("kind", [{}, {"kind": "List"}, {"kind": "{}List"}])
def test_a_null_list_is_empty(kind, expected):
    """Go writes an empty list as null: in each form of a list it has no objects."""
    listed = {name: value.format(expected) for name, value in kind.items()}
    assert list(items_of({**listed, "items": None}, expected)) == []
    assert list(items_of(type("V1PodList", (), {"items": None, "kind": None, "metadata": None})(), "Pod")) == []


def test_a_limit_without_a_request_is_a_request():
    """A limit without a request sets the request, as the API server does."""
    resources = {"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "500m"}}
    pod = Pod.from_k8s({"spec": {"containers": [{"resources": resources}]}})
    assert dict(pod.containers[0].requests) == {"cpu": 500, "memory": 2**30}


def test_an_empty_pod_is_read():
    """Missing and null sections count as empty."""
    pod = Pod.from_k8s({"metadata": {"name": "p"}, "spec": {"containers": None}, "status": None})
    assert (pod.containers, pod.uid, pod.scheduled_at) == ((), "default/p", None)


def test_a_node_is_read():
    """Capacity, allocatable, images and annotated capacities are read from a node."""
    node = Node.from_k8s(
        {
            "metadata": {"name": "n1", "annotations": {"trimaran.io/disk": "200M"}},
            "status": {
                "capacity": {"cpu": "4", "memory": "8Gi"},
                "allocatable": {"cpu": "3900m", "memory": "7Gi", "nvidia.com/gpu": "2"},
                "images": [{"names": ["a:1", "a@sha256:x"], "sizeBytes": 7}, {"names": None}],
            },
        }
    )
    assert dict(node.capacity) == {"cpu": 4000, "memory": 2**33, "trimaran.io/disk": 200_000_000}
    assert dict(node.allocatable) == {
        "cpu": 3900,
        "memory": 7 * 2**30,
        "nvidia.com/gpu": 2,
        "trimaran.io/disk": 200_000_000,
    }
    assert dict(node.images) == {"a:1": 7, "a@sha256:x": 7}


def test_exact_amounts_are_kept():
    """Amounts are rounded up, and their exact values are kept."""
    amounts = ResourceList.from_k8s({"cpu": "100.5m", "memory": "1.5"}, "x")
    assert dict(amounts) == {"cpu": 101, "memory": 2}
    assert (amounts.nano("cpu"), amounts.nano("memory"), amounts.nano("gpu")) == (100_500_000, 1_500_000_000, 0)


def test_equal_pods_have_equal_hashes():
    """Equal pods have equal hashes."""
    assert Pod.from_k8s(POD) == Pod.from_k8s(POD)
    assert len({Pod.from_k8s(POD), Pod.from_k8s(POD)}) == 1


def pod(containers, init=(), overhead=None):
    def container(described):
        request, policy = described if isinstance(described, tuple) else (described, None)
        return {"resources": {"requests": {"cpu": request}} if request else {}, "restartPolicy": policy}

    spec = {"containers": list(map(container, containers)), "initContainers": list(map(container, init))}
    return Pod.from_k8s({"spec": {**spec, "overhead": overhead and {"cpu": overhead}}})


def test_rounding_and_sidecars_count_as_upstream():
    """The Trimaran plugins round each container, others the sum, and only kube-scheduler adds sidecars."""
    fine = pod(["100.5m", "100.5m"])
    assert pod_demand.requests(fine, "cpu") == 202
    assert pod_demand.peaks_cpu(fine) == pod_demand.in_tree_requests(fine, "cpu") == 201
    sidecar = pod(["1"], init=[("500m", "Always"), "1200m"], overhead="100m")
    assert pod_demand.requests(sidecar, "cpu") == 1300
    assert pod_demand.in_tree_requests(sidecar, "cpu") == 1800


def test_peaks_ignores_overhead_without_a_request():
    """Peaks adds overhead only to a pod that requests CPU; the other Trimaran plugins always add it."""
    alone = pod([None], overhead="100m")
    assert (pod_demand.peaks_cpu(alone), pod_demand.requests(alone, "cpu")) == (0, 100)


def test_containers_without_requests_count_for_spreading():
    """kube-scheduler's scores assume 100m CPU and 200 MiB for a container without a request."""
    silent = pod([None, "0"])
    assert pod_demand.in_tree_requests(silent, "cpu", non_zero=True) == 100
    assert pod_demand.in_tree_requests(silent, "memory", non_zero=True) == 2 * 200 * 2**20
    assert pod_demand.in_tree_requests(silent, "cpu") == 0


@pytest.mark.parametrize("moment", ["2023-11-14T22:13:20Z", datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)])
def test_the_creation_time_of_a_node(moment):
    """The creation time of a node is read from text or datetime; None if it is missing."""
    assert Node.from_k8s({"metadata": {"name": "n1", "creationTimestamp": moment}}).created_at == 1_700_000_000
    assert Node.from_k8s({"metadata": {"name": "n1"}}).created_at is None


def test_quantities_are_no_amounts() -> None:
    """A quantity where a number belongs is refused with the name of what reads it, not compared as a text later."""
    with pytest.raises(TypeError, match=r"'cpu': '1'.*ResourceList\.from_k8s"):
        ResourceList({"cpu": "1"})  # type: ignore[dict-item]


def test_resource_lists_compare_exact_amounts() -> None:
    """Resource lists that differ by half a millicore are different."""
    half, whole = (ResourceList.from_k8s({"cpu": written}, "x") for written in ("100.5m", "101m"))
    assert half != whole
    assert half == ResourceList.from_k8s({"cpu": "100500u"}, "x")
    assert whole == {"cpu": 101}
    assert whole != "cpu"


def workload(kind, path):
    """Return a workload whose pod template is at a path."""
    template = {"metadata": {"labels": {"app": "web"}, "annotations": {"trimaran.io/network": "10M"}}}
    template["spec"] = {"containers": POD["spec"]["containers"]}
    for key in reversed(path):
        template = {key: template}
    required = {"CronJob": {"schedule": "@daily"}, "Job": {}, "ReplicationController": {}, "PodTemplate": {}}
    template.get("spec", {}).update(required.get(kind, {"selector": {}}))
    return {"kind": kind, "metadata": {"name": "web", "namespace": "shop", "uid": "u"}, **template}


def client_objects(value):
    """Return a dict as the objects that the kubernetes client reads from the API server."""
    return kubernetes.client.ApiClient().deserialize(json.dumps(value), f"V1{value['kind']}", None)


@pytest.mark.parametrize("form", [dict, snake, client_objects], ids=["camelCase", "snake_case", "client"])
@pytest.mark.parametrize(
    ("kind", "path"),
    [
        ("Deployment", ("spec", "template")),
        ("StatefulSet", ("spec", "template")),
        ("DaemonSet", ("spec", "template")),
        ("ReplicaSet", ("spec", "template")),
        ("ReplicationController", ("spec", "template")),
        ("Job", ("spec", "template")),
        ("CronJob", ("spec", "jobTemplate", "spec", "template")),
        ("PodTemplate", ("template",)),
    ],
)
def test_a_workload_is_read_as_a_pod_of_its_template(kind, path, form):
    """The pod has the requests, labels and annotations of the template, and the workload's name; it has no uid yet."""
    pod = Pod.from_k8s(form(workload(kind, path)))
    assert (pod.namespace, pod.name, pod.uid) == ("shop", "web", "shop/web")
    assert [dict(each.requests) for each in pod.containers] == [
        dict(each.requests) for each in Pod.from_k8s(POD).containers
    ]
    assert pod.labels == {"app": "web"}
    assert dict(pod.annotated) == {"trimaran.io/network": 10_000_000}
    assert pod.owner is None


def test_a_workload_of_a_list_is_recognized_without_its_kind():
    """Items of a list have no kind: a workload and a node are known by their fields."""
    deployment, node = workload("Deployment", ("spec", "template")), {"status": {"allocatable": {"cpu": "4"}}}
    assert Pod.from_k8s({**deployment, "kind": None}).containers == Pod.from_k8s(deployment).containers
    with pytest.raises(ValueError, match=r"Deployment, .* Node"):
        Pod.from_k8s(node)


@pytest.mark.parametrize(
    ("kind", "item", "message"),
    [
        (Pod, {"kind": "Service", "metadata": {"name": "web"}}, "web: .* Pod .* Deployment, .* Service"),
        (Pod, {"kind": "PodList", "items": [POD]}, "Pod .* PodList"),
        (Pod, {"items": [POD]}, "Pod .* List"),
        (Pod, {"kind": "Deployment", "metadata": {"name": "web"}}, "web: .* spec.template"),
        (Pod, "pod.yaml", "Pod .* str"),
        (Pod, None, "Pod .* NoneType"),
        (Pod, [POD], "Pod .* list"),
        *((Pod, item, "pod: .* name .* containers") for item in ({}, {"spec": {}}, {"items": None})),
        (Pod, {"metadata": {"labels": {"a": "b"}}, "status": {}}, "pod: .* name .* containers"),
        (Node, POD, "web-1: .* Node, .* Pod"),
        (Node, {**POD, "kind": "Pod"}, "web-1: .* Node, .* Pod"),
        (Node, workload("Job", ("spec", "template")), "web: .* Node, .* Job"),
        (Node, "n1", "Node, .* str"),
    ],
)
def test_objects_of_another_kind_are_refused(kind, item, message):
    """They become neither an empty pod, which would fit everywhere, nor a node without resources."""
    with pytest.raises(ValueError, match=message):
        kind.from_k8s(item)


def owned(kind: str, name: str, **labels: str) -> dict[str, object]:
    """Return a pod with a controller and labels."""
    references = [{"kind": kind, "name": name, "uid": "u", "controller": True}]
    return {
        **POD,
        "metadata": {"name": f"{name}-x", "namespace": "shop", "labels": labels, "ownerReferences": references},
    }


def test_a_pod_has_its_workload_beside_its_owner():
    """A pod of a ReplicaSet belongs to the Deployment; a lookup of owners and labels may name it, too."""
    manifest = owned("ReplicaSet", "web-7f9c", **{"pod-template-hash": "7f9c", "team": "search"})
    pod = Pod.from_k8s(manifest)
    assert pod.owner == Owner("ReplicaSet", "web-7f9c", "u")
    assert pod.workload == Workload("shop", "Deployment", "web")
    by_label = Pod.from_k8s(manifest, name_workload=partial(workload_of, owner_labels=("team",)))
    assert by_label.workload == Workload("shop", "Label", "search")
    assert Pod.from_k8s({"metadata": {"generateName": "probe-"}, "spec": {}}).workload == ("default", "Pod", "probe")


@pytest.mark.parametrize(("kind", "expected"), [("Deployment", "web"), ("StatefulSet", "web"), ("Job", "web")])
def test_a_template_belongs_to_its_workload(kind, expected):
    """A pod from a template has the workload that the pods of this object will have."""
    pod = Pod.from_k8s(workload(kind, ("spec", "template")))
    assert pod.workload is not None
    assert pod.workload[1:] == (kind, expected)
