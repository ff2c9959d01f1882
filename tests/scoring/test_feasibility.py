"""Feasible nodes of a pod: free resources, cordons, taints, node selectors and required node affinity."""

import pytest

from scoring import Container, Node, NodeTable, Pod, ResourceList
from scoring.plugins.node_resources_fit import fits


def node(name, *, labels=None, taints=(), unschedulable=False, cpu="4"):
    amounts = {"cpu": cpu, "memory": "16Gi", "pods": "10"}
    return Node.from_k8s(
        {
            "metadata": {"name": name, "labels": labels or {}},
            "spec": {"taints": list(taints), "unschedulable": unschedulable},
            "status": {"capacity": amounts, "allocatable": amounts},
        }
    )


def pod(name="web", cpu="1", **spec):
    container = {"name": "c", "resources": {"requests": {"cpu": cpu}}}
    return Pod.from_k8s({"metadata": {"name": name}, "spec": {"containers": [container], **spec}})


def allowed(table, pending):
    return [name for name, feasible in zip(table.names, table.feasible(pending), strict=True) if feasible]


def affinity(*terms):
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
    return {"affinity": {"nodeAffinity": required}}


def expression(key, operator, *values):
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


BATCH = {"key": "dedicated", "value": "batch", "effect": "NoSchedule"}


def test_a_cordoned_node_is_infeasible():
    """A cordoned node accepts only pods that tolerate its taint, even if the taint is not listed."""
    table = NodeTable([node("plain"), node("cordoned", unschedulable=True)])
    assert allowed(table, pod()) == ["plain"]
    tolerant = pod(tolerations=[{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}])
    assert allowed(table, tolerant) == ["plain", "cordoned"]


@pytest.mark.parametrize(
    ("toleration", "expected"),
    [
        ({}, ["plain", "preferred"]),
        ({"key": "dedicated", "operator": "Exists"}, ["plain", "batch", "preferred", "gone"]),
        ({"key": "dedicated", "value": "batch"}, ["plain", "batch", "preferred", "gone"]),
        ({"key": "dedicated", "value": "other"}, ["plain", "preferred"]),
        ({"key": "dedicated", "operator": "Exists", "effect": "NoSchedule"}, ["plain", "batch", "preferred"]),
        ({"operator": "Exists"}, ["plain", "batch", "preferred", "gone"]),
        ({"key": "else", "operator": "Exists"}, ["plain", "preferred"]),
    ],
)
def test_taints_need_tolerations(toleration, expected):
    """NoSchedule and NoExecute exclude pods that do not tolerate key, value and effect; PreferNoSchedule does not."""
    table = NodeTable(
        [
            node("plain"),
            node("batch", taints=[BATCH]),
            node("preferred", taints=[{**BATCH, "effect": "PreferNoSchedule"}]),
            node("gone", taints=[{**BATCH, "effect": "NoExecute"}]),
        ]
    )
    assert allowed(table, pod(tolerations=[toleration] if toleration else [])) == expected


