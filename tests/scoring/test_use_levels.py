"""Learnt levels: what is kept by owner is what the pods that are there add up to, however they came."""

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.kubernetes import pod_demand
from runtime.kubernetes.objects import CPU, MEMORY, KnownRequests, Owner
from scoring import Container, Node, NodeTable, Pod, ResourceList, UseLevels

GPU = "nvidia.com/gpu"
ROWS = 3
OWNERS = (None, Owner("ReplicaSet", "web"), Owner("ReplicaSet", "web", "uid"), Owner("Job", "web"), Owner("Job", "new"))
ASKED = ({CPU: 500, MEMORY: 1 << 30}, {CPU: 250, GPU: 1}, {MEMORY: 1 << 20}, {})
LEVELS = UseLevels.of(
    {OWNERS[1]: {CPU: 0.5}, OWNERS[3]: {CPU: 2.0, GPU: 0.25}}, {MEMORY: 0.75},
    {OWNERS[1]: {CPU: 0.5}, OWNERS[3]: {CPU: 0.125, MEMORY: 1.0}}, {CPU: 0.25},
)  # fmt: skip
# Of each pod, again and again: whether it comes or goes, which one, where, whose it is and what it asks for.
steps = st.lists(
    st.tuples(
        st.booleans(), st.integers(0, 5), st.integers(0, ROWS - 1), st.sampled_from(OWNERS), st.sampled_from(ASKED)
    ),
    max_size=40,
)


def table() -> NodeTable:
    amounts = ResourceList({CPU: 8000, MEMORY: 1 << 34})
    return NodeTable([Node(f"node-{row}", amounts, amounts) for row in range(ROWS)])


def expected(nodes: NodeTable, row: int, resource: str) -> tuple[float, float]:
    """Return mean and variance, as their definition has them."""
    pods = [placed.pod for placed in nodes.placed_on(row)]
    mean = sum(LEVELS.expected_use(each, resource) for each in pods)
    strays: dict[object, float] = defaultdict(float)
    for each in pods:
        own = pod_demand.requests(each, resource) * LEVELS.deviation(each.owner, resource)
        strays[each.owner or each.uid] += own
    return mean, sum(stray**2 for stray in strays.values())


@given(steps=steps)
def test_what_is_expected_on_nodes_is_that_of_their_pods(steps):
    """Of every row in any order, after pods came, went, moved and changed, with and without requests that are kept."""
    nodes, known = table(), defaultdict(KnownRequests)
    for comes, number, row, owner, asked in steps:
        shared = known[tuple(asked.items())] if number % 2 else None
        pod = Pod(
            name=f"pod-{number}", owner=owner, known_requests=shared, containers=(Container(ResourceList(asked)),)
        )
        if comes:
            nodes.add(pod, f"node-{row}", float(number))
        elif nodes.find(pod) is not None:
            nodes.remove(pod)
        for resource in (CPU, MEMORY, GPU, "not.asked/for"):
            rows = np.array([2, 0, 1])
            mean, variance = LEVELS.expected_on(nodes, rows, resource)
            assert list(zip(mean, variance, strict=True)) == [expected(nodes, row, resource) for row in rows.tolist()]
    for row in range(ROWS):
        pods = [placed.pod for placed in nodes.placed_on(row)]
        for owner, owned in nodes.owners_on(row).items():
            own = [each for each in pods if each.owner == owner]
            assert owned.count == len(own)
            for resource in (CPU, MEMORY, GPU):
                assert owned.requests.get(resource, 0) == sum(pod_demand.requests(each, resource) for each in own)
        assert {each.owner for each in pods} - {None} == set(nodes.owners_on(row))


@pytest.mark.parametrize(
    ("owner", "resource", "level", "deviation"),
    [
        (OWNERS[1], CPU, 0.5, 0.5), (OWNERS[2], CPU, 1.0, 0.25), (OWNERS[3], MEMORY, 0.75, 0.0), (None, CPU, 1.0, 0.25),
        (OWNERS[3], GPU, 0.25, 0.0), (OWNERS[1], GPU, 1.0, 0.0), (None, "not.asked/for", 1.0, 0.0),
    ],
)  # fmt: skip
def test_nobody_else_is_meant(owner, resource, level, deviation):
    """An owner is its kind, name and uid; what is not told is everybody else's, and without one, 1 and none."""
    assert (LEVELS.level(owner, resource), LEVELS.deviation(owner, resource)) == (level, deviation)
