"""Small placement problems that allow an exhaustive search, and Kubernetes objects."""

import itertools

import numpy as np

from trimaran.planning.problem import Problem


def small(seed: int, *, nodes: int = 3, pods: int = 6) -> Problem:
    """Return a problem small enough for an exhaustive search."""
    rng = np.random.default_rng(seed)
    capacity = rng.integers(60, 140, (nodes, 3)).astype(float)
    used = np.floor(capacity * rng.uniform(0, 0.3, capacity.shape))
    demand = rng.integers(1, 25, (pods, 3)).astype(float)
    return Problem.of(capacity, used, demand, ("cpu", "memory", "bandwidth"))


def every_plan(problem: Problem):
    """Yield each plan that places all pods within the nodes' limits and the pods' constraints."""
    for places in itertools.product(range(problem.nodes), repeat=problem.pods):
        plan = np.array(places)
        if (problem.load(plan) <= problem.limit).all() and problem.allowed[problem.group, plan].all():
            yield plan


def node(name: str, *, cpu: str = "8", **labels: str) -> dict[str, object]:
    """Return a Node with 32 GiB of memory."""
    amounts = {"cpu": cpu, "memory": "32Gi", "pods": "110"}
    status = {"capacity": amounts, "allocatable": amounts}
    return {"kind": "Node", "metadata": {"name": name, "labels": labels}, "status": status}


def pod(name: str, cpu: str = "500m", memory: str = "2Gi", gang: str = "", **spec: object) -> dict[str, object]:
    """Return a Pod that is pending unless its spec names a node."""
    labels = {"scheduling.x-k8s.io/pod-group": gang} if gang else {}
    containers = [{"name": "main", "resources": {"requests": {"cpu": cpu, "memory": memory}}}]
    return {
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "shop", "labels": labels},
        "spec": {"containers": containers, **spec},
    }


NODES = [node(f"node-{number}", rack=f"rack-{number // 2}") for number in range(4)]
