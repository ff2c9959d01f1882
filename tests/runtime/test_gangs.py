"""One reader of all ways to name a gang and to describe it."""

from typing import Any

import pytest

from runtime.kubernetes.gangs import GangForm, GangRef, PodGroup, gang_of, labelled_group
from runtime.kubernetes.objects import Pod, ResourceList

IN_TREE, COSCHEDULING, LABELS = GangForm.IN_TREE, GangForm.COSCHEDULING, GangForm.LABELS
OLD = "pod-group.scheduling.sigs.k8s.io"


def worker(labels: dict[str, str], **spec: Any) -> Pod:
    return Pod.from_k8s({"metadata": {"name": "worker-0", "namespace": "ml", "labels": labels}, "spec": spec})


@pytest.mark.parametrize(
    ("labels", "spec", "form", "name"),
    [
        ({"scheduling.x-k8s.io/pod-group": "a"}, {}, COSCHEDULING, "a"),
        ({OLD: "c"}, {}, COSCHEDULING, "c"),
        ({f"{OLD}/name": "b"}, {}, LABELS, "b"),
        ({}, {"schedulingGroup": {"podGroupName": "d"}}, IN_TREE, "d"),
        ({OLD: "c", f"{OLD}/name": "b"}, {"schedulingGroup": {"podGroupName": "d"}}, IN_TREE, "d"),
    ],
)
def test_each_way_to_name_a_gang_is_read(
    labels: dict[str, str], spec: dict[str, Any], form: GangForm, name: str
) -> None:
    """The PodGroup in the spec and each of the labels name the pod's gang; the newest of several decides."""
    assert gang_of(worker(labels, **spec)) == GangRef(form, "ml", name)


def test_other_pods_have_no_gang() -> None:
    """A pod without a group in its spec and without the labels, or with an empty label, is in no gang."""
    assert gang_of(worker({"app": "web", OLD: ""})) is None


@pytest.mark.parametrize("version", ["v1alpha2", "v1beta1"])
@pytest.mark.parametrize(("policy", "least"), [({"gang": {"minCount": 3}}, 3), ({"basic": {}}, 0)])
def test_a_group_of_kubernetes_is_read(version: str, policy: dict[str, Any], least: int) -> None:
    """Both versions state the least number of pods in the gang policy; the basic policy has none."""
    metadata = {"name": "d", "namespace": "ml", "uid": "u", "creationTimestamp": "1970-01-01T00:01:00Z"}
    spec = {"schedulingPolicy": policy}
    read = PodGroup.from_k8s({"apiVersion": f"scheduling.k8s.io/{version}", "metadata": metadata, "spec": spec})
    assert read == PodGroup(GangRef(IN_TREE, "ml", "d"), least, created_at=60.0, uid="u")


def test_a_group_of_scheduler_plugins_is_read() -> None:
    """The spec has the least number of pods, the resources that must be free, and the time-out."""
    spec = {"minMember": 4, "minResources": {"cpu": "2"}, "scheduleTimeoutSeconds": 10}
    document = {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "metadata": {"name": "a", "namespace": "ml"},
        "spec": spec,
    }
    assert PodGroup.from_k8s(document) == PodGroup(
        GangRef(COSCHEDULING, "ml", "a"), 4, ResourceList({"cpu": 2000}), timeout_seconds=10
    )


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"minMember": "two"}, "minMember"),
        ({"minMember": True}, "minMember"),
        ({"scheduleTimeoutSeconds": "soon"}, "scheduleTimeoutSeconds"),
        ({"schedulingPolicy": {"gang": {}}}, "schedulingPolicy.gang.minCount"),
    ],
)
def test_an_invalid_group_is_refused(spec: dict[str, Any], field: str) -> None:
    """The error names the object and the field."""
    with pytest.raises(ValueError, match=rf"^pod group ml/a: spec\.{field}: "):
        PodGroup.from_k8s({"metadata": {"name": "a", "namespace": "ml"}, "spec": spec})


def test_a_group_below_the_least_numbers_waits_for_nobody() -> None:
    """The schema of the custom resource allows them, and amounts of any size and sign."""
    resources = {"cpu": "-1", "memory": "9E", "example.com/x": "1e30"}
    spec = {"minMember": -5, "scheduleTimeoutSeconds": -9, "minResources": resources}
    group = PodGroup.from_k8s({"metadata": {"name": "a", "namespace": "ml"}, "spec": spec})
    assert (group.min_members, group.timeout_seconds) == (1, 0)
    assert group.min_resources == {"cpu": -1000, "memory": 9 * 10**18, "example.com/x": 2**63 - 1}


def test_labels_alone_can_describe_a_gang() -> None:
    """The oldest form has the least number of pods in a label of each pod; an invalid number is an error."""
    group = labelled_group(worker({f"{OLD}/name": "b", f"{OLD}/min-available": "2"}))
    assert group == PodGroup(GangRef(LABELS, "ml", "b"), 2)
    assert labelled_group(worker({OLD: "c"})) is None
    with pytest.raises(ValueError, match=r"^pod ml/worker-0: label .*min-available: .*'two'"):
        labelled_group(worker({f"{OLD}/name": "b", f"{OLD}/min-available": "two"}))


def test_numbers_of_64_bits_are_read() -> None:
    """The API server does not check the size of numbers in a custom resource."""
    spec = {"minMember": 2**63 - 1, "scheduleTimeoutSeconds": 2**63 - 1}
    group = PodGroup.from_k8s({"metadata": {"name": "a", "namespace": "ml"}, "spec": spec})
    assert (group.min_members, group.timeout_seconds) == (2**63 - 1, 2**63 - 1)
