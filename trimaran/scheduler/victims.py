"""Search for the pods that must leave a node so that a pending pod fits there.

On each node, all pods that may be victims are removed. If the pending pod fits then, they are brought back one by one,
the most important first, as long as it still fits; those whose deletion would violate a disruption budget come before
all others. What is left out are the victims. Source: ``SelectVictimsOnNode`` of kube-scheduler's DefaultPreemption.

If all filters that matter to the pod depend only on requests, many nodes are tried at once, as arrays. Otherwise the
nodes are tried one by one, because the pods of one node can affect another; then victims are determined only for nodes
that can be the cheapest.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final
from weakref import ReferenceType, ref

import numpy as np

from runtime.kubernetes.disruption_budgets import DisruptionBudget, violations
from runtime.kubernetes.objects import Pod
from scoring.arrays import Bools, Int64s
from scoring.plugins.filtering import Dependence, FilterPlugin, FilterVerdict
from scoring.table.node_table import NodeTable
from scoring.table.occupancy import PlacedPod
from trimaran.scheduler.feasibility import run_filters

_LATEST = float("inf")
_LEAST_PRIORITY = -(2**31)
NO_VICTIMS: Final = "No preemption victims found for incoming pod"
_NO_POD = np.iinfo(np.int64).max


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
        """Key by which kube-scheduler chooses a node: the least one.

        Priorities count from the least possible one on, so that fewer victims are better, also with negative
        priorities. The last element is the start of the earliest of the most important victims, which should be late.
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
    """Pods of a node that may be victims, in the order in which they are brought back.

    Attributes:
        row: row of the node.
        placed: the pods, first those whose deletion would violate a budget.
        violating: number of the latter.
    """

    row: int
    placed: tuple[PlacedPod, ...]
    violating: int

    def candidate(self, node_name: str, is_victim: Sequence[bool]) -> Candidate | None:
        """Return the candidate whose victims a mask selects; None if it selects none."""
        victims = [placed.pod for placed, taken in zip(self.placed, is_victim, strict=True) if taken]
        if not victims:
            return None
        return Candidate(node_name, tuple(sorted(victims, key=importance)), sum(is_victim[: self.violating]))


@dataclass(frozen=True, slots=True)
class OpenCandidate:
    """Candidate whose victims are not determined yet, because that is expensive; none of them violates a budget."""

    pods: _Removable
    violations: ClassVar[int] = 0


