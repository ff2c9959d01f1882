"""Notes about what files of nodes and pods cannot have."""

import pytest

from scoring import NodeTable, Pod
from trimaran.planning.cluster import read_batch, read_pending_pods
from trimaran.planning.file_gaps import file_gaps, uncounted_rules

PLUGINS = ("InterPodAffinity", "PodTopologySpread")
NODES = [{"metadata": {"name": "n"}}]


def manifest(name, keys=(), kind="podAffinity", **spec):
    """Return a pod with a term whose namespace selector needs labels."""
    needed = [{"key": key, "operator": "Exists"} for key in keys]
    term = {"topologyKey": "zone", "labelSelector": {}, "namespaceSelector": {"matchExpressions": needed}}
    spread = [{"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {}}]
    affinity = {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}} if keys else {}
    rules = {"affinity": affinity, "topologySpreadConstraints": spread}
    return {"metadata": {"name": name, "uid": name}, "spec": {"containers": [{"name": "c"}], **rules, **spec}}


@pytest.mark.parametrize("kind", ["podAffinity", "podAntiAffinity"])
@pytest.mark.parametrize("by_placed", [False, True])
def test_labels_of_namespaces_are_a_note(kind, by_placed):
    """Terms of the pod or of placed pods by labels of namespaces are noted; those by their names are not."""
    asking, plain = manifest("asking", ["team", "kubernetes.io/metadata.name"], kind), manifest("plain")
    named = manifest("named", ["kubernetes.io/metadata.name"], kind)
    for first, notes in ((asking, 1), (named, 0)):
        placed = {**first, "spec": {**first["spec"], "nodeName": "n"}, "status": {"phase": "Running"}}
        nodes = NodeTable.from_k8s(NODES, [placed] if by_placed else [])
        found = list(file_gaps(Pod.from_k8s(plain if by_placed else first), nodes, PLUGINS))
        assert len(found) == notes
        assert all("InterPodAffinity" in note for note in found)
        assert list(file_gaps(Pod.from_k8s(first), nodes, ["CongestionCost"])) == []


def test_services_are_a_note():
    """A pod without constraints of its own would be spread by the selectors of its Services."""
    (note,) = file_gaps(Pod.from_k8s(manifest("x", topologySpreadConstraints=[])), NodeTable.from_k8s(NODES), PLUGINS)
    assert "Services" in note


@pytest.mark.parametrize(
    ("key", "operator", "values", "noted"),
    [
        ("kubernetes.io/metadata.name", "In", ["default"], True),
        ("kubernetes.io/metadata.name", "In", ["other"], False),
        ("team", "In", ["a"], True),  # the files do not have this label, so it may hold
    ],
)
def test_a_plan_notes_placed_pods_that_avoid_its_pods(key, operator, values, noted):
    """Required anti-affinity of placed pods is not checked by a plan, so it is a note."""
    avoiding = manifest("avoiding", ["x"], "podAntiAffinity", nodeName="n")
    (term,) = avoiding["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    term["namespaceSelector"] = {"matchExpressions": [{"key": key, "operator": operator, "values": values}]}
    avoiding["metadata"]["namespace"] = "elsewhere"
    amounts = {"cpu": "4", "memory": "8Gi", "pods": "110"}
    nodes = NodeTable.from_k8s(
        [{"metadata": {"name": "n"}, "status": {"capacity": amounts, "allocatable": amounts}}],
        [{**avoiding, "status": {"phase": "Running"}}],
    )
    plain = manifest("plain", topologySpreadConstraints=[])
    notes = read_batch(nodes, *read_pending_pods([plain])).notes
    assert [note for note in notes if "anti-affinity to 1 of 1 pods" in note] == [*notes] * noted
    preferring = read_batch(nodes, *read_pending_pods([manifest("spread")])).notes
    assert any("1 of 1 pods prefer nodes by the pods on them" in note for note in preferring)


def test_a_pod_without_containers_is_a_note():
    """The API server refuses a pod without containers; a file with one was probably cut."""
    cut = {"metadata": {"name": "x"}, "spec": None}
    (note,) = file_gaps(Pod.from_k8s(cut), NodeTable.from_k8s(NODES), [])
    assert note.startswith("default/x ")
    (note,) = uncounted_rules(
        [Pod.from_k8s(cut), Pod.from_k8s(manifest("y", topologySpreadConstraints=[]))], NodeTable([])
    )
    assert note.startswith("1 of 2 pods")
