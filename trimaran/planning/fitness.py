"""The TBESK paper's fitness of a pod on a node: how much room it leaves there, and how little the node is loaded.

With P what the pod asks for, N the node's capacity and S what is used of it at its peak, for each resource r:

    R = sum mu_r (1 - P_r / (N_r - S_r))        L = sum v_r (T_r - (P_r + S_r) / N_r)        fitness = R + L

mu and v depend on the pod's class at the node, from the shares C_r = P_r / N_r: compressible where C_cpu > C_memory and
C_bandwidth > C_disk, incompressible where both are less, else balanced. The paper gives neither mu, v nor T: these are
options.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from scoring.arrays import Float64s, Int64s
from trimaran.planning.problem import Problem

COMPRESSIBLE, INCOMPRESSIBLE, BALANCED = range(3)
_FOUR: Final = 4
_MISFIT = -1.0  # a pod's fitness where it does not fit, less what is missing: below that of any that fits


def _weights() -> Float64s:
    return np.array([[0.35, 0.15, 0.35, 0.15], [0.15, 0.35, 0.15, 0.35], [0.25, 0.25, 0.25, 0.25]])


@dataclass(frozen=True, eq=False)
class Weights:
    """What the paper leaves open.

    Attributes:
        room: mu of each class, shape (3, 4).
        load: v of each class, shape (3, 4).
        target: T of each resource, shape (4,).
    """

    room: Float64s = field(default_factory=_weights)
    load: Float64s = field(default_factory=_weights)
    target: Float64s = field(default_factory=lambda: np.full(_FOUR, 0.9))

    def of(self, resources: int) -> tuple[Float64s, Float64s]:
        """Return mu and v of the first so many resources, adding up to 1 again, shape (3, resources) each."""
        room, load = (
            each[:, :resources] / each[:, :resources].sum(1, keepdims=True) for each in (self.room, self.load)
        )
        return room, load


def classes(demand: Float64s, capacity: Float64s) -> Int64s:
    """Return the class of each pod at each node, shape (pods, nodes).

    The shares are compared without dividing. With other than four resources every pod is balanced.

    Args:
        demand: shape (pods, R).
        capacity: shape (nodes, R).
    """
    found = np.full((len(demand), len(capacity)), BALANCED)
    if demand.shape[1] != _FOUR:
        return found
    cpu, memory, bandwidth, disk = demand.T[:, :, None]
    node_cpu, node_memory, node_bandwidth, node_disk = capacity.T[:, None, :]
    found[(cpu * node_memory > memory * node_cpu) & (bandwidth * node_disk > disk * node_bandwidth)] = COMPRESSIBLE
    found[(cpu * node_memory < memory * node_cpu) & (bandwidth * node_disk < disk * node_bandwidth)] = INCOMPRESSIBLE
    return found


class Fitness:
    """The fitness of whole plans, many at a time: the mean over pods, each seeing the others where it is.

    Args:
        problem: what is placed.
        weights: the paper's open numbers; those of resources that the problem does not have are left out.
    """

    def __init__(self, problem: Problem, weights: Weights | None = None) -> None:
        weights = weights or Weights()
        count = len(problem.resources)
        self._problem = problem
        self._class = classes(problem.balanced, problem.capacity)
        self._room, self._load = weights.of(count)
        self._target = weights.target[:count]

    def of(self, plans: Int64s) -> Float64s:
        """Return the fitness of each plan, shape (k,).

        Args:
            plans: every pod has a node, shape (k, pods).
        """
        problem, count = self._problem, len(plans)
        flat = (plans + np.arange(count)[:, None] * problem.nodes).ravel()
        asked = problem.balanced
        total = np.empty((count * problem.nodes, asked.shape[1]))
        for resource, column in enumerate(asked.T):
            total[:, resource] = np.bincount(flat, np.tile(column, count), count * problem.nodes)
        total += np.tile(problem.used, (count, 1))
        here = total[flat].reshape(count, problem.pods, -1)  # with the pod itself
        values = self._pods(plans, here)
        return np.asarray(values.mean(axis=1))

    def _pods(self, plans: Int64s, here: Float64s) -> Float64s:
        problem = self._problem
        kind = self._class[np.arange(problem.pods), plans]
        capacity = problem.capacity[plans]
        value = _fitness(problem.balanced, here, capacity, self._room[kind], self._load[kind], self._target)
        barred = ~problem.allowed[problem.group, plans]
        value[barred] = np.minimum(value[barred], _MISFIT)
        return value


def fitness_rule(weights: Weights | None = None) -> Callable[[Float64s, Float64s, Float64s], Float64s]:
    """Return the fitness of one pod on each node as a rule, see :mod:`trimaran.planning.rules`."""
    given = weights or Weights()

    def rule(demand: Float64s, used: Float64s, capacity: Float64s) -> Float64s:
        kind = classes(demand[None], capacity)[0]
        room, load = given.of(capacity.shape[1])
        return _fitness(demand, used, capacity, room[kind], load[kind], given.target[: capacity.shape[1]])

    return rule


def _fitness(
    asked: Float64s, here: Float64s, capacity: Float64s, room: Float64s, load: Float64s, target: Float64s
) -> Float64s:
    free = capacity - (here - asked)
    missing = np.maximum(here - capacity, 0.0) / capacity
    with np.errstate(divide="ignore", invalid="ignore"):
        left = np.where(free > 0, 1 - asked / free, 0.0)
    value = (room * left + load * (target - here / capacity)).sum(axis=-1)
    lacking = missing.sum(axis=-1)
    return np.asarray(np.where(lacking > 0, _MISFIT - lacking, value))
