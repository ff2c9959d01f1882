"""Placement by a rule, as schedulers do: one pod after another, each to the node with the best score.

LRA and BRA are kube-scheduler's old least-requested and balanced-resource scores. As in the TBESK paper they filter and
score by CPU and memory alone. So their plans may exceed a node's bandwidth and disk; such nodes count as overloaded.
"""

from collections.abc import Callable

import numpy as np

from scoring.arrays import Float64s, Int64s
from trimaran.planning.problem import UNPLACED, Problem

Rule = Callable[[Float64s, Float64s, Float64s], Float64s]
"""Function that returns the score of each node for a pod, shape (nodes,); higher is better.

Its arguments are the pod's requests (R,), and the nodes' use with the pod (nodes, R) and capacity (nodes, R).
"""
_TWO = 2  # CPU and memory


def least_requested(demand: Float64s, used: Float64s, capacity: Float64s) -> Float64s:
    """Return the LRA (least requested) score: the mean of 10 (capacity - used) / capacity of CPU and memory."""
    del demand
    return np.asarray((10 * (capacity - used) / capacity)[:, :_TWO].mean(axis=1))


def balanced_resources(demand: Float64s, used: Float64s, capacity: Float64s) -> Float64s:
    """Return the BRA (balanced resources) score of each node: 10 - 10 |used share of CPU - used share of memory|."""
    del demand
    share = (used / capacity)[:, :_TWO]
    return np.asarray(10 - 10 * np.abs(share[:, 0] - share[:, 1]))


def place_by_rule(
    problem: Problem, rule: Rule, *, columns: int | None = None, preferred: Int64s | None = None
) -> Int64s:
    """Return a plan: each pod, in the problem's order, goes to the node with the highest score where it fits.

    Args:
        problem: pods and nodes. Gangs and priorities are ignored.
        rule: function that scores the nodes; among equal scores the first node wins.
        columns: number of balanced resources, from the first, that are checked for room; None checks all. Resources
            that are not balanced are always checked.
        preferred: node of each pod that is taken without scoring if the pod fits there, shape (pods,).
    """
    balanced = len(problem.resources)
    checked = np.r_[: balanced if columns is None else min(columns, balanced), balanced : problem.demand.shape[1]]
    used, room = problem.used.copy(), problem.limit[:, checked]
    demand = problem.demand[:, checked]
    plan = np.full(problem.pods, UNPLACED)
    for pod in range(problem.pods):
        fits = (demand[pod] <= room).all(axis=1) & problem.allowed[problem.group[pod]]
        if not fits.any():
            continue
        if preferred is not None and fits[preferred[pod]]:
            node = int(preferred[pod])
        else:
            score = rule(problem.balanced[pod], used + problem.balanced[pod], problem.capacity)
            node = int(np.where(fits, score, -np.inf).argmax())
        plan[pod] = node
        used[node] += problem.balanced[pod]
        room[node] -= demand[pod]
    return plan
