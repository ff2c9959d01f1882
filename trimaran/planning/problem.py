"""What is to be placed, on what, and what a plan is worth.

A plan is an array: the node of each pod, shape (pods,); -1 where a pod is left unplaced.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Self

import numpy as np

from scoring.arrays import Bools, Float64s, Int64s

UNPLACED: Final = -1
_SLACK = 1e-9  # of a capacity: what sums of measured amounts may be off by


@dataclass(frozen=True, eq=False)
class Problem:
    """Pods to be placed on nodes, beside what is there.

    The first R columns of ``demand`` and ``room`` are the resources that a plan balances; further ones must only fit.

    Attributes:
        resources: the names of the balanced resources, R of them, such as ``cpu`` and ``memory``.
        capacity: of each node, above 0, shape (nodes, R).
        used: at its peak, before the pods come, in the same units, shape (nodes, R).
        demand: of each pod, shape (pods, K), K >= R.
        room: what each node has left, shape (nodes, K).
        group: which row of ``allowed`` is the pod's, shape (pods,).
        allowed: where the pods of a group may go, shape (groups, nodes).
        gang: the number of the pod's gang, whose pods are placed all or none; -1 without one, shape (pods,).
        domain: a number for each node, such as its rack's: the pods of a gang share one; -1 where a node has none.
            None: gangs may spread, shape (nodes,).
        priority: higher is placed first, shape (pods,).
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
        """Return a problem without constraints but room; the rest can be set with :func:`dataclasses.replace`.

        Raises:
            ValueError: shapes that do not belong together, numbers that are none, a capacity of 0.
        """
        capacity, used, demand = (np.asarray(each, np.float64) for each in (capacity, used, demand))
        nodes, pods, count = len(capacity), len(demand), len(resources)
        if capacity.shape != (nodes, count) or used.shape != capacity.shape or demand.shape != (pods, count):
            shapes = f"{capacity.shape}, {used.shape}, {demand.shape}"
            raise ValueError(
                f"capacity, used and demand must have a column for each of {count} resources, got {shapes}"
            )
        if not nodes:
            raise ValueError("there are no nodes to place pods on")
        if not all(np.isfinite(each).all() and (each >= 0).all() for each in (capacity, used, demand)):
            raise ValueError("capacity, used and demand must be finite and not negative")
        if not (capacity > 0).all():
            raise ValueError("every node must have some of each resource that is balanced")
        return cls(
            tuple(resources), capacity, used, demand, np.maximum(capacity - used, 0.0),
            group=np.zeros(pods, np.int64), allowed=np.ones((1, nodes), np.bool_),
            gang=np.full(pods, -1), domain=None, priority=np.zeros(pods, np.int64),
        )  # fmt: skip

    @property
    def pods(self) -> int:
        """How many pods there are."""
        return len(self.demand)

    @property
    def nodes(self) -> int:
        """How many nodes there are."""
        return len(self.capacity)

    @property
    def balanced(self) -> Float64s:
        """The demand for the balanced resources, shape (pods, R)."""
        return self.demand[:, : len(self.resources)]

    @property
    def limit(self) -> Float64s:
        """What may be put on each node, with the slack that sums of floating-point numbers need, shape (nodes, K)."""
        limit = self.room.copy()
        limit[:, : len(self.resources)] += _SLACK * self.capacity
        return limit

    def load(self, plan: Int64s) -> Float64s:
        """Return what a plan puts on each node, shape (nodes, K)."""
        placed = plan >= 0
        columns = [np.bincount(plan[placed], weights=column[placed], minlength=self.nodes) for column in self.demand.T]
        return np.stack(columns, axis=1, dtype=np.float64)  # without any pods numpy would make it whole numbers

    def use(self, plan: Int64s) -> Float64s:
        """Return the share of each node's capacity that is used at its peak with a plan, shape (nodes, R)."""
        return (self.used + self.load(plan)[:, : len(self.resources)]) / self.capacity

    def take(self, pods: Int64s) -> Self:
        """Return the problem of some pods alone, in that order."""
        return replace(
            self, demand=self.demand[pods], group=self.group[pods], gang=self.gang[pods], priority=self.priority[pods]
        )

    def after(self, plan: Int64s) -> Self:
        """Return the problem of no pods, on nodes that hold what a plan puts there."""
        load = self.load(plan)
        used = self.used + load[:, : len(self.resources)]
        return replace(self.take(np.zeros(0, np.int64)), used=used, room=self.room - load)

    def beside(self, other: "Problem", plan: Int64s) -> Self:
        """Return this problem on nodes that hold what a plan of other pods puts there."""
        filled = other.after(plan)
        return replace(self, used=filled.used, room=filled.room)


@dataclass(frozen=True)
class Measures:
    """What a plan is worth; less is better.

    Attributes:
        imbalance: the paper's Z: of each node, the length of its resources' deviation from their mean; the mean of that
            over all nodes.
        spread: the standard deviation, between nodes, of a node's mean use.
        overloaded: nodes on which some resource, balanced or not, is asked for beyond what is there.
        unplaced: pods without a node.
        highest: the highest use of any balanced resource on any node, as a share.
    """

    imbalance: float
    spread: float
    overloaded: int
    unplaced: int
    highest: float

    @property
    def cost(self) -> float:
        """Imbalance within nodes and spread between them: J."""
        return self.imbalance + self.spread


def measure(problem: Problem, plan: Int64s) -> Measures:
    """Say what a plan is worth."""
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
    """Return the imbalance within nodes, and the spread between them times a weight: what plans are to lower."""
    use = problem.use(plan)
    return float(imbalances(use).mean() + spread_weight * use.mean(axis=1).std())


def imbalances(use: Float64s) -> Float64s:
    """Return the length of each node's deviation from its mean over resources, shape (nodes,).

    Args:
        use: shares, shape (nodes, R).
    """
    length: Float64s = np.linalg.norm(use - use.mean(axis=1, keepdims=True), axis=1)
    return length


def why_unplaced(problem: Problem, pod: int) -> str:
    """Say why a pod that a plan left out may have no node."""
    allowed = problem.allowed[problem.group[pod]]
    if not allowed.any():
        return "no node is allowed: cordons, taints, node selector or node affinity keep it off all of them"
    fits = (problem.demand[pod] <= problem.limit).all(axis=1) & allowed
    if not fits.any():
        return "it fits on no node that it may go to, even before the others are placed"
    if problem.gang[pod] >= 0:
        return "its gang does not fit as a whole"
    return "no room is left on the nodes that it may go to"
