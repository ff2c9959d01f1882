"""Tables of nodes: columns, pods that come and go, transactions."""

import pickle
from dataclasses import replace

import numpy as np
import pytest

from runtime.kubernetes.constraints import NodeRequirement
from runtime.kubernetes.objects import CachedRequests
from runtime.kubernetes.scheduling_rules import LabelSelector
from scoring import Container, Node, NodeTable, Pod, ResourceList
from scoring.table.placed_rules import PodCriterion


def node(name, cpu=4000, **more):
    return Node(name, ResourceList({"cpu": cpu, **more}), ResourceList({"cpu": cpu - 100, **more}))


def pod(name, cpu=500, **fields):
    return Pod(name=name, containers=(Container(ResourceList({"cpu": cpu})),), **fields)


@pytest.fixture
def nodes():
    return NodeTable([node("a"), node("b", cpu=8000)], [pod("p1", node_name="a"), pod("p2", node_name="b")])


def sums(nodes):
    kinds = [nodes.requests, nodes.limits, nodes.in_tree_requests]
    columns = [kind(resource) for kind in kinds for resource in nodes.resources]
    columns += [nodes.in_tree_requests("cpu", non_zero=True), nodes.in_tree_requests("memory", non_zero=True)]
    return np.array([*columns, nodes.pod_counts, nodes.terminating_counts, nodes.nominated_counts])


def test_columns_follow_the_nodes(nodes):
    """Rows have the given order, unlisted resources are zero, and views are read-only."""
    assert nodes.names == ("a", "b")
    assert nodes.capacity("cpu").tolist() == [4000, 8000]
    assert nodes.allocatable("cpu").tolist() == [3900, 7900]
    assert nodes.allocatable("nvidia.com/gpu").tolist() == [0, 0]
    with pytest.raises(ValueError, match="read-only"):
        nodes.allocatable("cpu")[0] = 1


def test_kubernetes_lists_are_read():
    """List objects, iterables, dicts with items and a single node give the same table; a null list is empty."""
    described = {"metadata": {"name": "a"}, "status": {"allocatable": {"cpu": "2"}}}
    running = {
        "metadata": {"name": "p"},
        "spec": {"nodeName": "a", "containers": [{"resources": {"requests": {"cpu": 1}}}]},
    }
    items = {"items": [described]}
    node_list = type("NodeList", (), items)
    for listed in ([described], iter([described]), described, items, {"kind": "NodeList", **items}, node_list):
        pods = [running] if listed is items else {"kind": "PodList", "items": [running]}
        table = NodeTable.from_k8s(listed, pods)
        assert (table.names, table.pod_counts.tolist()) == (("a",), [1])
        assert (table.allocatable("cpu").tolist(), table.requests("cpu").tolist()) == ([2000], [1000])
    assert len(NodeTable.from_k8s({"kind": "NodeList", "items": None})) == 0


def test_duplicate_node_names_are_refused():
    """Two nodes of the same name raise an error."""
    with pytest.raises(ValueError, match="'a'"):
        NodeTable([node("a"), node("a")])


def test_manifests_in_place_of_objects_are_named():
    """A manifest, or a pod in place of a node, is an error with the function that reads manifests."""
    with pytest.raises(TypeError, match=r"NodeTable\.from_k8s"):
        NodeTable([{"metadata": {"name": "a"}}])
    with pytest.raises(TypeError, match=r"nodes: .* Pod"):
        NodeTable([pod("a")])
    with pytest.raises(TypeError, match="pods: "):
        NodeTable([node("a")], [{"metadata": {"name": "a"}}])


def test_only_running_pods_of_these_nodes_count():
    """Finished pods, pending pods and pods on other nodes are not counted; nominated pods are counted as nominated."""
    others = [
        pod("done", node_name="a", finished=True),
        pod("pending"),
        pod("elsewhere", node_name="z"),
        pod("nominated", nominated_node_name="a"),
        pod("leaving", node_name="a", terminating=True),
    ]
    table = NodeTable([node("a")], others)
    assert table.requests("cpu").tolist() == [500]
    assert (table.pod_counts[0], table.terminating_counts[0], table.nominated_counts[0]) == (1, 1, 1)


def test_adding_and_removing_restores_every_sum(nodes):
    """Removing an added pod restores all sums."""
    before = sums(nodes)
    nodes.add(pod("p3", cpu=700, terminating=True), "b")
    assert not np.array_equal(sums(nodes), before)
    nodes.remove(pod("p3"))
    assert np.array_equal(sums(nodes), before)


