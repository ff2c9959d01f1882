"""A mutable plan, with the load of each node."""

import numpy as np

from scoring.arrays import Bools, Float64s, Int64s
from trimaran.planning.problem import Problem, cost


class Assignment:
    """A mutable plan, with the load of each node.

    Args:
        problem: pods and nodes.
        plan: first plan; it is copied.

    Attributes:
        problem: pods and nodes.
        plan: current plan.
        no_pod: index of a dummy pod, which requests nothing and is allowed on every node.
        demand: requests of each pod, with the dummy pod in the last row, shape (pods + 1, K).
        limit: largest load of each node, shape (nodes, K).
        load: current load of each node, shape (nodes, K).
    """

    def __init__(self, problem: Problem, plan: Int64s) -> None:
        self.problem = problem
        self.plan = plan.copy()
        self.no_pod = len(plan)
        self.demand: Float64s = np.concatenate([problem.demand, np.zeros((1, problem.demand.shape[1]))])
        self.limit = problem.limit
        self.load = problem.load(plan)
        self._group = np.append(problem.group, len(problem.allowed))
        self._allowed: Bools = np.concatenate([problem.allowed, np.ones((1, problem.nodes), np.bool_)])

    def cost(self, spread_weight: float) -> float:
        """Return the cost of the current plan."""
        return cost(self.problem, self.plan, spread_weight)

    def use(self) -> Float64s:
        """Return each node's use at its peak, as a share of its capacity, shape (nodes, R)."""
        problem = self.problem
        return np.asarray((problem.used + self.load[:, : len(problem.resources)]) / problem.capacity)

    def allows(self, pods: Int64s, nodes: Int64s) -> Bools:
        """Return whether each pod's constraints allow its node; the shapes are broadcast."""
        return np.asarray(self._allowed[self._group[pods], nodes])

    def swap(self, left: int, right: int, to_right: Int64s, to_left: Int64s) -> None:
        """Move pods from the left node to the right node and others back; both may include the dummy pod."""
        change = self.demand[to_left].sum(axis=0) - self.demand[to_right].sum(axis=0)
        self.load[left] += change
        self.load[right] -= change
        self.plan[to_right[to_right < self.no_pod]] = right
        self.plan[to_left[to_left < self.no_pod]] = left
