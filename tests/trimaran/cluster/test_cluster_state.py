"""State of a cluster after any updates in any order, compared with a fresh table."""

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from scoring import Container, Node, NodeTable, Pod, ResourceList
from trimaran.cluster.state import ClusterState

NODES = ("node-1", "node-2", "node-3")
UIDS = ("uid-1", "uid-2", "uid-3", "uid-4")
ASSUME_SECONDS = 30.0


def node(name: str, milli: int) -> Node:
    """Return a node with this CPU capacity in millicores."""
    amounts = ResourceList({"cpu": milli, "memory": 1024})
    return Node(name, amounts, amounts)


def pod(uid: str, milli: int = 100, node_name: str = "", nominated: str = "") -> Pod:
    """Return a pod that requests this CPU in millicores."""
    containers = (Container(ResourceList({"cpu": milli})),)
    return Pod(name=uid, uid=uid, containers=containers, node_name=node_name, nominated_node_name=nominated)


class Cluster(RuleBasedStateMachine):
    """State machine of random cluster changes, reported at once or only by the next full list."""

    @initialize()
    def begin(self) -> None:
        self.state = ClusterState(ASSUME_SECONDS)
        self.nodes: dict[str, Node] = {}
        self.pods: dict[str, Pod] = {}
        self.assumed: dict[str, tuple[str, float]] = {}
        self.now = 0.0

    @rule(name=st.sampled_from(NODES), milli=st.sampled_from((1000, 2000)))
    def a_node_is_put(self, name: str, milli: int) -> None:
        self.nodes[name] = node(name, milli)
        self.state.put_node(self.nodes[name])

    @rule(name=st.sampled_from(NODES))
    def a_node_is_deleted(self, name: str) -> None:
        self.nodes.pop(name, None)
        self.state.drop_node(name)
        self.assumed = {uid: each for uid, each in self.assumed.items() if each[0] != name}

    @rule(uid=st.sampled_from(UIDS), milli=st.sampled_from((100, 200)), refused=st.booleans(),
          nominated=st.sampled_from(("", *NODES)))  # fmt: skip
    def a_pod_is_pending(self, uid: str, milli: int, refused: bool, nominated: str) -> None:
        if uid in self.pods and self.pods[uid].node_name:
            return  # a binding is final
        self.pods[uid] = pod(uid, milli, nominated=nominated)
        self.state.put_pod(self.pods[uid], refused=refused)
        if refused:
            self.assumed.pop(uid, None)

    @rule(uid=st.sampled_from(UIDS), node_name=st.sampled_from(NODES))
    def a_pod_is_bound(self, uid: str, node_name: str) -> None:
        before = self.pods.get(uid)
        self.pods[uid] = pod(uid, node_name=before.node_name if before and before.node_name else node_name)
        self.state.put_pod(self.pods[uid])
        self.assumed.pop(uid, None)

    @rule(uid=st.sampled_from(UIDS))
    def a_pod_is_deleted(self, uid: str) -> None:
        self.pods.pop(uid, None)
        self.state.drop_pod(uid)
        self.assumed.pop(uid, None)

    @rule(uid=st.sampled_from(UIDS), node_name=st.sampled_from(NODES))
    def a_pod_is_assumed(self, uid: str, node_name: str) -> None:
        known = self.pods.get(uid)
        if known is None or known.node_name:
            return  # the scheduler asks about pending pods
        self.state.assume(known, node_name, self.now)
        if node_name in self.nodes:
            self.assumed[uid] = (node_name, self.now)

    @rule(uid=st.sampled_from(UIDS))
    def a_scheduler_asks_again(self, uid: str) -> None:
        self.state.retry(uid)
        self.assumed.pop(uid, None)

    @rule(seconds=st.sampled_from((1.0, 20.0, 40.0)))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.state.expire(self.now)
        self.assumed = {uid: each for uid, each in self.assumed.items() if self.now - each[1] < ASSUME_SECONDS}

    @rule(missed_nodes=st.sets(st.sampled_from(NODES)), missed_pods=st.sets(st.sampled_from(UIDS)))
    def a_full_list_shows_missed_deletes(self, missed_nodes: set[str], missed_pods: set[str]) -> None:
        for name in missed_nodes:
            self.nodes.pop(name, None)
        for uid in missed_pods:
            self.pods.pop(uid, None)
        gone = {uid for uid, (name, _) in self.assumed.items() if name in missed_nodes}
        self.assumed = {uid: each for uid, each in self.assumed.items() if uid not in missed_pods | gone}
        self.state.replace_nodes(self.nodes.values())
        self.state.replace_pods([(each, False) for each in self.pods.values()])

    @invariant()
    def the_table_equals_a_fresh_one(self) -> None:
        if not hasattr(self, "state"):
            return
        expected = NodeTable(sorted(self.nodes.values(), key=lambda each: each.name))
        for uid, each in self.pods.items():
            if each.node_name in self.nodes:
                expected.add(each)
            elif uid in self.assumed:
                expected.assume(each, self.assumed[uid][0])
            elif not each.node_name and each.nominated_node_name in self.nodes:
                expected.nominate(each)
        found = self.state.table
        assert sorted(found.names) == list(expected.names)
        rows = found.rows_of(expected.names)
        for of in (NodeTable.capacity, NodeTable.requests, NodeTable.in_tree_requests):
            np.testing.assert_array_equal(of(found, "cpu")[rows], of(expected, "cpu"))
        for name in expected.names:
            assert {each.uid for each in found.pods(name)} == {each.uid for each in expected.pods(name)}
        np.testing.assert_array_equal(found.nominated_counts[rows], expected.nominated_counts)
        assert set(self.state.pending) == {uid for uid, each in self.pods.items() if not each.node_name}
        assert len(self.state.assumptions) == len(self.assumed)


TestCluster = pytest.mark.filterwarnings("error")(Cluster.TestCase)
TestCluster.settings = settings(max_examples=3 * settings.default.max_examples, stateful_step_count=40)


def test_each_assumption_has_one_outcome() -> None:
    """Each assumption ends as a hit, a miss, dropped or expired, and a new one for its pod replaces it."""
    state = ClusterState(ASSUME_SECONDS)
    state.replace_nodes([node("node-1", 1000), node("node-2", 1000)])
    for number, advised in enumerate(("node-2", "node-1", "node-1", "node-1", "node-1")):
        state.assume(pod(f"uid-{number}"), advised, 0.0)
    state.assume(pod("uid-0"), "node-1", 1.0)
    assert state.table.pod_counts.tolist() == [5, 0]
    state.put_pod(pod("uid-0", node_name="node-1"))
    state.put_pod(pod("uid-1", node_name="node-2"))
    state.put_pod(pod("uid-2"), refused=True)
    state.drop_pod("uid-3")
    state.expire(29.9)
    assert len(state.assumptions) == 1
    state.expire(30.0)
    state.assume(pod("uid-0"), "node-2", 30.0)  # the binding to node-1 was reported first
    outcomes = state.assumptions.outcomes
    assert (outcomes.hits, outcomes.misses, outcomes.dropped, outcomes.expired) == (1, 2, 2, 1)
    assert state.table.pod_counts.tolist() == [1, 1]
