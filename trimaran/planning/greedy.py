"""Greedy placement, the start of the local search: one pod after another goes to the node where it costs least.

The pods of a gang are placed together.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from scoring.arrays import Bools, Float64s, Int64s
from trimaran.planning.problem import UNPLACED, Problem, imbalances

_TIE = 1e-12  # costs this close count as equal, and the node with fewer new pods wins


def greedy(problem: Problem) -> tuple[Int64s, Problem]:
    """Place pods one by one, each on the node where it costs least.

    Pods of high priority come first; of the same priority, gangs come first, then large pods. The cost of a pod is the
    increase of its node's imbalance, plus the increase of (mean use of the node - target)^2. The target is the mean use
    of all nodes once all pods are placed.

    Returns:
        The plan, and the problem in which each placed gang is allowed only on the nodes of its topology domain.
    """
    state = _GreedyState(problem)
    size = (problem.balanced / problem.capacity.mean(axis=0)).max(axis=1)
    allowed, group = [*problem.allowed], problem.group.copy()
    for gang, pods in _in_order(problem, size):
        if gang < 0:
            state.place(pods, problem.allowed)
            continue
        domains = [None] if problem.domain is None else state.domains(pods)
        for domain in domains:
            within = problem.allowed if domain is None else problem.allowed & (problem.domain == domain)
            if state.place(pods, within, all_or_none=True):
                # Later searches may move the gang's pods within this domain only.
                if domain is not None:
                    for old in np.unique(problem.group[pods]):
                        allowed.append(within[old])
                        group[pods[problem.group[pods] == old]] = len(allowed) - 1
                break
    return state.plan, replace(problem, group=group, allowed=np.array(allowed))


def _in_order(problem: Problem, size: Float64s) -> Iterator[tuple[int, Int64s]]:
    """Yield the pods in the order of placement: each gang with its pods, and -1 with a run of pods without a gang.

    Args:
        problem: pods and nodes.
        size: largest request of each pod, as a share of a mean node's capacity, shape (pods,).
    """
    order = np.lexsort((-size, problem.gang < 0, -problem.priority))
    seen: set[int] = set()
    single: list[int] = []
    for pod in order.tolist():
        gang = int(problem.gang[pod])
        if gang < 0:
            single.append(pod)
        elif gang not in seen:
            if single:
                yield -1, np.array(single)
                single = []
            seen.add(gang)
            members = np.flatnonzero(problem.gang == gang)
            yield gang, members[(-size[members]).argsort(kind="stable")]
    if single:
        yield -1, np.array(single)


class _GreedyState:
    """Plan, and free capacity and use of the nodes, during greedy placement.

    Attributes:
        plan: node of each pod, -1 for pods that are not placed yet.
    """

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self.plan = np.full(problem.pods, UNPLACED)
        self._room = problem.limit
        self._use = problem.used / problem.capacity
        self._pods = np.zeros(problem.nodes, np.int64)
        total = (problem.used.sum(axis=0) + problem.balanced.sum(axis=0)) / problem.capacity.sum(axis=0)
        self._target = min(float(total.mean()), 1.0)

    def place(self, pods: Int64s, allowed: Bools, *, all_or_none: bool = False) -> bool:
        """Place pods, each on the node where it costs least; return whether all of them were placed.

        Args:
            pods: indices of pods, in the order of placement.
            allowed: true for nodes that each group of pods may use, shape (groups, nodes).
            all_or_none: if a pod fits nowhere, place none of the pods.
        """
        problem = self._problem
        before = self._room.copy(), self._use.copy(), self.plan.copy(), self._pods.copy()
        complete = True
        for pod in pods:
            demand = problem.demand[pod]
            fits = (demand <= self._room).all(axis=1) & allowed[problem.group[pod]]
            candidates = np.flatnonzero(fits)
            if not len(candidates):
                complete = False
                if all_or_none:
                    self._room, self._use, self.plan, self._pods = before
                    return False
                continue
            use = self._use[candidates]
            after = use + problem.balanced[pod] / problem.capacity[candidates]
            rise = imbalances(after) - imbalances(use)
            rise += (after.mean(axis=1) - self._target) ** 2 - (use.mean(axis=1) - self._target) ** 2
            # Without this tie-break, pods that request nothing would all go to one node.
            tied = candidates[rise <= rise.min() + _TIE]
            node = tied[self._pods[tied].argmin()]
            self._pods[node] += 1
            self.plan[pod] = node
            self._room[node] -= demand
            self._use[node] += problem.balanced[pod] / problem.capacity[node]
        return complete

    def domains(self, pods: Int64s) -> list[int]:
        """Return the topology domains whose free capacity fits the sum of a gang's requests, the largest first.

        Args:
            pods: pods of the gang.
        """
        domain = self._problem.domain
        assert domain is not None  # noqa: S101
        demand = self._problem.demand[pods].sum(axis=0)
        requested = demand > 0  # a gang without GPUs may go to a domain without any
        names = np.unique(domain[domain >= 0])
        rooms = [self._room[domain == name].sum(axis=0) for name in names]
        room = [float((amounts[requested] / demand[requested]).min(initial=np.inf)) for amounts in rooms]
        return [int(names[place]) for place in np.argsort(room)[::-1] if room[place] >= 1]
