"""NetworkOverhead and TopologicalSort: what a recording of upstream cannot show; see ``test_plugin_vectors``."""

import pytest
from control_plane.manifests import Object, node
from support.configured import Configured, outcomes, pod, profile

from runtime.kubernetes.objects import Pod
from scoring import MetricsTable

GROUP = "appgroup.diktyo.x-k8s.io"
REGION, ZONE = "topology.kubernetes.io/region", "topology.kubernetes.io/zone"


def member(name: str, workload: str, priority: int = 0) -> Object:
    return pod(name, priority=priority, labels={GROUP: "shop", f"{GROUP}.workload": workload})


def app_group(most: int = 5) -> tuple[str, Object]:
    """Return an AppGroup in which the workload ``web`` depends on ``db``."""
    workloads = [
        {"workload": {"selector": "web"}, "dependencies": [{"workload": {"selector": "db"}, "maxNetworkCost": most}]},
        {"workload": {"selector": "db"}},
    ]
    order = [{"workload": {"selector": "db"}, "index": 1}, {"workload": {"selector": "web"}, "index": 2}]
    metadata = {"name": "shop", "namespace": "default"}
    return "AppGroup", {"metadata": metadata, "spec": {"workloads": workloads}, "status": {"topologyOrder": order}}


def topology(cost: int = 3, name: str = "nt-default") -> tuple[str, Object]:
    """Return a NetworkTopology with a cost from zone ``z1`` to ``z2``."""
    origins = [{"origin": "z1", "costList": [{"destination": "z2", "networkCost": cost}]}]
    weights = [{"name": "UserDefined", "topologyList": [{"topologyKey": ZONE, "originList": origins}]}]
    return "NetworkTopology", {"metadata": {"name": name, "namespace": "default"}, "spec": {"weights": weights}}


def cluster(*others: tuple[str, Object], **args: object) -> Configured:
    chosen = profile("NetworkOverhead", "preFilter", "filter", "score", args=args)
    nodes = [node(name, labels={REGION: "r", ZONE: zone}) for name, zone in (("a", "z1"), ("b", "z2"))]
    return Configured(chosen, nodes, others)


def test_a_missing_object_is_a_message_and_its_creation_releases_the_pod() -> None:
    """Upstream reads a nil pointer; no node is bought for such a pod."""
    machine = cluster()
    assert "AppGroup shop does not exist" in machine.place(member("web", "web"))["web"]
    machine.scheduler.put_other(*app_group(), machine.now)
    assert "NetworkTopology nt-default does not exist" in outcomes(machine.decide(10.0))["web"]
    machine.scheduler.put_other(*topology(), machine.now)
    assert outcomes(machine.decide(10.0))["web"] in {"a", "b"}


def test_pods_without_a_group_need_neither() -> None:
    """They are placed as ever."""
    assert cluster().place(pod("alone"))["alone"] in {"a", "b"}


@pytest.mark.parametrize(("most", "placed"), [(3, True), (2, False)])
def test_a_dependency_that_costs_too_much_refuses_the_node(most: int, *, placed: bool) -> None:
    """The database is in z2; a node in z1 is refused from a cost above the largest allowed one."""
    machine = cluster(app_group(most), topology(3))
    machine.put(member("db", "db"), node="b")
    machine.scheduler.drop_node("b")
    machine = cluster(app_group(most), topology(3))
    machine.put(member("db", "db"), node="b")
    table = machine.scheduler.state.table
    plugin = next(each for each in machine.setup.profiles[0].filters if each.name == "NetworkOverhead")
    verdict = plugin.filter(Pod.from_k8s(member("web", "web")), table)
    assert verdict is not None
    assert verdict.allowed.tolist() == [placed, True]
    if not placed:
        assert "Satisfied: 0 Violated: 1" in verdict.reasons(0)[0]


def test_assumed_pods_count_as_placed() -> None:
    """The second pod sees the first before the API server does; upstream waits for its watch."""
    machine = cluster(app_group(), topology())
    made = machine.place(member("db", "db", 1), member("web", "web"))
    assert made["db"] == made["web"]


def test_objects_that_change_count_at_once() -> None:
    """A new cost, a new label of a node, and a pod that leaves."""
    machine = cluster(app_group(), topology(3))
    machine.put(member("db", "db"), node="b")
    table = machine.scheduler.state.table
    plugin = next(
        each.plugin for each in machine.setup.profiles[0].scores.plugins if each.plugin.name == "NetworkOverhead"
    )
    web = Pod.from_k8s(member("web", "web"))

    def costs() -> list[int]:
        return plugin.score(web, table, MetricsTable.empty(table)).tolist()

    assert costs() == [3, 0]
    machine.scheduler.put_other(*topology(5), machine.now)
    assert costs() == [5, 0]
    machine.scheduler.drop_pod("db", machine.now)
    assert costs() == [0, 0]


def test_the_order_of_the_queue_is_priority_then_the_application_then_its_order() -> None:
    """Pods of an application stay together; upstream looks at their order before their priority."""
    chosen = profile("TopologicalSort", "queueSort", without={"queueSort": ["*"]})
    machine = Configured(chosen, [node("n")], [app_group()])
    for each in (member("web", "web"), pod("alone"), member("db", "db"), pod("urgent", priority=1)):
        machine.put(each)
        machine.now += 1.0
    assert [each.pod.name for each in machine.decide()] == ["urgent", "db", "web", "alone"]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({"namespaces": []}, "namespaces: must be a list of at least one name"),
        ({"weightsName": ""}, "weightsName"),
        ({"networkTopologyName": 3}, "networkTopologyName"),
        ({"topology": "x"}, "topology"),
    ],
)
def test_wrong_arguments_are_errors_that_name_the_key(args: dict[str, object], message: str) -> None:
    """Lists, texts and keys are checked."""
    with pytest.raises(ValueError, match=message):
        cluster(**args)
