"""Use levels: sums cached by owner equal the sums over the current pods, after any sequence of changes."""

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.kubernetes import pod_demand
from runtime.kubernetes.objects import CPU, MEMORY, CachedRequests, Owner
from scoring import Container, Node, NodeTable, Pod, ResourceList, UseLevels

GPU = "nvidia.com/gpu"
ROWS = 3
OWNERS = (None, Owner("ReplicaSet", "web"), Owner("ReplicaSet", "web", "uid"), Owner("Job", "web"), Owner("Job", "new"))
REQUESTS = ({CPU: 500, MEMORY: 1 << 30}, {CPU: 250, GPU: 1}, {MEMORY: 1 << 20}, {})
LEVELS = UseLevels.of(
    {OWNERS[1]: {CPU: 0.5}, OWNERS[3]: {CPU: 2.0, GPU: 0.25}}, {MEMORY: 0.75},
    {OWNERS[1]: {CPU: 0.5}, OWNERS[3]: {CPU: 0.125, MEMORY: 1.0}}, {CPU: 0.25},
)  # fmt: skip
# Each step: add or remove, the pod's number, its row, its owner and its requests.
steps = st.lists(
    st.tuples(
        st.booleans(), st.integers(0, 5), st.integers(0, ROWS - 1), st.sampled_from(OWNERS), st.sampled_from(REQUESTS)
    ),
    max_size=40,
)


def table() -> NodeTable:
    amounts = ResourceList({CPU: 8000, MEMORY: 1 << 34})
    return NodeTable([Node(f"node-{row}", amounts, amounts) for row in range(ROWS)])


def expected(nodes: NodeTable, row: int, resource: str) -> tuple[float, float]:
    """Return mean and variance, computed by their definition."""
    pods = [placed.pod for placed in nodes.placed_on(row)]
    mean = sum(LEVELS.expected_use(each, resource) for each in pods)
    deviations: dict[object, float] = defaultdict(float)
    for each in pods:
        deviation = pod_demand.requests(each, resource) * LEVELS.deviation(each.owner, resource)
        deviations[each.owner or each.uid] += deviation
    return mean, sum(deviation**2 for deviation in deviations.values())


@given(steps=steps)
def test_expected_use_of_nodes_is_the_sum_over_their_pods(steps):
    """Expected use is correct after pods came, went, moved and changed, with and without cached requests."""
    nodes, known = table(), defaultdict(CachedRequests)
    for is_added, number, row, owner, requests in steps:
        shared = known[tuple(requests.items())] if number % 2 else None
        pod = Pod(
            name=f"pod-{number}", owner=owner, cached_requests=shared, containers=(Container(ResourceList(requests)),)
        )
        if is_added:
            nodes.add(pod, f"node-{row}", float(number))
        elif nodes.find(pod) is not None:
            nodes.remove(pod)
        for resource in (CPU, MEMORY, GPU, "example.com/unused"):
            rows = np.array([2, 0, 1])
            mean, variance = LEVELS.expected_on(nodes, rows, resource)
            assert list(zip(mean, variance, strict=True)) == [expected(nodes, row, resource) for row in rows.tolist()]
    for row in range(ROWS):
        pods = [placed.pod for placed in nodes.placed_on(row)]
        for owner, owned in nodes.owners_on(row).items():
            owner_pods = [each for each in pods if each.owner == owner]
            assert owned.count == len(owner_pods)
            for resource in (CPU, MEMORY, GPU):
                requested = sum(pod_demand.requests(each, resource) for each in owner_pods)
                assert owned.requests.get(resource, 0) == requested
        assert {each.owner for each in pods} - {None} == set(nodes.owners_on(row))


@pytest.mark.parametrize(
    ("owner", "resource", "level", "deviation"),
    [
        (OWNERS[1], CPU, 0.5, 0.5), (OWNERS[2], CPU, 1.0, 0.25), (OWNERS[3], MEMORY, 0.75, 0.0), (None, CPU, 1.0, 0.25),
        (OWNERS[3], GPU, 0.25, 0.0), (OWNERS[1], GPU, 1.0, 0.0), (None, "example.com/unused", 1.0, 0.0),
    ],
)  # fmt: skip
def test_levels_match_kind_name_and_uid(owner, resource, level, deviation):
    """An owner is identified by kind, name and uid; all others have the default level and deviation, if any."""
    assert (LEVELS.level(owner, resource), LEVELS.deviation(owner, resource)) == (level, deviation)