@pytest.mark.parametrize(
    ("term", "expected"),
    [
        (expression("zone", "In", "a", "c"), ["n1"]),
        (expression("zone", "NotIn", "a"), ["n2", "n3"]),
        (expression("zone", "Exists"), ["n1", "n2"]),
        (expression("zone", "DoesNotExist"), ["n3"]),
        (expression("cores", "Gt", "8"), ["n2"]),
        (expression("cores", "Lt", "9"), ["n1"]),
        ({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n3"]}]}, ["n3"]),
        ({"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["n3"]}]}, ["n1", "n2"]),
        ({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["none"]}]}, []),
        ({**expression("zone", "Exists"), "matchFields": [
            {"key": "metadata.name", "operator": "NotIn", "values": ["n1"]}]}, ["n2"]),
        ({}, []),
    ],
)  # fmt: skip
def test_required_affinity_by_every_operator(term, expected):
    """Each operator allows the same nodes as in kube-scheduler; an empty term allows no node."""
    labels = [{"zone": "a", "cores": "8"}, {"zone": "b", "cores": "16"}, {"cores": "many"}]
    table = NodeTable(node(f"n{number}", labels=each) for number, each in enumerate(labels, 1))
    assert allowed(table, pod(**affinity(term))) == expected
    assert allowed(table, pod(**affinity(term, expression("zone", "In", "a")))) == sorted({*expected, "n1"})


def test_a_node_selector_and_affinity_must_both_hold():
    """A node must have all labels of the selector and match one term; affinity without terms allows no node."""
    labels = [{"zone": "a", "disk": "ssd"}, {"zone": "a"}, {"zone": "b", "disk": "ssd"}]
    table = NodeTable(node(f"n{number}", labels=each) for number, each in enumerate(labels, 1))
    selector = {"disk": "ssd"}
    assert allowed(table, pod(nodeSelector=selector)) == ["n1", "n3"]
    assert allowed(table, pod(nodeSelector=selector, **affinity(expression("zone", "In", "b")))) == ["n3"]
    assert allowed(table, pod(**affinity())) == []


@pytest.mark.parametrize(
    ("requirement", "message"),
    [
        ({"key": "zone", "operator": "Like", "values": ["a"]}, "operator: must be one of In, NotIn, Exists"),
        ({"key": "zone", "operator": "In"}, "values: In needs one or more strings"),
        ({"key": "zone", "operator": "Exists", "values": ["a"]}, "values: Exists needs no values"),
        ({"key": "cores", "operator": "Gt", "values": ["1", "2"]}, "values: Gt needs one value"),
        ({"operator": "Exists"}, "key: must be a label's name"),
    ],
)
def test_invalid_affinity_is_refused(requirement, message):
    """The error names the pod and the path of the invalid field."""
    with pytest.raises(ValueError, match=rf"pod default/web: spec.affinity.*matchExpressions\[0\]\.{message}"):
        pod(**affinity({"matchExpressions": [requirement]}))


@pytest.mark.parametrize(
    ("operator", "value"),
    [("Gt", "abc"), ("Lt", "+5"), ("Gt", "-5"), ("Lt", str(2**63)), ("NotIn", "no label"), ("NotIn", "x" * 64)],
)
def test_a_term_that_cannot_be_parsed_matches_nothing(operator, value):
    """A term that the API server accepts and kube-scheduler cannot parse matches no node; the other terms count."""
    table = NodeTable([node("n1", labels={"cores": "3"})])
    odd = expression("cores", operator, value)
    assert allowed(table, pod(**affinity(odd))) == []
    assert allowed(table, pod(**affinity(odd, expression("cores", "Exists")))) == ["n1"]


def test_a_label_beyond_64_bits_is_not_compared():
    """A node whose label is no 64-bit number is neither above nor below a number, as in kube-scheduler."""
    table = NodeTable([node("n1", labels={"cores": str(2**63)}), node("n2", labels={"cores": str(2**63 - 1)})])
    assert allowed(table, pod(**affinity(expression("cores", "Gt", "1")))) == ["n2"]


def test_features_must_be_declared():
    """A pod that needs a feature of the kubelet runs only on nodes that declare it."""
    declaring = Node("new", declared_features=frozenset({"UserNamespacesHostNetworkSupport", "Other"}))
    table = NodeTable([Node("old"), declaring])
    free = {"hostNetwork": True, "containers": []}
    assert allowed(table, Pod.from_k8s({"spec": free})) == ["old", "new"]
    assert allowed(table, Pod.from_k8s({"spec": {**free, "hostUsers": False}})) == ["new"]


def test_constraints_follow_the_nodes():
    """Nodes that are cordoned, uncordoned, added or removed are reflected in the next result."""
    table = NodeTable([node("a"), node("b")])
    pending = pod()
    assert allowed(table, pending) == ["a", "b"]
    table.add_nodes([node("a", unschedulable=True), node("c", taints=[BATCH])])
    assert allowed(table, pending) == ["b"]
    table.remove_nodes(["b"])
    assert allowed(table, pending) == []
    table.add_nodes([node("a")])
    assert allowed(table, pending) == ["a"]


def test_nominated_pods_reserve_resources():
    """A nominated pod reserves resources against pods of the same or a lower priority, except itself."""
    table = NodeTable([node("n1"), node("n2")])
    waiting = pod("waiting", cpu="3", priority=10)
    table.nominate(waiting, "n1")
    for priority, expected in ((5, ["n2"]), (10, ["n2"]), (11, ["n1", "n2"])):
        pending = pod("web", cpu="2", priority=priority)
        assert allowed(table, pending) == expected
        assert [n for n, fit in zip(table.names, fits(pending, table), strict=True) if fit] == expected
    assert allowed(table, waiting) == ["n1", "n2"]
    table.add(waiting, "n2")
    assert allowed(table, pod("web", cpu="2")) == ["n1"]


def test_constraints_and_free_resources_are_both_needed():
    """An allowed node without free resources and a free node that is not allowed are both infeasible."""
    table = NodeTable([node("full", cpu="1"), node("tainted", taints=[BATCH]), node("good")])
    table.add(Pod(name="old", containers=(Container(ResourceList({"cpu": 800})),)), "full")
    assert allowed(table, pod()) == ["good"]


def test_scheduling_fields_of_pods_and_nodes_are_read():
    """Labels, controller, priority and scheduler name are read; absent fields have Kubernetes' defaults."""
    owners = [
        {"kind": "Job", "name": "j", "uid": "1"},
        {"kind": "ReplicaSet", "name": "r", "uid": "2", "controller": True},
    ]
    read = Pod.from_k8s(
        {
            "metadata": {"name": "p", "labels": {"app": "web"}, "ownerReferences": owners},
            "spec": {"priority": 7, "schedulerName": "mine"},
        }
    )
    assert (read.labels, read.priority, read.scheduler_name) == ({"app": "web"}, 7, "mine")
    assert read.owner is not None
    assert (read.owner.kind, read.owner.name, read.owner.uid) == ("ReplicaSet", "r", "2")
    bare = Pod.from_k8s({"metadata": {"name": "p"}})
    assert (bare.labels, bare.owner, bare.priority, bare.scheduler_name) == ({}, None, 0, "default-scheduler")
    assert node("n1", labels={"zone": "a"}).labels == {"zone": "a"}
