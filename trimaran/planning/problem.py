"""Placement problems, and the cost of a plan.

A plan is an array of shape (pods,): the node of each pod, or -1 for a pod without a node.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Self

import numpy as np

from scoring.arrays import Bools, Float64s, Int64s

UNPLACED: Final = -1
_SLACK: Final = 1e-9  # rounding error of sums of measured amounts, as a share of a node's capacity


@dataclass(frozen=True, eq=False)
class Problem:
    """Pods to place, and nodes, which may already run other pods.

    The first R columns of ``demand`` and ``room`` are the resources that a plan balances. The other columns, such as
    GPUs, only have to fit.

    Attributes:
        resources: names of the R balanced resources, such as ``cpu`` and ``memory``.
        capacity: capacity of each node, above 0, shape (nodes, R).
        used: resource use of each node at its peak, without the pods to place, in the units of ``capacity``, shape
            (nodes, R).
        demand: requests of each pod, shape (pods, K), K >= R.
        room: requests that each node can still take, shape (nodes, K).
        group: each pod's row in ``allowed``, shape (pods,).
        allowed: true for nodes that the constraints of a group of pods allow, shape (groups, nodes).
        gang: number of each pod's gang, -1 without one, shape (pods,). The pods of a gang are placed all together or
            stay unplaced.
        domain: number of each node's topology domain, such as its rack, -1 without one, shape (nodes,). All pods of a
            gang go to nodes of one domain. If None, they may go to any nodes.
        priority: priority of each pod, shape (pods,). Pods of higher priority are placed first.
    """

    resources: tuple[str, ...]
    capacity: Float64s
    used: Float64s
    demand: Float64s
    room: Float64s
    group: Int64s
    allowed: Bools
    gang: Int64s
    domain: Int64s | None
    priority: Int64s

    @classmethod
    def of(
        cls,
        capacity: Float64s,
        used: Float64s,
        demand: Float64s,
        resources: Sequence[str] = ("cpu", "memory", "bandwidth", "disk"),
    ) -> Self:
        """Return a problem whose only constraint is capacity; :func:`dataclasses.replace` sets the other fields.

        Raises:
            ValueError: mismatched shapes, a number that is negative or not finite, or a capacity of 0.
        """
        capacity, used, demand = (np.asarray(array, np.float64) for array in (capacity, used, demand))
        nodes, pods, count = len(capacity), len(demand), len(resources)
        if capacity.shape != (nodes, count) or used.shape != capacity.shape or demand.shape != (pods, count):
            shapes = f"{capacity.shape}, {used.shape}, {demand.shape}"
            raise ValueError(
                f"capacity, used and demand must have a column for each of {count} resources, got {shapes}"
            )
        if not nodes:
            raise ValueError("there are no nodes to place pods on")
        if not all(np.isfinite(array).all() and (array >= 0).all() for array in (capacity, used, demand)):
            raise ValueError("capacity, used and demand must be finite and not negative")
        if not (capacity > 0).all():
            raise ValueError("capacity must be above 0 for every node and balanced resource")
        return cls(
            tuple(resources), capacity, used, demand, np.maximum(capacity - used, 0.0),
            group=np.zeros(pods, np.int64), allowed=np.ones((1, nodes), np.bool_),
            gang=np.full(pods, -1), domain=None, priority=np.zeros(pods, np.int64),
        )  # fmt: skip

    @property
    def pods(self) -> int:
        """Number of pods."""
        return len(self.demand)

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return len(self.capacity)

    @property
    def balanced(self) -> Float64s:
        """Demand for the balanced resources, shape (pods, R)."""
        return self.demand[:, : len(self.resources)]

    @property
    def limit(self) -> Float64s:
        """Free capacity of each node, plus a small tolerance for rounding errors of sums, shape (nodes, K)."""
        limit = self.room.copy()
        limit[:, : len(self.resources)] += _SLACK * self.capacity
        return limit

    def load(self, plan: Int64s) -> Float64s:
        """Return the sum of the requests of the pods that a plan places on each node, shape (nodes, K)."""
        placed = plan >= 0
        columns = [np.bincount(plan[placed], weights=column[placed], minlength=self.nodes) for column in self.demand.T]
        return np.stack(columns, axis=1, dtype=np.float64)  # bincount returns integers if no pod is placed

    def use(self, plan: Int64s) -> Float64s:
        """Return each node's resource use at its peak under a plan, as shares of its capacity, shape (nodes, R).

        A planned pod counts with its requests.
        """
        return (self.used + self.load(plan)[:, : len(self.resources)]) / self.capacity

    def take(self, pods: Int64s) -> Self:
        """Return the problem of placing only the given pods, in their order.

        Args:
            pods: indices of the pods.
        """
        return replace(
            self, demand=self.demand[pods], group=self.group[pods], gang=self.gang[pods], priority=self.priority[pods]
        )

    def on_top_of(self, other: "Problem", plan: Int64s) -> Self:
        """Return this problem on nodes that also run the pods of another problem.

        Args:
            other: problem with the same nodes.
            plan: plan that places the pods of ``other``.
        """
        load = other.load(plan)
        return replace(self, used=self.used + load[:, : len(self.resources)], room=self.room - load)


@dataclass(frozen=True)
class Measures:
    """Quality of a plan; lower is better.

    Attributes:
        imbalance: Z of the TBESK paper: the mean over nodes of a node's imbalance (see :func:`imbalances`).
        spread: standard deviation, over nodes, of a node's mean use over resources.
        overloaded: number of nodes where the planned pods request more than the free capacity, in any resource.
        unplaced: number of pods without a node.
        highest: highest use of a balanced resource on any node at its peak, as a share of capacity.
    """

    imbalance: float
    spread: float
    overloaded: int
    unplaced: int
    highest: float

    def cost(self, spread_weight: float = 1.0) -> float:
        """Return the cost: the imbalance within nodes plus ``spread_weight`` times the spread between nodes."""
        return self.imbalance + spread_weight * self.spread


def measure(problem: Problem, plan: Int64s) -> Measures:
    """Return the quality of a plan."""
    use = problem.use(plan)
    over = (problem.load(plan) > problem.limit).any(axis=1)
    return Measures(
        imbalance=float(imbalances(use).mean()),
        spread=float(use.mean(axis=1).std()),
        overloaded=int(over.sum()),
        unplaced=int((plan < 0).sum()),
        highest=float(use.max()),
    )


def cost(problem: Problem, plan: Int64s, spread_weight: float) -> float:
    """Return the cost of a plan: the mean imbalance of nodes plus ``spread_weight`` times the spread between nodes.

    The spread is the standard deviation, over nodes, of a node's mean use over resources.
    """
    return cost_of_use(problem.use(plan), spread_weight)


def cost_of_use(use: Float64s, spread_weight: float) -> float:
    """Return the cost of a plan by the use of the nodes, as shares of their capacity, shape (nodes, R)."""
    return float(imbalances(use).mean() + spread_weight * use.mean(axis=1).std())


def imbalances(use: Float64s) -> Float64s:
    """Return the imbalance of each node, shape (nodes,): the norm of (use of each resource - mean over resources).

    Args:
        use: resource use of each node, as shares of its capacity, shape (nodes, R).
    """
    return np.asarray(np.linalg.norm(use - use.mean(axis=1, keepdims=True), axis=1))


def why_unplaced(problem: Problem, pod: int) -> str:
    """Return the likely reason, for users, why a plan has no node for a pod.

    Args:
        problem: pods and nodes.
        pod: index of the pod.
    """
    allowed = problem.allowed[problem.group[pod]]
    if not allowed.any():
        return "no node is allowed: cordons, taints, node selector or node affinity exclude all of them"
    fits = (problem.demand[pod] <= problem.limit).all(axis=1) & allowed
    if not fits.any():
        return "it fits on no node that its constraints allow, even before other pods are placed"
    if problem.gang[pod] >= 0:
        return "its gang does not fit as a whole"
    return "no room is left on the nodes that its constraints allow"