class VictimSearch:
    """Search for victims on the nodes of a table, for one pending pod.

    Args:
        filters: filter plugins in order.
        pod: pending pod.
        nodes: node table with all pods; it is not changed.
        rows: rows that may be searched, in any order, shape (k,).
        budgets: disruption budgets.
        may_leave: whether a pod may be a victim.
    """

    def __init__(
        self,
        filters: Sequence[FilterPlugin],
        pod: Pod,
        nodes: NodeTable,
        rows: Int64s,
        budgets: Collection[DisruptionBudget],
        may_leave: Callable[[Pod], bool],
    ) -> None:
        self._pod, self._nodes, self._budgets, self._may_leave = pod, nodes, tuple(budgets), may_leave
        # Removing pods cannot change the verdicts of filters that depend on nodes only.
        self._refused: dict[int, tuple[str, ...]] = {}
        self._filters: list[FilterPlugin] = []
        for each in filters:
            verdict = each.filter(pod, nodes, rows)
            if verdict is None:
                continue  # as in kube-scheduler, a filter that skips the pod is not asked again
            if each.depends_on is Dependence.NODES:
                self._refused.update(_refusals(verdict, rows))
            else:
                self._filters.append(each)

        self._depends_on_requests = all(each.depends_on is Dependence.REQUESTS for each in self._filters)

    def search(self, rows: Int64s, at_once: int) -> Iterator[Candidate | OpenCandidate | tuple[str, ...]]:
        """Yield for each row the candidate, or the reasons why there is none.

        Args:
            rows: rows to search, in this order.
            at_once: largest number of rows to search at once, before the first is yielded.
        """
        step = at_once if self._depends_on_requests else 1
        for begin in range(0, len(rows), step):
            yield from self._search(rows[begin : begin + step])

    def cheapest(self, found: Sequence[Candidate | OpenCandidate]) -> Candidate:
        """Return the candidate with the least cost, the first of equals.

        Victims of open candidates are determined only where they can matter. A pod that comes back in spite of all
        filters also comes back in spite of those that depend on requests, as long as the pods before it are the same;
        so with these filters alone, the most important victim is not more important than the real one.
        """
        tops = self._least_tops([each.pods for each in found if isinstance(each, OpenCandidate)])
        at_least = [
            (0, tops[each.pods.row]) if isinstance(each, OpenCandidate) else (each.violations, each.victims[0].priority)
            for each in found
        ]
        best: tuple[tuple[float, ...], int, Candidate] | None = None
        for place in sorted(range(len(found)), key=at_least.__getitem__):
            if best is not None and at_least[place] > best[0][:2]:
                break
            each = found[place]
            candidate = each if isinstance(each, Candidate) else self._complete(each.pods)
            if candidate is not None and (best is None or (candidate.cost, place) < best[:2]):
                best = candidate.cost, place, candidate
        if best is None:
            raise ValueError("no candidate has a victim; a filter gave different verdicts for the same pods")
        return best[2]

    def _search(self, rows: Int64s) -> Iterator[Candidate | OpenCandidate | tuple[str, ...]]:
        removable: list[_Removable] = []
        results: dict[int, Candidate | OpenCandidate | tuple[str, ...]] = {}
        for row in rows.tolist():
            pods = self._removable(row)
            if not pods.placed:
                results[row] = (NO_VICTIMS,)
            elif row in self._refused:
                results[row] = self._refused[row]
            else:
                removable.append(pods)
        if self._depends_on_requests:
            results.update(self._try_together(self._filters, removable))
        else:
            results.update((pods.row, self._try_one(pods)) for pods in removable)
        for row in rows.tolist():
            yield results[row]

    def _removable(self, row: int) -> _Removable:
        """Return the pods of a row that may be victims, the most important first."""
        placed = [each for each in self._nodes.placed_on(row) if self._may_leave(each.pod)]
        placed.sort(key=_importance_of)
        if not self._budgets:
            return _Removable(row, tuple(placed), 0)
        violates = violations([each.pod for each in placed], self._budgets)
        first = [each for each, violating in zip(placed, violates, strict=True) if violating]
        rest = [each for each, violating in zip(placed, violates, strict=True) if not violating]
        return _Removable(row, (*first, *rest), len(first))

    def _try_one(self, pods: _Removable) -> Candidate | OpenCandidate | tuple[str, ...]:
        result = run_filters(self._filters, self._pod, self._without(pods), np.array([pods.row]))
        if not result.feasible[0]:
            return next(iter(result.verdicts.values())).reasons(0)
        if not pods.violating:
            return OpenCandidate(pods)
        return self._complete(pods) or (NO_VICTIMS,)

    def _complete(self, pods: _Removable) -> Candidate | None:
        """Return the candidate of a node where the pod fits without these pods."""
        plan, rows, name = self._without(pods), np.array([pods.row]), self._nodes.names[pods.row]
        is_victim: list[bool] = []
        for placed in pods.placed:
            plan.add(placed.pod, name, placed.placed_at)
            is_victim.append(not run_filters(self._filters, self._pod, plan, rows).feasible[0])
            if is_victim[-1]:
                plan.remove(placed.pod)
        return pods.candidate(name, is_victim)

    def _without(self, pods: _Removable) -> NodeTable:
        plan = self._nodes.copy()
        for placed in pods.placed:
            plan.remove(placed.pod)
        return plan

    def _least_tops(self, removable: Sequence[_Removable]) -> Mapping[int, int]:
        """Return by row a priority that the most important victim has at least."""
        filters = [each for each in self._filters if each.depends_on is Dependence.REQUESTS]
        tops = {pods.row: pods.placed[-1].pod.priority for pods in removable}
        for row, result in self._try_together(filters, removable):
            if isinstance(result, Candidate):
                tops[row] = result.victims[0].priority
        return tops

    def _try_together(
        self, filters: Sequence[FilterPlugin], removable: Sequence[_Removable]
    ) -> Iterator[tuple[int, Candidate | tuple[str, ...]]]:
        """Yield the result of each row; for filters that depend on the sums over each node's own pods."""
        if not removable:
            return
        plan = self._nodes.copy()
        sums = plan.occupancy.sums
        rows, names = np.array([pods.row for pods in removable]), self._nodes.names
        # One line for each pod: what it adds to its node. The lines of a node follow each other.
        sizes = np.array([len(pods.placed) for pods in removable])
        begins = np.cumsum(sizes) - sizes
        changes = np.array([sums.change(placed.pod) for pods in removable for placed in pods.placed])
        sums.amounts[:, rows] -= np.add.reduceat(changes, begins).T
        result = run_filters(filters, self._pod, plan, rows)
        is_victim: Bools = np.zeros(len(changes), np.bool_)
        # Step by step, one more pod of each node comes back.
        for step in range(sizes.max()):
            still = np.flatnonzero(result.feasible & (sizes > step))
            if not still.size:
                break
            lines = begins[still] + step
            sums.amounts[:, rows[still]] += changes[lines].T
            refused = ~run_filters(filters, self._pod, plan, rows[still]).feasible
            sums.amounts[:, rows[still[refused]]] -= changes[lines[refused]].T
            is_victim[lines[refused]] = True
        for index, pods in enumerate(removable):
            if result.feasible[index]:
                mask = is_victim[begins[index] : begins[index] + sizes[index]].tolist()
                yield pods.row, pods.candidate(names[pods.row], mask) or (NO_VICTIMS,)
            else:
                yield pods.row, _first_reasons(result.verdicts, index)


class LowestPriorities:
    """Lowest priority of the pods on each node; after a change of the table only the changed rows are read again.

    In a cluster full of pods of one priority, this rules out preemption in microseconds.
    """

    def __init__(self) -> None:
        self._table: ReferenceType[NodeTable] | None = None
        self._names: tuple[str, ...] = ()
        self._scheduler_name: str | None = None
        self._version = -1
        self._lowest: Int64s = np.zeros(0, np.int64)

    def of(self, nodes: NodeTable, scheduler_name: str | None) -> Int64s:
        """Return the lowest priority on each node, shape (nodes,); the largest int64 for a node without pods.

        Args:
            nodes: node table.
            scheduler_name: count only the pods of this scheduler; None for all.
        """
        is_same = self._table is not None and self._table() is nodes and self._names is nodes.names
        if is_same and self._scheduler_name == scheduler_name:
            changed = nodes.changed_rows(self._version)
        else:
            changed = np.arange(len(nodes))
            self._lowest = np.full(len(nodes), _NO_POD)
            self._table, self._names, self._scheduler_name = ref(nodes), nodes.names, scheduler_name
        for row in changed.tolist():
            self._lowest[row] = min(
                (
                    placed.pod.priority
                    for placed in nodes.placed_on(row)
                    if scheduler_name is None or placed.pod.scheduler_name == scheduler_name
                ),
                default=_NO_POD,
            )
        self._version = nodes.version
        return self._lowest


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
