"""NodeResourceTopologyMatch: what a recording of upstream cannot show; see ``test_plugin_vectors``."""

import numpy as np
import pytest
from control_plane.manifests import Object, container, node
from control_plane.manifests import pod as manifest
from support.configured import SCHEDULER, Configured, outcomes, profile

from runtime.kubernetes.objects import Node, Pod
from scoring import MetricsTable
from trimaran.scheduler.plugins.numa.node_topology import NodeTopology

KIND = "NodeResourceTopology"


def guaranteed(name: str, *cores: str, **spec: object) -> Object:
    """Return a Guaranteed pod with a container for each amount of CPU."""
    made = []
    for number, each in enumerate(cores):
        amounts = {"cpu": each, "memory": "1Gi"}
        made.append(container(f"c{number}", requests=amounts, limits=amounts))
    pod = manifest(name, *made, schedulerName=SCHEDULER, **spec)
    pod["metadata"]["uid"] = name
    return pod


def topology(name: str, *cores: str, written: str = "", **attributes: str) -> tuple[str, Object]:
    """Return a topology with a NUMA node for each amount of free CPU, and 8 GiB in each."""
    attributes = {"topologyManagerPolicy": "single-numa-node", "topologyManagerScope": "container", **attributes}
    zones = [
        {
            "name": f"node-{number}", "type": "Node",
            "resources": [{"name": "cpu", "available": each}, {"name": "memory", "available": "8Gi"}],
        }
        for number, each in enumerate(cores)
    ]  # fmt: skip
    metadata: Object = {"name": name}
    if written:
        metadata["managedFields"] = [{"time": written}]
    listed = [{"name": key, "value": value} for key, value in attributes.items()]
    return KIND, {"metadata": metadata, "attributes": listed, "zones": zones}


def cluster(*topologies: tuple[str, Object], **args: object) -> Configured:
    chosen = profile("NodeResourceTopologyMatch", "filter", "score", "reserve", "postBind", args=args)
    return Configured(chosen, [node(name, "16", "64Gi") for name in ("a", "b")], topologies)


def test_each_container_needs_a_numa_node_of_its_own_size() -> None:
    """Two containers of three cores fit into two NUMA nodes of four, not into one of seven."""
    machine = cluster(topology("a", "4", "4"), topology("b", "5"))
    assert machine.place(guaranteed("pair", "3", "3"))["pair"] == "a"
    message = machine.place(guaranteed("large", "6"))["large"]
    assert "cannot align container" in message


def test_the_pod_as_a_whole_needs_one_numa_node_where_the_scope_is_pod() -> None:
    """The sum of the containers counts."""
    by_pod = {"topologyManagerScope": "pod"}
    machine = cluster(topology("a", "4", "4", **by_pod), topology("b", "4", **by_pod))
    assert "cannot align pod" in machine.place(guaranteed("pair", "3", "3"))["pair"]


def test_other_policies_and_nodes_without_a_topology_take_any_pod() -> None:
    """Only single-numa-node refuses."""
    machine = cluster(topology("a", "1", topologyManagerPolicy="restricted"))
    assert machine.place(guaranteed("one", "6"), guaranteed("two", "6"))["two"] in {"a", "b"}


@pytest.mark.parametrize("strategy", ["LeastAllocated", "MostAllocated", "BalancedAllocation", "LeastNUMANodes"])
def test_amounts_of_any_size_are_compared_and_scored(strategy: str) -> None:
    """Zones and pods of 9E, together more than 64 bits, and zones with odd amounts do not stop the pods."""
    odd = topology("b", "-1", "1e1.5", "1e30")
    odd[1]["zones"][0]["costs"] = [{"name": f"node-{number}", "value": 2**63 - 1} for number in range(3)]
    machine = cluster(topology("a", "9E", "9E"), odd, scoringStrategy={"type": strategy})
    huge = guaranteed("huge", "9E", "9E", "9E")
    made = machine.place(guaranteed("small", "2"), huge, guaranteed("two", "1", "1"))
    assert made["small"] in {"a", "b"}
    assert made["two"] in {"a", "b"}
    assert "nodes are available" in made["huge"]


