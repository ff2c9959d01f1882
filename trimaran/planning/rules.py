"""One pod after another, each to the node that a rule likes best: how schedulers place, and a rival of the paper's.

LRA and BRA are kube-scheduler's old least-requested and balanced-resource scores. They filter and score by CPU and
memory alone, as the paper has them, so bandwidth and disk may be asked for beyond what there is: that is measured, not
prevented.
"""

from collections.abc import Callable

import numpy as np

from scoring.arrays import Bools, Float64s, Int64s
from trimaran.planning.problem import UNPLACED, Problem

Rule = Callable[[Float64s, Float64s, Float64s], Float64s]
"""From a pod's demand (R,), what is used with it (nodes, R) and capacity (nodes, R) to a score (nodes,)."""
_TWO = 2  # CPU and memory


def least_requested(demand: Float64s, used: Float64s, capacity: Float64s) -> Float64s:
    """LRA: the mean over CPU and memory of 10 (capacity - used) / capacity."""
    del demand
    return np.asarray((10 * (capacity - used) / capacity)[:, :_TWO].mean(axis=1))


def balanced_resources(demand: Float64s, used: Float64s, capacity: Float64s) -> Float64s:
    """BRA: 10 - 10 |share of CPU - share of memory|."""
    del demand
    share = (used / capacity)[:, :_TWO]
    return np.asarray(10 - 10 * np.abs(share[:, 0] - share[:, 1]))


def cwt_topsis(demand: Float64s, used: Float64s, capacity: Float64s) -> Float64s:
    """CWT: TOPSIS over what stays free of each resource, weighted by its entropy between nodes.

    The nearer to the best of each column and the further from the worst, the better. The paper multiplies the entropy's
    weights by subjective ones, which it does not give: all alike here.
    """
    del demand
    free = np.clip((capacity - used) / capacity, 0.0, None)
    weighted = entropy_weights(free) * free / np.maximum(np.linalg.norm(free, axis=0), np.finfo(np.float64).tiny)
    to_best = np.linalg.norm(weighted - weighted.max(axis=0), axis=1)
    to_worst = np.linalg.norm(weighted - weighted.min(axis=0), axis=1)
    total = to_best + to_worst
    return np.where(total > 0, to_worst / np.where(total > 0, total, 1.0), 1.0)


def entropy_weights(values: Float64s) -> Float64s:
    """Return a weight for each column, adding up to 1: the more its values differ, the more it tells, shape (R,)."""
    nodes, columns = values.shape
    sums = values.sum(axis=0)
    share = values / np.where(sums > 0, sums, 1.0)
    terms = np.where(share > 0, share * np.log(np.where(share > 0, share, 1.0)), 0.0)
    told = 1 + terms.sum(axis=0) / np.log(max(nodes, 2))
    told = np.clip(told, 0.0, None)
    total = told.sum()
    return np.asarray(told / total if total > 0 else np.full(columns, 1 / columns))


def place_by_rule(problem: Problem, rule: Rule, *, columns: int | None = None) -> Int64s:
    """Place pods in their order; return a plan.

    Args:
        problem: what is placed. Gangs and priorities are not looked at.
        rule: the best score wins, of equal ones the first.
        columns: how many balanced resources must fit; by default all. Those that are not balanced always must.
    """
    balanced = len(problem.resources)
    looked_at = np.r_[: balanced if columns is None else min(columns, balanced), balanced : problem.demand.shape[1]]
    used, room = problem.used.copy(), problem.limit[:, looked_at]
    demand = problem.demand[:, looked_at]
    plan = np.full(problem.pods, UNPLACED)
    for pod in range(problem.pods):
        node = _best(problem, pod, rule, used, (demand[pod] <= room).all(axis=1))
        if node == UNPLACED:
            continue
        plan[pod] = node
        used[node] += problem.balanced[pod]
        room[node] -= demand[pod]
    return plan


def settle(problem: Problem, wanted: Int64s, rule: Rule) -> Int64s:
    """Return a plan that fits, near one that may not: what does not fit where it is wanted goes where the rule says.

    Pods are looked at in their order; what fits nowhere any more stays unplaced.
    """
    used, room = problem.used.copy(), problem.limit
    plan = np.full(problem.pods, UNPLACED)
    for pod in range(problem.pods):
        node = int(wanted[pod])
        if not (problem.allowed[problem.group[pod], node] and (problem.demand[pod] <= room[node]).all()):
            node = _best(problem, pod, rule, used, (problem.demand[pod] <= room).all(axis=1))
            if node == UNPLACED:
                continue
        plan[pod] = node
        used[node] += problem.balanced[pod]
        room[node] -= problem.demand[pod]
    return plan


def _best(problem: Problem, pod: int, rule: Rule, used: Float64s, has_room: Bools) -> int:
    """Return the node with the best score of those that have room and are allowed, else ``UNPLACED``."""
    fits = has_room & problem.allowed[problem.group[pod]]
    if not fits.any():
        return UNPLACED
    score = rule(problem.balanced[pod], used + problem.balanced[pod], problem.capacity)
    return int(np.where(fits, score, -np.inf).argmax())
