"""Fitness of the TBESK paper: the room that a pod leaves on a node, plus the distance of the node's load from a target.

With the pod's request P, the node's capacity N and the node's use at its peak S, for each resource r:

    R = sum mu_r (1 - P_r / (N_r - S_r))        L = sum v_r (T_r - (P_r + S_r) / N_r)        fitness = R + L

The weights mu and v depend on the class of the pod on the node. With the shares C_r = P_r / N_r, the class is
compressible if C_cpu > C_memory and C_bandwidth > C_disk, incompressible if C_cpu < C_memory and C_bandwidth < C_disk,
and otherwise balanced. The paper does not print mu, v and the target T. Here mu = v, with a row of ``_WEIGHTS`` for
each class, and T = 0.9.
"""

from typing import Final

import numpy as np

from scoring.arrays import Float64s, Int64s
from trimaran.planning.problem import Problem

COMPRESSIBLE, INCOMPRESSIBLE, BALANCED = range(3)
_FOUR: Final = 4  # cpu, memory, bandwidth, disk
_WEIGHTS: Final = np.array([[0.35, 0.15, 0.35, 0.15], [0.15, 0.35, 0.15, 0.35], [0.25, 0.25, 0.25, 0.25]])
_TARGET: Final = 0.9
_MISFIT: Final = -1.0  # fitness of a pod that does not fit, minus what is missing: below the fitness of any that fits


def classes(demand: Float64s, capacity: Float64s) -> Int64s:
    """Return the class of each pod on each node: COMPRESSIBLE, INCOMPRESSIBLE or BALANCED, shape (pods, nodes).

    The requested shares are compared by cross-multiplication, without division. The four resources must be cpu, memory,
    bandwidth and disk, in this order; with another number of resources every pod is BALANCED.

    Args:
        demand: requests of each pod, shape (pods, R).
        capacity: capacity of each node, shape (nodes, R).
    """
    kind = np.full((len(demand), len(capacity)), BALANCED)
    if demand.shape[1] != _FOUR:
        return kind
    cpu, memory, bandwidth, disk = demand.T[:, :, None]
    node_cpu, node_memory, node_bandwidth, node_disk = capacity.T[:, None, :]
    kind[(cpu * node_memory > memory * node_cpu) & (bandwidth * node_disk > disk * node_bandwidth)] = COMPRESSIBLE
    kind[(cpu * node_memory < memory * node_cpu) & (bandwidth * node_disk < disk * node_bandwidth)] = INCOMPRESSIBLE
    return kind


class Fitness:
    """Fitness of whole plans, many at a time: the mean fitness of the pods; the other pods on a node count as its use.

    Args:
        problem: pods and nodes.
    """

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._class = classes(problem.balanced, problem.capacity)

    def of(self, plans: Int64s) -> Float64s:
        """Return the fitness of each plan, shape (k,).

        Args:
            plans: plans in which every pod has a node, shape (k, pods).
        """
        problem, count = self._problem, len(plans)
        # The use of each node under each plan, with the pods themselves.
        flat = (plans + np.arange(count)[:, None] * problem.nodes).ravel()
        total = np.empty((count * problem.nodes, len(problem.resources)))
        for resource, column in enumerate(problem.balanced.T):
            total[:, resource] = np.bincount(flat, np.tile(column, count), count * problem.nodes)
        total += np.tile(problem.used, (count, 1))
        used = total[flat].reshape(count, problem.pods, -1)

        kind = self._class[np.arange(problem.pods), plans]
        values = _fitness(problem.balanced, used, problem.capacity[plans], kind)
        forbidden = ~problem.allowed[problem.group, plans]
        values[forbidden] = np.minimum(values[forbidden], _MISFIT)
        return np.asarray(values.mean(axis=1))


def fitness_rule(demand: Float64s, used: Float64s, capacity: Float64s) -> Float64s:
    """Return the fitness of a pod on each node, shape (nodes,); higher is better.

    The function is a :data:`trimaran.planning.rules.Rule`.

    Args:
        demand: requests of the pod, shape (R,).
        used: use of each node with the pod, shape (nodes, R).
        capacity: capacity of each node, shape (nodes, R).
    """
    return _fitness(demand, used, capacity, classes(demand[None], capacity)[0])


def _fitness(demand: Float64s, used: Float64s, capacity: Float64s, kind: Int64s) -> Float64s:
    """Return the fitness of pods on nodes; a pod that does not fit gets less than -1. The shapes are broadcast.

    Args:
        demand: requests of each pod, shape (..., R).
        used: use of the node at its peak, with the pod, shape (..., R).
        capacity: capacity of the node, shape (..., R).
        kind: class of the pod on the node, shape (...).
    """
    weights = _WEIGHTS[:, : capacity.shape[-1]]
    weights = (weights / weights.sum(axis=1, keepdims=True))[kind]
    free = capacity - (used - demand)
    missing = np.maximum(used - capacity, 0.0) / capacity
    with np.errstate(divide="ignore", invalid="ignore"):
        left = np.where(free > 0, 1 - demand / free, 0.0)
    value = (weights * left + weights * (_TARGET - used / capacity)).sum(axis=-1)
    lacking = missing.sum(axis=-1)
    return np.asarray(np.where(lacking > 0, _MISFIT - lacking, value))
