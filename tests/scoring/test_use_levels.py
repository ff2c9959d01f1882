"""Expected use: sums by workload or owner equal the sums over the current pods, after any sequence of changes."""

from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.kubernetes import pod_demand
from runtime.kubernetes.objects import CPU, MEMORY, CachedRequests
from runtime.kubernetes.workloads import Owner, Workload
from scoring import CongestionCost, Container, Node, NodeTable, Pod, Profile, ResourceList, UseLevels
from watcher.model import Metric, NodeMetrics, WatcherMetrics, Window
from watcher.workload_table import WorkloadTable

GPU = "nvidia.com/gpu"
ROWS = 3
OWNERS = (None, Owner("ReplicaSet", "web"), Owner("ReplicaSet", "web", "uid"), Owner("Job", "web"), Owner("Job", "new"))
WORKLOADS = (None, Workload("default", "Deployment", "web"), Workload("default", "Deployment", "other"))
REQUESTS = ({CPU: 500, MEMORY: 1 << 30}, {CPU: 250, GPU: 1}, {MEMORY: 1 << 20}, {})
LEVELS = UseLevels.of(
    {OWNERS[1]: {CPU: 0.5}, OWNERS[3]: {CPU: 2.0, GPU: 0.25}}, {MEMORY: 0.75},
    {OWNERS[1]: {CPU: 0.5}, OWNERS[3]: {CPU: 0.125, MEMORY: 1.0}}, {CPU: 0.25},
)  # fmt: skip


def learned(*workloads: Workload, cores: float = 0.25, deviation: float = 0.125, level: float = 0.5) -> WorkloadTable:
    """Return a table in which each workload uses some cores and 1 MiB, and the first one of several half of that."""
    count = len(workloads)
    shares = np.array([1.0, 0.5] * count)[:count]
    return WorkloadTable(
        timestamp=0.0,
        workloads=workloads,
        use=np.outer([cores, 1 << 20], shares),
        deviations=np.outer([deviation, 1 << 18], shares),
        level=np.array([level, 0.75]),
        level_deviation=np.array([0.25, 0.125]),
        first_seen=np.zeros(count),
        last_seen=np.zeros(count),
        pods=np.ones(count),
        pod_minutes=np.ones(count),
    )


ALL_LEVELS = {"levels by owner": LEVELS, "learned use": UseLevels.of_workloads(learned(*WORKLOADS[1:]))}
# Each step: add or remove, the pod's number, its row, its owner, its workload and its requests.
steps = st.lists(
    st.tuples(
        st.booleans(), st.integers(0, 5), st.integers(0, ROWS - 1), st.sampled_from(OWNERS), st.sampled_from(WORKLOADS),
        st.sampled_from(REQUESTS),
    ),
    max_size=40,
)  # fmt: skip


def table() -> NodeTable:
    amounts = ResourceList({CPU: 8000, MEMORY: 1 << 34})
    return NodeTable([Node(f"node-{row}", amounts, amounts) for row in range(ROWS)])


def deviation(levels: UseLevels, pod: Pod, resource: str) -> float:
    return levels.deviation(pod.kin, resource, 1, pod_demand.requests(pod, resource))


def expected(levels: UseLevels, nodes: NodeTable, row: int, resource: str) -> tuple[float, float]:
    """Return mean and variance, computed by their definition."""
    pods = [placed.pod for placed in nodes.placed_on(row)]
    mean = sum(levels.expected_use(each, resource) for each in pods)
    deviations: dict[object, float] = defaultdict(float)
    for each in pods:
        deviations[each.kin or each.uid] += deviation(levels, each, resource)
    return mean, sum(value**2 for value in deviations.values())


