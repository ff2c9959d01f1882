"""Search for the pods that must leave a node so that a pending pod fits there.

On each node, all pods that may be victims are removed. If the pending pod then fits, they are restored one by one as
long as it still fits, the most important first; pods whose deletion would violate a disruption budget come before all
others. Pods that are not restored are the victims. Source: ``SelectVictimsOnNode`` of kube-scheduler.

If all filters that matter to the pod depend only on requests, many nodes are tried at once, as arrays. Otherwise the
nodes are tried one by one, because the pods of one node can affect another; then victims are determined only for nodes
that can be the cheapest so far.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np

from runtime.kubernetes.disruption_budgets import DisruptionBudget, violations
from runtime.kubernetes.objects import Pod
from scoring.arrays import Bools, Int64s
from scoring.plugins.filtering import Dependence, FilterPlugin, FilterVerdict, verdict_of
from scoring.table.node_table import NodeTable
from scoring.table.placed_pods import PlacedPod
from trimaran.scheduler.framework.feasibility import run_filters
from trimaran.scheduler.plugins.preemption.aggregate_constraints import NO_BOUNDS, AggregateConstraints

_LATEST = float("inf")
_LEAST_PRIORITY = -(2**31)
_MOST = float("inf")
NO_VICTIMS: Final = "No preemption victims found for incoming pod"


@dataclass(frozen=True, slots=True)
class Candidate:
    """Node on which a pending pod fits once some pods are gone.

    Attributes:
        node_name: name of the node.
        victims: pods to delete, the most important first; at least one.
        violations: number of victims whose deletion violates a disruption budget.
    """

    node_name: str
    victims: tuple[Pod, ...]
    violations: int

    @property
    def cost(self) -> tuple[float, ...]:
        """Key by which kube-scheduler chooses among the candidates: the least key wins.

        Priorities are counted from the lowest possible priority, so that fewer victims are better even with negative
        priorities. The last element prefers nodes whose most important victim started late.
        Source: ``pickOneNodeForPreemption``.
        """
        first_priority, started_at = importance(self.victims[0])
        return (
            self.violations,
            -first_priority,
            sum(victim.priority - _LEAST_PRIORITY for victim in self.victims),
            len(self.victims),
            -started_at,
        )


@dataclass(frozen=True, slots=True)
class _Removable:
    """Pods of a node that may be victims, in the order in which they are restored.

    Attributes:
        row: row of the node.
        placed: the pods, first those whose deletion would violate a budget.
        violating: number of pods whose deletion would violate a budget.
    """

    row: int
    placed: tuple[PlacedPod, ...]
    violating: int

    def candidate(self, node_name: str, is_victim: Sequence[bool]) -> Candidate | None:
        """Return the candidate whose victims a mask selects; None if the mask selects no pod."""
        victims = [placed.pod for placed, taken in zip(self.placed, is_victim, strict=True) if taken]
        if not victims:
            return None
        return Candidate(node_name, tuple(sorted(victims, key=importance)), sum(is_victim[: self.violating]))


@dataclass(frozen=True, slots=True)
class DominatedCandidate:
    """Candidate that costs more than another candidate, so that its victims were not determined."""

    violations: ClassVar[int] = 0


class VictimSearch:
    """Search for victims on the nodes of a table, for one pending pod.

    Args:
        filters: filter plugins in order.
        pod: pending pod.
        nodes: node table with all pods; it is not changed.
        rows: rows that may be searched, in any order, shape (k,).
        budgets: disruption budgets.
        possible: returns which of the pods of a node may be victims.
        bounds: limits in addition to the filters.
    """

    def __init__(
        self,
        filters: Sequence[FilterPlugin],
        pod: Pod,
        nodes: NodeTable,
        rows: Int64s,
        budgets: Collection[DisruptionBudget],
        possible: Callable[[Iterable[PlacedPod]], list[PlacedPod]],
        bounds: AggregateConstraints = NO_BOUNDS,
    ) -> None:
        self._pod, self._nodes, self._budgets, self._possible = pod, nodes, tuple(budgets), possible
        self._bounds = bounds
        # Removing pods cannot change the verdicts of filters that depend on nodes only.
        self._refused: dict[int, tuple[str, ...]] = {}
        self._filters: list[FilterPlugin] = []
        for each in filters:
            verdict = verdict_of(each, pod, nodes, rows)
            if verdict is None:
                continue  # as in kube-scheduler, a filter that skips the pod is not asked again
            if each.depends_on is Dependence.NODES:
                self._refused.update(_refusals(verdict, rows))
            else:
                self._filters.append(each)

        self._by_requests = [each for each in self._filters if each.depends_on is Dependence.REQUESTS]
        self._plan: NodeTable | None = None  # copy of the table, on which nodes are tried one after the other
        self._best: tuple[float, ...] = (_MOST,)  # first elements of the least cost so far, without violations

    def search(self, rows: Int64s, at_once: int) -> Iterator[Candidate | DominatedCandidate | tuple[str, ...]]:
        """Yield for each row the candidate, or the reasons why there is none.

        Args:
            rows: rows to search, in this order.
            at_once: largest number of rows to search at once, before the first is yielded.
        """
        for begin in range(0, len(rows), at_once):
            yield from self._search(rows[begin : begin + at_once])

    def _search(self, rows: Int64s) -> Iterator[Candidate | DominatedCandidate | tuple[str, ...]]:
        removable: dict[int, _Removable] = {}
        refused: dict[int, tuple[str, ...]] = {}
        for row in rows.tolist():
            pods = self._removable(row)
            if not pods.placed:
                refused[row] = (NO_VICTIMS,)
            elif row in self._refused:
                refused[row] = self._refused[row]
            else:
                removable[row] = pods
        together = dict(self._try_together(self._by_requests, list(removable.values())))
        tells_reason = self._by_requests == self._filters[: len(self._by_requests)]  # the first refusal is the reason
        for row in rows.tolist():
            if row in refused:
                yield refused[row]
                continue
            result = together[row]
            has_room = isinstance(result, Candidate) or result == (NO_VICTIMS,)
            if self._by_requests == self._filters or (not has_room and tells_reason):
                yield result
            else:
                yield self._try_one(removable[row], result)

    def _removable(self, row: int) -> _Removable:
        """Return the pods of a row that may be victims, the most important first."""
        placed = self._possible(self._nodes.placed_on(row))
        placed.sort(key=_importance_of)
        if not self._budgets:
            return _Removable(row, tuple(placed), 0)
        violates = violations([each.pod for each in placed], self._budgets)
        first = [each for each, violating in zip(placed, violates, strict=True) if violating]
        rest = [each for each, violating in zip(placed, violates, strict=True) if not violating]
        return _Removable(row, (*first, *rest), len(first))

    def _try_one(
        self, pods: _Removable, by_requests: Candidate | tuple[str, ...]
    ) -> Candidate | DominatedCandidate | tuple[str, ...]:
        """Return the candidate of one node, or the reasons why there is none.

        Args:
            pods: pods of the node that may be victims.
            by_requests: result for the filters that depend on requests alone. With all filters, the first pod that
                cannot be restored comes no later. The most important victim is therefore at least as important as
                in this result.
        """
        if self._plan is None:
            self._plan = self._nodes.copy()
        plan, name = self._plan, self._nodes.names[pods.row]
        for placed in pods.placed:
            plan.remove(placed.pod)
        try:
            return self._bring_back(plan, pods, by_requests)
        finally:
            for placed in pods.placed:
                if plan.find(placed.pod) is None:
                    plan.add(placed.pod, name, placed.placed_at)

    def _bring_back(
        self, plan: NodeTable, pods: _Removable, by_requests: Candidate | tuple[str, ...]
    ) -> Candidate | DominatedCandidate | tuple[str, ...]:
        """Restore as many removed pods of a node as possible; return the candidate, or why there is none."""
        rows, name = np.array([pods.row]), self._nodes.names[pods.row]
        result = run_filters(self._filters, self._pod, plan, rows)
        if not result.feasible[0]:
            return next(iter(result.verdicts.values())).reasons(0)
        frees = self._bounds.freed_by([placed.pod for placed in pods.placed])
        freed = frees.sum(axis=0, keepdims=True)
        if not self._bounds.are_kept(freed)[0]:
            return (self._bounds.reason,)
        if not pods.violating and isinstance(by_requests, Candidate) and by_requests.cost[:2] > self._best[:2]:
            return DominatedCandidate()
        is_victim: list[bool] = []
        cost: tuple[float, ...] = ()
        for placed, frees_one in zip(pods.placed, frees, strict=True):
            plan.add(placed.pod, name, placed.placed_at)
            fits = (
                self._bounds.are_kept(freed - frees_one)[0]
                and run_filters(self._filters, self._pod, plan, rows).feasible[0]
            )
            is_victim.append(not fits)
            if fits:
                freed = freed - frees_one
            else:
                plan.remove(placed.pod)
                # Each further victim only adds to the cost.
                cost = _begun(cost, placed.pod)
                if not pods.violating and cost > self._best:
                    return DominatedCandidate()
        candidate = pods.candidate(name, is_victim)
        if candidate is None:
            return (NO_VICTIMS,)
        if not candidate.violations:
            self._best = min(self._best, candidate.cost[:3])
        return candidate

    def _try_together(
        self, filters: Sequence[FilterPlugin], removable: Sequence[_Removable]
    ) -> Iterator[tuple[int, Candidate | tuple[str, ...]]]:
        """Yield row and result of each node, all computed together; filters must depend on sums over its pods only."""
        if not removable:
            return
        plan = self._nodes.copy()
        sums = plan.occupancy.sums
        rows, names = np.array([pods.row for pods in removable]), self._nodes.names
        # One line for each pod: the amounts that it adds to its node. The lines of a node are consecutive.
        sizes = np.array([len(pods.placed) for pods in removable])
        begins = np.cumsum(sizes) - sizes
        changes = np.array([sums.change(placed.pod) for pods in removable for placed in pods.placed])
        sums.amounts[:, rows] -= np.add.reduceat(changes, begins).T
        result = run_filters(filters, self._pod, plan, rows)
        frees = self._bounds.freed_by([placed.pod for pods in removable for placed in pods.placed])
        freed = np.add.reduceat(frees, begins)
        feasible = result.feasible & self._bounds.are_kept(freed)
        is_victim: Bools = np.zeros(len(changes), np.bool_)
        # Each step restores one more pod of each node.
        for step in range(sizes.max()):
            still = np.flatnonzero(feasible & (sizes > step))
            if not still.size:
                break
            lines = begins[still] + step
            sums.amounts[:, rows[still]] += changes[lines].T
            freed[still] -= frees[lines]
            refused = ~run_filters(filters, self._pod, plan, rows[still]).feasible | ~self._bounds.are_kept(
                freed[still]
            )
            freed[still[refused]] += frees[lines[refused]]
            sums.amounts[:, rows[still[refused]]] -= changes[lines[refused]].T
            is_victim[lines[refused]] = True
        for index, pods in enumerate(removable):
            if feasible[index]:
                mask = is_victim[begins[index] : begins[index] + sizes[index]].tolist()
                yield pods.row, pods.candidate(names[pods.row], mask) or (NO_VICTIMS,)
            elif result.feasible[index]:
                yield pods.row, (self._bounds.reason,)
            else:
                yield pods.row, _first_reasons(result.verdicts, index)


def _begun(cost: tuple[float, ...], victim: Pod) -> tuple[float, ...]:
    """Add a less important victim to the first three elements of a candidate's cost, which has no violations."""
    if not cost:
        return 0, victim.priority, victim.priority - _LEAST_PRIORITY
    return *cost[:2], cost[2] + victim.priority - _LEAST_PRIORITY


def importance(pod: Pod) -> tuple[int, float]:
    """Return a key that sorts pods by importance, the most important first: by priority, then by time of start."""
    return -pod.priority, _LATEST if pod.started_at is None else pod.started_at


def _importance_of(placed: PlacedPod) -> tuple[int, float]:
    return importance(placed.pod)


def _refusals(verdict: FilterVerdict, rows: Int64s) -> Iterator[tuple[int, tuple[str, ...]]]:
    for index in np.flatnonzero(~verdict.allowed).tolist():
        yield int(rows[index]), verdict.reasons(index)


def _first_reasons(verdicts: Mapping[str, FilterVerdict], index: int) -> tuple[str, ...]:
    return next(verdict.reasons(index) for verdict in verdicts.values() if not verdict.allowed[index])