def test_pods_with_cached_requests_count_like_others():
    """Cached requests give the same sums in tables with any resources, for terminating and other pods."""
    containers = (Container(ResourceList({"cpu": 500, "gpu": 2}), ResourceList({"cpu": 700})),)
    shared = CachedRequests()
    for known in (None, shared), (shared, None), (shared, shared):
        tables = [NodeTable([node("a", **more)]) for more in ({"gpu": 4}, {}, {"gpu": 4, "tpu": 1})]
        for table in tables * 2:
            before = sums(table)
            pods = [
                Pod(name=str(number), containers=containers, terminating=number == 1, cached_requests=each)
                for number, each in enumerate(known)
            ]
            for each in pods:
                table.add(each, "a")
            assert (table.in_tree_requests("cpu").item(), table.limits("cpu").item()) == (1000, 1400)
            assert table.requests("gpu").item() == (4 if "gpu" in table.resources else 0)
            assert (table.pod_counts.item(), table.terminating_counts.item()) == (2, 1)
            assert not table.feasible(pods[0]).any()
            for each in pods:
                table.remove(each)
            assert np.array_equal(sums(table), before)


def test_a_cached_change_of_another_table_is_not_used():
    """A cache that another thread overwrites for its own table does not affect the sums."""
    theirs, ours = (NodeTable([node("a", **more)]) for more in ({"gpu": 4, "tpu": 1}, {}))

    class RacingCache(CachedRequests):
        """Cache that another thread overwrites for its own table after two reads."""

        @property
        def node_change(self):
            self.reads += 1
            return self.own_change if self.reads <= 2 else first.node_change

        @node_change.setter
        def node_change(self, change):
            self.own_change, self.reads = change, 0

    first = CachedRequests()
    theirs.add(Pod(name="theirs", cached_requests=first), "a")
    shared = RacingCache()
    ours.add(Pod(name="one", cached_requests=shared), "a")
    ours.add(Pod(name="two", cached_requests=shared), "a")
    assert ours.pod_counts.item() == 2


def test_a_bound_pod_replaces_its_assumption_as_if_it_had_been_added_at_once():
    """Sums, order, newest placement and label index equal those of a table without the assumption."""
    shared, app = CachedRequests(), LabelSelector((NodeRequirement("app", "In", ("web",)),))
    pods = [
        pod(name, cached_requests=shared, labels={"app": "web"}, node_name="a", scheduled_at=at)
        for name, at in (("late", 9.0), ("first", 5.0), ("second", 5.0), ("unknown", None))
    ]
    assumed, plain = NodeTable([node("a")]), NodeTable([node("a")])
    for each in pods:
        assumed.assume(replace(each, node_name=""), "a")
    assert assumed.placed_rules.pods_matching([PodCriterion(app, None)]).tolist() == [4]
    for each in pods:
        assumed.add(each)
        plain.add(each)
    assert assumed.pods("a") == plain.pods("a")
    assert assumed.newest.tolist() == plain.newest.tolist() == [9.0]
    assert np.array_equal(sums(assumed), sums(plain))
    assumed.add(replace(pods[0], labels={"app": "db"}))
    assert assumed.placed_rules.pods_matching([PodCriterion(app, None)]).tolist() == [3]
    assumed.add(replace(pods[1], terminating=True))
    assert assumed.terminating_counts.tolist() == [1]


def test_a_pod_counts_once(nodes):
    """Adding a counted pod again, with other requests or on another node, moves it."""
    nodes.assume(pod("p3", cpu=1000), "a")
    nodes.add(pod("p3", cpu=600, node_name="b", scheduled_at=5.0))
    assert nodes.requests("cpu").tolist() == [500, 1100]
    assert [p.name for p in nodes.pods("b")] == ["p2", "p3"]
    assert [placed.placed_at for _, placed in nodes.placed_pods()] == [float("-inf"), float("-inf"), 5.0]


def test_adding_a_finished_pod_removes_it(nodes):
    """A counted pod is no longer counted once it has finished; an uncounted finished pod changes nothing."""
    nodes.add(pod("p1", node_name="a", finished=True))
    nodes.add(pod("p9", node_name="b", finished=True))
    assert nodes.requests("cpu").tolist() == [0, 500]
    assert nodes.pod_counts.tolist() == [0, 1]


def test_unknown_nodes_and_pods_are_refused(nodes):
    """Adding to an unknown node and removing an uncounted pod raise errors with the name."""
    with pytest.raises(KeyError, match="'z'"):
        nodes.assume(pod("p3"), "z")
    with pytest.raises(KeyError, match="default/p9"):
        nodes.remove(pod("p9"))


def test_changed_rows_are_reported(nodes):
    """The rows that changed after a version are exactly those modified since."""
    version = nodes.version
    assert nodes.changed_rows(version).tolist() == []
    nodes.assume(pod("p3"), "b")
    assert nodes.changed_rows(version).tolist() == [1]


