"""Where local search starts: pods one by one, each where it costs least, gangs as a whole."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from scoring.arrays import Bools, Float64s, Int64s
from trimaran.planning.problem import UNPLACED, Problem, imbalances

_ALIKE = 1e-12  # of costs: then the node with fewer new pods is taken, or pods that request nothing would share one


def greedy(problem: Problem) -> tuple[Int64s, Problem]:
    """Place pods one by one, the urgent, the ganged and the large first, where it costs least.

    The cost is the rise of the node's imbalance, and of the square of how far it is from what all nodes together will
    be used.

    Returns:
        The plan, and the problem with each gang held to the domain that it went to.
    """
    state = _Filling(problem)
    size = (problem.balanced / problem.capacity.mean(axis=0)).max(axis=1)
    allowed, group = [*problem.allowed], problem.group.copy()
    for gang, pods in _in_order(problem, size):
        if gang < 0:
            state.place(pods, problem.allowed)
            continue
        domains = [None] if problem.domain is None else state.domains(pods)
        for domain in domains:
            within = problem.allowed if domain is None else problem.allowed & (problem.domain == domain)
            if state.place(pods, within, whole=True):
                if domain is not None:
                    for old in np.unique(problem.group[pods]):
                        allowed.append(within[old])
                        group[pods[problem.group[pods] == old]] = len(allowed) - 1
                break
    return state.plan, replace(problem, group=group, allowed=np.array(allowed))


def _in_order(problem: Problem, size: Float64s) -> Iterator[tuple[int, Int64s]]:
    """Yield the gangs and the pods without one, the highest priority first, then gangs, then the largest."""
    order = np.lexsort((-size, problem.gang < 0, -problem.priority))
    seen: set[int] = set()
    alone: list[int] = []
    for pod in order.tolist():
        gang = int(problem.gang[pod])
        if gang < 0:
            alone.append(pod)
        elif gang not in seen:
            if alone:
                yield -1, np.array(alone)
                alone = []
            seen.add(gang)
            members = np.flatnonzero(problem.gang == gang)
            yield gang, members[(-size[members]).argsort(kind="stable")]
    if alone:
        yield -1, np.array(alone)


class _Filling:
    """Nodes that are being filled.

    Attributes:
        plan: what was placed where so far.
    """

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self.plan = np.full(problem.pods, UNPLACED)
        self._room = problem.limit
        self._use = problem.used / problem.capacity
        self._pods = np.zeros(problem.nodes, np.int64)
        total = (problem.used.sum(axis=0) + problem.balanced.sum(axis=0)) / problem.capacity.sum(axis=0)
        self._aim = min(float(total.mean()), 1.0)

    def place(self, pods: Int64s, allowed: Bools, *, whole: bool = False) -> bool:
        """Place pods, each where it costs least; return whether all have a node. ``whole``: all of them or none."""
        problem = self._problem
        before = self._room.copy(), self._use.copy(), self.plan.copy(), self._pods.copy()
        complete = True
        for pod in pods:
            demand = problem.demand[pod]
            fits = (demand <= self._room).all(axis=1) & allowed[problem.group[pod]]
            candidates = np.flatnonzero(fits)
            if not len(candidates):
                complete = False
                if whole:
                    self._room, self._use, self.plan, self._pods = before
                    return False
                continue
            use = self._use[candidates]
            after = use + problem.balanced[pod] / problem.capacity[candidates]
            rise = imbalances(after) - imbalances(use)
            rise += (after.mean(axis=1) - self._aim) ** 2 - (use.mean(axis=1) - self._aim) ** 2
            alike = candidates[rise <= rise.min() + _ALIKE]
            node = alike[self._pods[alike].argmin()]
            self._pods[node] += 1
            self.plan[pod] = node
            self._room[node] -= demand
            self._use[node] += problem.balanced[pod] / problem.capacity[node]
        return complete

    def domains(self, pods: Int64s) -> list[int]:
        """Return the domains that a gang might go to, those with most room first."""
        domain = self._problem.domain
        assert domain is not None  # noqa: S101
        wanted = np.maximum(self._problem.demand[pods].sum(axis=0), np.finfo(np.float64).tiny)
        there = np.unique(domain[domain >= 0])
        room = [float((self._room[domain == each].sum(axis=0) / wanted).min()) for each in there]
        return [int(there[place]) for place in np.argsort(room)[::-1] if room[place] >= 1]