def test_a_topology_that_comes_later_counts() -> None:
    """Upstream ignores a topology that is made after the start (issue 967); here it also requeues the pod.

    So does one that is deleted.
    """
    machine = cluster(topology("a", "1"), topology("b", "1"))
    assert "cannot align" in machine.place(guaranteed("pod", "4"))["pod"]
    machine.scheduler.put_other(*topology("b", "8"), machine.now)
    assert outcomes(machine.decide(10.0)) == {"pod": "b"}
    assert "cannot align" in machine.place(guaranteed("large", "12"))["large"]
    machine.scheduler.drop_other(*topology("a", "1"), machine.now)
    assert outcomes(machine.decide(10.0)) == {"large": "a"}


def test_pods_that_the_topology_does_not_know_yet_count_in_every_numa_node() -> None:
    """With cacheResyncPeriodSeconds, a placed pod is taken off until the topology is written after its start."""
    old = "2026-01-01T00:00:00Z"
    machine = cluster(topology("a", "4", written=old), topology("b", "1", written=old), cacheResyncPeriodSeconds=5)
    first = guaranteed("first", "3")
    assert machine.place(first)["first"] == "a"
    assert "cannot align" in machine.place(guaranteed("second", "3"))["second"]
    machine.put({**first, "status": {"startTime": "2026-01-01T00:01:00Z"}}, node="a")
    machine.scheduler.put_other(*topology("a", "4", written="2026-01-01T00:01:03Z"), machine.now)
    assert "cannot align" in outcomes(machine.decide(10.0))["second"]  # written too soon after the start to be sure
    machine.scheduler.put_other(*topology("a", "3", written="2026-01-01T00:01:09Z"), machine.now)
    assert outcomes(machine.decide(10.0)) == {"second": "a"}


@pytest.mark.parametrize("annotated", [False, True])
def test_a_fingerprint_tells_which_pods_the_topology_knows(*, annotated: bool) -> None:
    """No time has to pass after the start of a pod; older agents write the fingerprint as an annotation."""
    time = "2026-01-01T00:01:00Z"
    machine = cluster(topology("a", "4", written=time), topology("b", "1", written=time), cacheResyncPeriodSeconds=5)
    machine.put({**guaranteed("first", "3"), "status": {"startTime": time}}, node="a")
    assert "cannot align" in machine.place(guaranteed("second", "3"))["second"]
    signed = "pfp0v00152c71b5f11be50fc"  # of default/first
    if annotated:
        kind, written = topology("a", "3", written=time)
        written["metadata"]["annotations"] = {"topology.node.k8s.io/fingerprint": signed}
    else:
        kind, written = topology("a", "3", written=time, nodeTopologyPodsFingerprint=signed)
    machine.scheduler.put_other(kind, written, machine.now)
    assert outcomes(machine.decide(10.0)) == {"second": "a"}


def test_without_the_cache_a_topology_is_taken_as_it_is() -> None:
    """That is upstream's default; two pods may get the same cores, and kubelet refuses one."""
    machine = cluster(topology("a", "4"), topology("b", "1"))
    made = machine.place(guaranteed("first", "3"), guaranteed("second", "3"))
    assert made == {"first": "a", "second": "a"}


def test_a_node_with_a_reservation_is_refused_if_that_is_configured() -> None:
    """From the placement of a pod until it is bound."""
    machine = cluster(topology("a", "4"), topology("b", "1"), discardReservedNodes=True)
    made = machine.place(guaranteed("first", "2"), guaranteed("second", "2"))
    assert made["first"] == "a"
    assert made["second"] != "a"