@pytest.mark.parametrize("name", ALL_LEVELS)
@given(steps=steps)
def test_expected_use_of_nodes_is_the_sum_over_their_pods(name, steps):
    """Expected use is correct after pods came, went, moved and changed, with and without cached requests."""
    levels, nodes, known = ALL_LEVELS[name], table(), defaultdict(CachedRequests)
    for is_added, number, row, owner, workload, requests in steps:
        shared = known[tuple(requests.items())] if number % 2 else None
        pod = Pod(
            name=f"pod-{number}", owner=owner, workload=workload, cached_requests=shared,
            containers=(Container(ResourceList(requests)),),
        )  # fmt: skip
        if is_added:
            nodes.add(pod, f"node-{row}", float(number))
        elif nodes.find(pod) is not None:
            nodes.remove(pod)
        for resource in (CPU, MEMORY, GPU, "example.com/unused"):
            rows = np.array([2, 0, 1])
            mean, variance = levels.expected_on(nodes, rows, resource)
            wanted = [expected(levels, nodes, row, resource) for row in rows.tolist()]
            assert list(zip(mean, variance, strict=True)) == wanted
    for row in range(ROWS):
        pods = [placed.pod for placed in nodes.placed_on(row)]
        for kin, owned in nodes.owners_on(row).items():
            owner_pods = [each for each in pods if each.kin == kin]
            assert owned.count == len(owner_pods)
            for resource in (CPU, MEMORY, GPU):
                requested = sum(pod_demand.requests(each, resource) for each in owner_pods)
                assert owned.requests.get(resource, 0) == requested
        assert {each.kin for each in pods} - {None} == set(nodes.owners_on(row))
    check_rows_with(nodes)


def check_rows_with(nodes: NodeTable) -> None:
    """Check that the rows with pods of each owner are those whose pods have it."""
    for kin in (*OWNERS[1:], *WORKLOADS[1:]):
        rows = nodes.rows_with(kin).tolist()
        assert sorted(rows) == [row for row in range(len(nodes)) if kin in nodes.owners_on(row)]


def test_rows_with_pods_of_an_owner_follow_nodes_and_copies():
    """The rows are right after nodes left and joined, in a plan that is dropped, and in a part of the table."""
    nodes = table()
    for number, row in enumerate((0, 1, 1, 2, 0)):
        nodes.add(pod_of(WORKLOADS[1 + number % 2], name=f"pod-{number}"), f"node-{row}", 0.0)
    plan = nodes.copy()
    plan.remove(pod_of(WORKLOADS[1], name="pod-0"))
    plan.add(pod_of(WORKLOADS[1], name="pod-1"), "node-2", 0.0)
    part = nodes.take(np.array([2, 1]))
    part.remove_nodes(["node-1"])
    for each in (nodes, plan, part):
        check_rows_with(each)
    nodes.remove_nodes(["node-0"])
    nodes.add_nodes(table().nodes)
    check_rows_with(nodes)
    assert nodes.rows_with(WORKLOADS[1]).tolist() == [0]
    assert nodes.rows_with(OWNERS[1]).tolist() == []


@pytest.mark.parametrize(
    ("owner", "resource", "level", "deviation"),
    [
        (OWNERS[1], CPU, 0.5, 0.5), (OWNERS[2], CPU, 1.0, 0.25), (OWNERS[3], MEMORY, 0.75, 0.0), (None, CPU, 1.0, 0.25),
        (OWNERS[3], GPU, 0.25, 0.0), (OWNERS[1], GPU, 1.0, 0.0), (None, "example.com/unused", 1.0, 0.0),
    ],
)  # fmt: skip
def test_levels_match_kind_name_and_uid(owner, resource, level, deviation):
    """An owner is identified by kind, name and uid; all others have the default level and deviation, if any."""
    pod = Pod(owner=owner, containers=(Container(ResourceList({resource: 8})),))
    assert LEVELS.expected_use(pod, resource) == 8 * level
    assert LEVELS.deviation(owner, resource, 2, 16) == 16 * deviation


def pod_of(workload: Workload | None, cpu: int = 500, name: str = "pending") -> Pod:
    return Pod(name=name, workload=workload, containers=(Container(ResourceList({CPU: cpu, MEMORY: 1 << 30})),))


def test_a_changed_request_changes_no_expected_use():
    """The use of a learned workload is absolute; that of an unknown one is a share of the request."""
    levels = UseLevels.of_workloads(learned(WORKLOADS[1]))
    for request in (500, 250, 0):
        assert levels.expected_use(pod_of(WORKLOADS[1], request), CPU) == 250.0
        assert levels.deviation(WORKLOADS[1], CPU, 2, 2 * request) == 250.0
        assert levels.expected_use(pod_of(WORKLOADS[2], request), CPU) == 0.5 * request