def test_a_transaction_commits_all_changes(nodes):
    """Changes of the plan apply to the table when the block ends, not before."""
    before = sums(nodes)
    with nodes.transaction() as plan:
        plan.assume(pod("p3"), "a")
        plan.remove(pod("p2"))
        assert plan.requests("cpu").tolist() == [1000, 0]
        assert np.array_equal(sums(nodes), before)
    assert nodes.requests("cpu").tolist() == [1000, 0]
    assert [p.name for p in nodes.pods("a")] == ["p1", "p3"]
    with pytest.raises(KeyError):
        nodes.remove(pod("p2"))
    nodes.remove(pod("p3"))


def test_a_transaction_rolls_back(nodes):
    """An exception in the block discards all changes and propagates."""
    before = sums(nodes)
    with pytest.raises(ZeroDivisionError), nodes.transaction() as plan:
        plan.assume(pod("p3"), "a")
        plan.remove(pod("p1"))
        1 / 0  # noqa: B018
    assert np.array_equal(sums(nodes), before)
    assert [p.name for p in nodes.pods("a")] == ["p1"]
    nodes.remove(pod("p1"))


def test_transactions_nest(nodes):
    """A failed inner transaction discards only its own changes."""
    with nodes.transaction() as plan:
        plan.assume(pod("p3"), "a")
        with pytest.raises(ZeroDivisionError), plan.transaction() as inner:
            inner.assume(pod("p4"), "a")
            1 / 0  # noqa: B018
        with plan.transaction() as inner:
            inner.remove(pod("p1"))
    assert [p.name for p in nodes.pods("a")] == ["p3"]


def test_a_plan_on_a_changed_table_is_refused(nodes):
    """A commit fails with an error if the table changed during the transaction."""
    with pytest.raises(RuntimeError, match="transaction"), nodes.transaction() as plan:
        plan.assume(pod("p3"), "a")
        nodes.remove(pod("p2"))
    assert nodes.requests("cpu").tolist() == [500, 0]


def test_a_committed_plan_is_independent_of_the_table(nodes):
    """Writing to a plan after its block does not change the table."""
    with nodes.transaction() as plan:
        plan.assume(pod("p3"), "a")
    plan.assume(pod("p4"), "a")
    assert nodes.requests("cpu").tolist() == [1000, 500]


def test_rows_can_be_taken(nodes):
    """A table of some rows has their columns and pods, in the given order."""
    selected = nodes.take(np.array([1]))
    assert selected.names == ("b",)
    assert selected.capacity("cpu").tolist() == [8000]
    assert [p.name for p in selected.pods("b")] == ["p2"]


def test_a_nomination_ends_when_the_pod_is_placed(nodes):
    """A pod counts as nominated until it is placed, nominated to another node or removed."""
    nominated = pod("p3", nominated_node_name="a")
    nodes.nominate(nominated)
    nodes.nominate(nominated, "b")
    assert nodes.nominated_counts.tolist() == [0, 1]
    with nodes.transaction() as plan:
        plan.assume(nominated, "a")
        assert plan.nominated_counts.tolist() == [0, 0]
        assert nodes.nominated_counts.tolist() == [0, 1]
    assert nodes.nominated_counts.tolist() == [0, 0]
    nodes.nominate(pod("p4"), "a")
    nodes.remove(pod("p4"))
    assert nodes.nominated_counts.tolist() == [0, 0]


def test_tables_can_be_pickled(nodes):
    """A table and a plan are equal after pickling."""
    nodes.nominate(pod("p3"), "a")
    with nodes.transaction() as plan:
        plan.assume(pod("p5"), "b")
        for table in (nodes, plan):
            received = pickle.loads(pickle.dumps(table))
            assert np.array_equal(sums(received), sums(table))
            assert received.pods("b") == table.pods("b")
            received.remove(pod("p2"))


@pytest.mark.parametrize(
    ("nodes", "pods", "message"),
    [
        ({"kind": "PodList", "items": []}, [], "expected Node objects"),
        ([{"kind": "Pod", "metadata": {"name": "p"}}], [], "p: expected a Node"),
        ([{"metadata": {"name": "p"}, "spec": {"containers": [{}]}}], [], "p: expected a Node"),
        ([], [{"kind": "Deployment", "metadata": {"name": "web"}}], "web: expected a Pod"),
        ([], {"kind": "NodeList"}, "expected Pod objects"),
        ("nodes.yaml", [], "expected Node objects"),
        (None, [], "expected Node objects"),
    ],
)
def test_a_table_of_other_objects_is_refused(nodes, pods, message):
    """Pods do not become nodes without resources, and a workload is not left out as a pending pod."""
    with pytest.raises(ValueError, match=message):
        NodeTable.from_k8s(nodes, pods)
