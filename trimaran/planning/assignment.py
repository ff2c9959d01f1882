"""A mutable plan that keeps the load of each node up to date."""

import numpy as np

from scoring.arrays import Bools, Float64s, Int64s
from trimaran.planning.problem import Problem, cost


class Assignment:
    """A mutable plan that keeps the load of each node up to date.

    Args:
        problem: pods and nodes.
        plan: initial plan, which is copied.

    Attributes:
        problem: pods and nodes.
        plan: current plan.
        no_pod: index of a dummy pod, which requests nothing and is allowed on every node.
        demand: requests of each pod, with the dummy pod in the last row, shape (pods + 1, K).
        limit: largest load that each node can take, shape (nodes, K).
        load: sum of the requests of the pods on each node, shape (nodes, K).
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
        """Return the cost of the current plan: its imbalance plus ``spread_weight`` times its spread."""
        return cost(self.problem, self.plan, spread_weight)

    def use(self) -> Float64s:
        """Return each node's resource use at its peak, as shares of its capacity, shape (nodes, R)."""
        problem = self.problem
        return np.asarray((problem.used + self.load[:, : len(problem.resources)]) / problem.capacity)

    def allows(self, pods: Int64s, nodes: Int64s) -> Bools:
        """Return whether the constraints of each pod allow the given node; ``pods`` and ``nodes`` are broadcast."""
        return np.asarray(self._allowed[self._group[pods], nodes])

    def swap(self, left: int, right: int, to_right: Int64s, to_left: Int64s) -> None:
        """Swap pods between two nodes, in the plan and in the loads.

        Args:
            left: row of the left node.
            right: row of the right node.
            to_right: pods of the left node that move to the right node; the dummy pod is ignored.
            to_left: pods of the right node that move to the left node; the dummy pod is ignored.
        """
        change = self.demand[to_left].sum(axis=0) - self.demand[to_right].sum(axis=0)
        self.load[left] += change
        self.load[right] -= change
        self.plan[to_right[to_right < self.no_pod]] = right
        self.plan[to_left[to_left < self.no_pod]] = left