def test_a_new_workload_is_found_on_nodes_that_did_not_change():
    """Levels that follow others find workloads that were unknown before, and the earlier levels stay the same."""
    nodes, rows = table(), np.arange(ROWS)
    nodes.add(pod_of(WORKLOADS[1], name="one"), "node-0", 0.0)
    nodes.add(pod_of(WORKLOADS[2], name="two"), "node-1", 0.0)
    first = UseLevels.of_workloads(learned(WORKLOADS[1]))
    assert first.expected_on(nodes, rows, CPU)[0].tolist() == [250.0, 250.0, 0.0]
    second = UseLevels.of_workloads(learned(*WORKLOADS[1:]), first)
    assert second.owners is first.owners
    assert second.expected_on(nodes, rows, CPU)[0].tolist() == [250.0, 125.0, 0.0]
    assert first.expected_on(nodes, rows, CPU)[0].tolist() == [250.0, 250.0, 0.0]
    removed = UseLevels.of_workloads(learned(WORKLOADS[2]), second)
    assert removed.expected_on(nodes, rows, CPU)[0].tolist() == [250.0, 250.0, 0.0]
    assert second.expected_on(nodes, rows, CPU)[0].tolist() == [250.0, 125.0, 0.0]


def test_scores_of_learned_use_are_those_of_equal_levels():
    """With unchanged requests, learned use gives the scores of levels by owner: use divided by the request."""
    nodes = table()
    for number in range(6):
        workload = WORKLOADS[1 + number % 2]
        nodes.add(pod_of(workload, name=f"pod-{number}"), f"node-{number % ROWS}", 0.0)
    load = (Metric("m", "CPU", "AVG", "15m", 40.0), Metric("m", "Memory", "AVG", "15m", 30.0))
    data = {f"node-{row}": NodeMetrics(load) for row in range(ROWS)}
    metrics = WatcherMetrics(1900, Window("15m", 1000, 1900), "test", data)
    of_learned = learned(*WORKLOADS[1:])
    shares = [dict(zip((CPU, MEMORY), column / [0.5, 1 << 30], strict=True)) for column in of_learned.use.T]
    deviations = [dict(zip((CPU, MEMORY), column / [0.5, 1 << 30], strict=True)) for column in of_learned.deviations.T]
    of_shares = UseLevels.of(
        dict(zip(WORKLOADS[1:], shares, strict=True)), {CPU: 0.5, MEMORY: 0.75},
        dict(zip(WORKLOADS[1:], deviations, strict=True)), {CPU: 0.25, MEMORY: 0.125},
    )  # fmt: skip
    profile = Profile.of(CongestionCost())
    both = [profile.prepare(nodes, metrics, each) for each in (UseLevels.of_workloads(of_learned), of_shares)]
    for workload in WORKLOADS:
        terms = [each.score(pod_of(workload)).plugins["CongestionCost"].terms for each in both]
        for name in ("rise", "cpu.pod_use", "cpu.expected_use", "memory.variance", "cpu.deviation"):
            np.testing.assert_allclose(terms[0][name], terms[1][name], rtol=1e-12, err_msg=name)
        np.testing.assert_array_equal(terms[0]["score"], terms[1]["score"])


def test_two_revisions_of_a_workload_on_a_node_vary_together():
    """Pods of two owners of one workload are one summand of the variance: their deviations are added up."""
    nodes = table()
    for number in range(2):
        pod = replace(pod_of(WORKLOADS[1], name=f"pod-{number}"), owner=Owner("ReplicaSet", f"web-{number}"))
        nodes.add(pod, "node-0", 0.0)
    _, variance = UseLevels.of_workloads(learned(WORKLOADS[1])).expected_on(nodes, np.array([0]), CPU)
    assert variance.tolist() == [(2 * 125.0) ** 2]


def test_levels_of_a_deployment_match_the_pods_of_its_replica_sets() -> None:
    """Pods of two revisions of a Deployment, as the API server sends them, have the use learned for the Deployment."""

    def replica(revision: str) -> Pod:
        references = [{"kind": "ReplicaSet", "name": f"web-{revision}", "uid": revision, "controller": True}]
        labels = {"pod-template-hash": revision}
        metadata = {"name": f"web-{revision}-x7k2p", "labels": labels, "ownerReferences": references}
        return Pod.from_k8s({"metadata": metadata, "spec": {"containers": [{"resources": {"requests": {"cpu": "1"}}}]}})

    levels = UseLevels.of_workloads(learned(Workload("default", "Deployment", "web"), cores=0.25))
    assert levels.expected_uses([replica("7f9c"), replica("5d4b")], [CPU]).tolist() == [[250.0, 250.0]]
    other = Pod.from_k8s(
        {"metadata": {"name": "other"}, "spec": {"containers": [{"resources": {"requests": {"cpu": "1"}}}]}}
    )
    assert levels.expected_use(other, CPU) == 500.0  # the level of all pods
