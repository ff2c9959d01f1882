"""A plan that is being changed, and what it puts on each node."""

import numpy as np

from scoring.arrays import Bools, Float64s, Int64s
from trimaran.planning.problem import Problem, cost


class Assignment:
    """A plan that is being changed, and what it puts on each node.

    Args:
        problem: what is placed.
        plan: where it begins; not changed.

    Attributes:
        problem: what is placed.
        plan: the plan so far.
        nobody: the number of a pod that is not there: it asks for nothing and may go anywhere.
        demand: of each pod, nobody's row the last, shape (pods + 1, K).
        limit: what may be put on each node, shape (nodes, K).
        load: what is put on each node, shape (nodes, K).
    """

    def __init__(self, problem: Problem, plan: Int64s) -> None:
        self.problem = problem
        self.plan = plan.copy()
        self.nobody = len(plan)
        self.demand: Float64s = np.concatenate([problem.demand, np.zeros((1, problem.demand.shape[1]))])
        self.limit = problem.limit
        self.load = problem.load(plan)
        self._group = np.append(problem.group, len(problem.allowed))
        self._allowed: Bools = np.concatenate([problem.allowed, np.ones((1, problem.nodes), np.bool_)])

    def cost(self, spread_weight: float) -> float:
        """Return what is minimized."""
        return cost(self.problem, self.plan, spread_weight)

    def use(self) -> Float64s:
        """Return the share of each node's capacity that is used at its peak, shape (nodes, R)."""
        problem = self.problem
        return np.asarray((problem.used + self.load[:, : len(problem.resources)]) / problem.capacity)

    def may_go(self, pods: Int64s, nodes: Int64s) -> Bools:
        """Return which pods may go to which nodes, by the shape that both have together."""
        return np.asarray(self._allowed[self._group[pods], nodes])

    def swap(self, left: int, right: int, given: Int64s, taken: Int64s) -> None:
        """Move some pods from the left node to the right one, and some back; nobody may be among them."""
        change = self.demand[taken].sum(axis=0) - self.demand[given].sum(axis=0)
        self.load[left] += change
        self.load[right] -= change
        self.plan[given[given < self.nobody]] = right
        self.plan[taken[taken < self.nobody]] = left
