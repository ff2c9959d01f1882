"""CrossNodePreemption: victims on several nodes, for a pod that pods on other nodes exclude from every node.

DefaultPreemption looks for victims on one node at a time. It cannot help a pod whose anti-affinity or topology spread
is violated by pods on other nodes of the zone. This plugin removes all possible victims from a copy of all nodes. For
each node where the pod then fits, it restores them, the most important first, half of the rest at a time, as long as
the pod still fits. The pods that are not restored are the victims. The node with the cheapest victims is chosen, as by
DefaultPreemption. The search is bounded by the number of pods removed, and by the number of sets of victims tried.
Experimental. Source: kubernetes-sigs/scheduler-plugins v0.33.5, pkg/crossnodepreemption, which tries all subsets.
"""

import random
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Self

import numpy as np

from runtime.kubernetes.disruption_budgets import DisruptionBudget, violations
from runtime.kubernetes.objects import Pod
from scoring.arrays import Bools, Int64s
from scoring.plugins.filtering import FilterPlugin
from scoring.profiles.configuration.fields import FieldReader
from scoring.table.node_table import NodeTable
from scoring.table.placed_pods import PlacedPod
from trimaran.scheduler.framework.feasibility import run_filters
from trimaran.scheduler.plugins.arguments import finish, whole_number
from trimaran.scheduler.plugins.preemption.default_preemption import DefaultPreemption, PreemptionOptions
from trimaran.scheduler.plugins.preemption.victims import NO_VICTIMS, Candidate, importance

_NO_SET: Final = "node(s) for which no pods were found whose deletion lets the pod fit"
_LIMIT: Final = "node(s) not tried, since the search reached maxTriedSets"


@dataclass(frozen=True)
class CrossNodeArgs:
    """Arguments of the plugin; upstream has none.

    Attributes:
        max_victims: largest number of pods that the search removes, the least important ones.
        max_tried_sets: number of sets of victims after which the search ends.
    """

    max_victims: int = 2000
    max_tried_sets: int = 1000

    @classmethod
    def from_config(cls, reader: FieldReader) -> Self:
        """Read ``CrossNodePreemptionArgs``.

        Raises:
            ValueError: an argument is invalid or unknown; the message begins with its path.
        """
        victims = whole_number(reader, "maxVictims", cls.max_victims, 1)
        sets = whole_number(reader, "maxTriedSets", cls.max_tried_sets, 1)
        finish(reader)
        return cls(victims, sets)


class CrossNodePreemption(DefaultPreemption):
    """Preemption of pods on several nodes.

    Args:
        filters: as for DefaultPreemption.
        budgets: as for DefaultPreemption.
        dice: as for DefaultPreemption.
        options: whether victims may be pods of other schedulers, or on nodes that other schedulers use.
        arguments: arguments of the plugin.
    """

    name = "CrossNodePreemption"

    def __init__(
        self,
        filters: Sequence[FilterPlugin],
        budgets: Callable[[], Collection[DisruptionBudget]],
        dice: random.Random,
        options: PreemptionOptions,
        arguments: CrossNodeArgs = CrossNodeArgs(),
    ) -> None:
        super().__init__(filters, budgets, dice, options)
        self._arguments = arguments

    def choose(self, pod: Pod, nodes: NodeTable, resolvable: Bools) -> tuple[Candidate | None, Counter[str]]:
        """Return the cheapest candidate, None without one, and the number of nodes that each reason excludes."""
        targets = np.flatnonzero(resolvable & self.may_use(pod, nodes))
        reasons = Counter({NO_VICTIMS: len(nodes) - len(targets)} if len(targets) < len(nodes) else {})
        removable = self._removable(pod, nodes)
        search = _Search(self.filters, pod, nodes, removable, self._arguments.max_tried_sets)
        best: Candidate | None = None
        for row in targets.tolist():
            if search.is_over:
                reasons[_LIMIT] += 1
                continue
            found = search.on(row)
            if found is None:
                reasons[_NO_SET] += 1
            elif best is None or found.cost < best.cost:
                best = found
        return best, reasons

    def leaving(self, row: int, nodes: NodeTable) -> Iterable[Pod]:  # noqa: ARG002  wherever they are
        """Return the terminating pods of all nodes: a pod that is nominated to a row may wait for the end of any."""
        return (placed.pod for _, placed in nodes.placed_pods() if placed.pod.terminating)

    def _removable(self, pod: Pod, nodes: NodeTable) -> "_Removable":
        """Return the pods that may be victims: first those whose deletion violates a budget, each by importance."""
        usable = self.may_use(pod, nodes)
        found = [
            (row, placed) for row, placed in nodes.placed_pods() if usable[row] and self.may_be_victim(placed.pod, pod)
        ]
        found.sort(key=lambda each: importance(each[1].pod))
        found = found[-self._arguments.max_victims :]
        violates = violations([placed.pod for _, placed in found], tuple(self.budgets()))
        first = [each for each, violating in zip(found, violates, strict=True) if violating]
        rest = [each for each, violating in zip(found, violates, strict=True) if not violating]
        return _Removable((*first, *rest), frozenset(placed.pod.uid for _, placed in first))


@dataclass(frozen=True)
class _Removable:
    """Pods that may be victims.

    Attributes:
        placed: the pods with their rows, in the order in which they are restored.
        violating: uids of the pods whose deletion violates a budget.
    """

    placed: tuple[tuple[int, PlacedPod], ...]
    violating: frozenset[str]


class _Search:
    """Search for victims, for one node after the other.

    Args:
        filters: filter plugins, in order.
        pod: pending pod.
        nodes: node table; it is not changed.
        removable: pods that may be victims.
        most: number of sets of victims to try.
    """

    def __init__(
        self, filters: Sequence[FilterPlugin], pod: Pod, nodes: NodeTable, removable: _Removable, most: int
    ) -> None:
        self._filters, self._pod, self._nodes, self._removable = filters, pod, nodes, removable
        self._plan = nodes.copy()
        self._left = most
        for _, placed in removable.placed:
            self._plan.remove(placed.pod)

    @property
    def is_over(self) -> bool:
        """Return whether ``most`` sets of victims have been tried."""
        return self._left <= 0

    def on(self, row: int) -> Candidate | None:
        """Return the node of a row with victims after whose deletion the pod fits there; None if there are none."""
        rows, plan = np.array([row]), self._plan
        if not self._removable.placed or not self._fits(rows):
            return None
        plan_before = plan.copy()
        victims = self._bring_back(list(self._removable.placed), rows)
        self._plan = plan_before
        if self.is_over or not victims:
            return None
        violating = sum(each.uid in self._removable.violating for each in victims)
        return Candidate(self._nodes.names[row], tuple(sorted(victims, key=importance)), violating)

    def _bring_back(self, some: list[tuple[int, PlacedPod]], rows: Int64s) -> list[Pod]:
        """Restore as many pods as possible; return the pods without which the pending pod would not fit."""
        if not some:
            return []
        for row, placed in some:
            self._plan.add(placed.pod, self._nodes.names[row], placed.placed_at)
        if self._fits(rows):
            return []
        for _, placed in some:
            self._plan.remove(placed.pod)
        if len(some) == 1:
            return [some[0][1].pod]
        half = len(some) // 2
        return self._bring_back(some[:half], rows) + self._bring_back(some[half:], rows)

    def _fits(self, rows: Int64s) -> bool:
        self._left -= 1
        return self._left >= 0 and bool(run_filters(self._filters, self._pod, self._plan, rows).feasible[0])
