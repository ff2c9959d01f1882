"""Filters that look at one node at a time: reasons in kube-scheduler's words, and where preemption cannot help."""

import numpy as np

from scoring import Container, Node, NodeTable, Pod, ResourceList, plugin_from_config
from scoring.plugins.filtering import count_reasons
from scoring.plugins.node_declared_features import NodeDeclaredFeatures
from scoring.plugins.node_name import NodeName
from scoring.plugins.node_resources_fit import NodeResourcesFit
from scoring.plugins.node_unschedulable import NodeUnschedulable
from scoring.plugins.taint_toleration import TaintToleration

ROOM = {"cpu": "4", "memory": "8Gi", "pods": "2"}


def node(name, labels=None, room=ROOM, features=(), **spec):
    status = {"capacity": room, "allocatable": room, "declaredFeatures": list(features)}
    return Node.from_k8s({"metadata": {"name": name, "labels": labels or {}}, "spec": spec, "status": status})


def pod(name="p", cpu="1", **spec):
    containers = [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]
    return Pod.from_k8s({"metadata": {"name": name}, "spec": {"containers": containers, **spec}})


def reasons(plugin, pending, table):
    """Return the reasons for each node, marked with "!" if preemption cannot help; None if the filter skips."""
    verdict = plugin.filter(pending, table)
    if verdict is None:
        return None
    unresolvable = np.zeros(len(table), bool) if verdict.unresolvable is None else verdict.unresolvable
    return [
        "" if allowed else ", ".join(verdict.reasons(row)) + "!" * bool(unresolvable[row])
        for row, allowed in enumerate(verdict.allowed)
    ]


def test_names_cordons_taints_and_features():
    """Each filter gives its own reason, which no preemption changes; without such nodes or wishes it skips."""
    table = NodeTable([
        node("a"),
        node("b", unschedulable=True, features=["RestartAllContainersOnContainerExits"]),
        node("c", taints=[{"key": "gpu", "effect": "NoSchedule"}]),
    ])  # fmt: skip
    assert reasons(NodeUnschedulable(), pod(), table) == ["", "node(s) were unschedulable!", ""]
    assert reasons(TaintToleration(), pod(), table) == ["", "", "node(s) had untolerated taint(s)!"]
    everything = pod(tolerations=[{"operator": "Exists"}])
    assert reasons(NodeUnschedulable(), everything, table) is None
    assert reasons(TaintToleration(), everything, table) == ["", "", ""]
    other = "node(s) didn't satisfy plugin(s) [NodeName]!"
    assert reasons(NodeName(), pod(nodeName="b"), table) == [other, "", other]
    assert reasons(NodeName(), pod(), table) is None
    assert reasons(NodeDeclaredFeatures(), pod(), table) is None
    rule = {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [42]}}
    needing = pod(containers=[{"name": "c", "restartPolicyRules": [rule]}])
    missing = "node(s) didn't match Pod's required features!"
    assert reasons(NodeDeclaredFeatures(), needing, table) == [missing, "", missing]


def test_node_affinity_has_the_words_of_kube_scheduler():
    """The pod's own terms, added affinity, named nodes and conflicting names have reasons of their own."""
    table = NodeTable([node("a", {"zone": "x"}), node("b", {"zone": "y"})])
    plain = plugin_from_config("NodeAffinity")
    assert reasons(plain, pod(), table) is None
    assert reasons(plain, pod(nodeSelector={"zone": "x"}), table) == [
        "", "node(s) didn't match Pod's node affinity/selector!",
    ]  # fmt: skip

    def required(*terms):
        return {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}

    def named(*names):
        return {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]} for name in names]}

    assert reasons(plain, pod(affinity={"nodeAffinity": required(named("b"))}), table) == [
        "node(s) didn't satisfy plugin(s) [NodeAffinity]!", "",
    ]  # fmt: skip
    assert reasons(plain, pod(affinity={"nodeAffinity": required(named("a", "b"))}), table) == [
        "pod affinity terms conflict!", "pod affinity terms conflict!",
    ]  # fmt: skip
    zone = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["y"]}]}
    enforced = plugin_from_config("NodeAffinity", {"addedAffinity": required(zone)})
    assert reasons(enforced, pod(), table) == ["node(s) didn't match scheduler-enforced node affinity!", ""]


def test_resources_that_lack_are_named():
    """All shortages are reasons; a request above the node's size cannot be met by preemption."""
    table = NodeTable([node("full"), node("small", room={**ROOM, "cpu": "1"}), node("free")])
    for number in range(2):
        table.assume(pod(f"q{number}"), "full")
    wants = Pod("p", containers=(Container(ResourceList({"cpu": 3000, "example.com/fpga": 1})),))
    fit = NodeResourcesFit()
    assert reasons(fit, pod(cpu="3"), table) == ["Too many pods, Insufficient cpu", "Insufficient cpu!", ""]
    assert reasons(fit, wants, table)[2] == "Insufficient example.com/fpga!"
    ignoring = plugin_from_config("NodeResourcesFit", {"ignoredResourceGroups": ["example.com"]})
    assert reasons(ignoring, wants, table)[2] == ""
    verdict = fit.filter(pod(cpu="3"), table, np.array([2, 0]))
    assert verdict.allowed.tolist() == [True, False]
    assert verdict.reasons(1) == ("Too many pods", "Insufficient cpu")
    assert count_reasons({"fit": fit.filter(pod(cpu="3"), table)}) == {"Too many pods": 1, "Insufficient cpu": 2}


def test_nominated_pods_of_higher_priority_take_room():
    """A pod that is nominated to a node counts there for pods of the same or a lower priority."""
    table = NodeTable([node("a")])
    table.nominate(pod("urgent", cpu="2", priority=5), "a")
    assert reasons(NodeResourcesFit(), pod(cpu="3"), table) == ["Insufficient cpu"]
    assert reasons(NodeResourcesFit(), pod(cpu="3", priority=6), table) == [""]