def test_an_init_container_is_aligned_alone() -> None:
    """It runs before the others, so its request is not added to theirs."""
    amounts = {"cpu": "4", "memory": "1Gi"}
    init = [container("first", requests=amounts, limits=amounts)]
    machine = cluster(topology("a", "4"), topology("b", "3"))
    assert machine.place(guaranteed("pod", "2", initContainers=init))["pod"] == "a"
    machine = cluster(topology("a", "3"), topology("b", "3"))
    assert "cannot align init container" in machine.place(guaranteed("pod", "2", initContainers=init))["pod"]


def test_one_resource_is_balanced_with_itself() -> None:
    """The sample variance of one share is not a number; upstream's score then leaves the valid range."""
    args = {"scoringStrategy": {"type": "BalancedAllocation"}}
    machine = cluster(topology("a", "4"), topology("b", "4"), **args)
    plugin = next(
        each.plugin for each in machine.setup.profiles[0].scores.plugins if each.plugin.name == KIND + "Match"
    )
    pod = guaranteed("pod", "2")
    del pod["spec"]["containers"][0]["resources"]["requests"]["memory"]
    del pod["spec"]["containers"][0]["resources"]["limits"]["memory"]
    pod["status"] = {"qosClass": "Guaranteed"}
    table = machine.scheduler.state.table
    assert plugin.score(Pod.from_k8s(pod), table, MetricsTable.empty(table)).tolist() == [100, 100]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({"scoringStrategy": {"type": "Best"}}, r"scoringStrategy\.type: must be one of LeastAllocated"),
        ({"scoringStrategy": {"resources": [{"name": "cpu", "weight": 0}]}}, r"resources\[0\]\.weight"),
        ({"cache": {"resyncMethod": "Never"}}, r"cache\.resyncMethod: "),
        ({"cacheResyncPeriodSeconds": -1}, "cacheResyncPeriodSeconds: "),
        ({"discardReservedNodes": "yes"}, "discardReservedNodes: "),
        ({"scoring": {}}, "scoring"),
    ],
)
def test_wrong_arguments_are_errors_that_name_the_key(args: dict[str, object], message: str) -> None:
    """Words, numbers and keys are checked."""
    with pytest.raises(ValueError, match=message):
        cluster(**args)


def test_the_arrays_follow_nodes_that_come_and_go() -> None:
    """A node that joins with more NUMA nodes than any before, and one that leaves."""
    machine = cluster(topology("a", "1"), topology("b", "1"))
    assert "cannot align" in machine.place(guaranteed("pod", "4", "4", "4"))["pod"]
    machine.scheduler.put_other(*topology("c", "4", "4", "4"), machine.now)
    machine.scheduler.put_node(Node.from_k8s(node("c", "16", "64Gi")), machine.now)
    assert outcomes(machine.decide(10.0)) == {"pod": "c"}
    machine.scheduler.drop_node("a")
    assert "cannot align" in machine.place(guaranteed("next", "8"))["next"]
    assert np.array_equal(machine.scheduler.state.table.names, ("b", "c"))


def test_a_part_of_a_unit_is_not_free() -> None:
    """Half a millicore less than a pod requests is too little."""
    machine = cluster(topology("a", "999.5m"), topology("b", "999.5m"))
    assert "cannot align" in machine.place(guaranteed("one", "1"))["one"]
    assert machine.place(guaranteed("less", "999m"))["less"] in {"a", "b"}


@pytest.mark.parametrize(
    ("name", "number"),
    [("node-+9", 9), ("node-" + "0" * 5000 + "9", 9), ("node-\u0669", None), ("node--1", None), ("node-64", None)],
)
def test_a_zone_has_the_number_that_go_reads(name: str, number: int | None) -> None:
    """A sign and leading zeros are valid, digits of other scripts are not; a zone without a number is none."""
    read = NodeTopology.from_k8s({"metadata": {"name": "n"}, "zones": [{"name": name, "type": "Node"}]})
    assert [zone.number for zone in read.zones] == ([] if number is None else [number])
