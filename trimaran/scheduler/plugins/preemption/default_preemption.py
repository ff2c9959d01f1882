"""DefaultPreemption: delete pods of lower priority on one node, so that a pending pod fits there.

Source: k8s.io/kubernetes/pkg/scheduler/framework/preemption and its plugin DefaultPreemption, version 1.37, without
groups of pods (feature gate GenericWorkload, which is off by default).
"""

import random
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from runtime.errors import quoted
from runtime.kubernetes.disruption_budgets import DisruptionBudget
from runtime.kubernetes.objects import Pod
from scoring.arrays import Bools, Int64s
from scoring.plugins.filtering import FilterPlugin, FilterVerdict
from scoring.profiles.configuration.fields import FieldReader
from scoring.table.node_table import NodeTable
from scoring.table.placed_pods import PlacedPod
from trimaran.scheduler.framework.extension_points import PostFilterPlugin, Preemption, Rejection
from trimaran.scheduler.plugins.arguments import finish, whole_number
from trimaran.scheduler.plugins.preemption.aggregate_constraints import NO_BOUNDS, AggregateConstraints
from trimaran.scheduler.plugins.preemption.lowest_priorities import LowestPriorities
from trimaran.scheduler.plugins.preemption.shared_nodes import OwnNodes
from trimaran.scheduler.plugins.preemption.victims import NO_VICTIMS, Candidate, DominatedCandidate, VictimSearch

_LATE_SECONDS = 60.0  # largest delay of a watch
_NOT_HELPFUL = "Preemption is not helpful for scheduling"
_SHARED = "node(s) are shared with other schedulers, where preemption is off"


@dataclass(frozen=True)
class PreemptionOptions:
    """Arguments of DefaultPreemption.

    Attributes:
        min_candidate_percent: ``minCandidateNodesPercentage``: share of the nodes after which the search for candidates
            ends.
        min_candidates: ``minCandidateNodesAbsolute``: number of candidates before which the search never ends.
        only_own: whether to spare pods of other schedulers, and nodes to which other schedulers nominated a pod.
            kube-scheduler does not compare scheduler names.
        on_shared_nodes: whether to preempt also on nodes that other schedulers may use. There, another scheduler may
            place a pod before the preemptor is bound.
    """

    min_candidate_percent: int = 10
    min_candidates: int = 100
    only_own: bool = True
    on_shared_nodes: bool = True

    def __post_init__(self) -> None:
        if not 0 <= self.min_candidate_percent <= 100:
            raise ValueError(
                f"minCandidateNodesPercentage: must be between 0 and 100, got {quoted(self.min_candidate_percent)}"
            )
        if self.min_candidates < 0:
            raise ValueError(f"minCandidateNodesAbsolute: must not be negative, got {quoted(self.min_candidates)}")
        if not self.min_candidate_percent and not self.min_candidates:
            raise ValueError("minCandidateNodesPercentage and minCandidateNodesAbsolute: at least one must be above 0")

    @classmethod
    def from_config(cls, reader: FieldReader, *, on_shared_nodes: bool) -> Self:
        """Read the arguments of DefaultPreemption, which are also those of PreemptionToleration.

        Raises:
            ValueError: an argument is invalid or unknown; the message begins with its path.
        """
        percent = whole_number(reader, "minCandidateNodesPercentage", cls.min_candidate_percent, 0, 100)
        least = whole_number(reader, "minCandidateNodesAbsolute", cls.min_candidates)
        finish(reader)
        try:
            return cls(percent, least, on_shared_nodes=on_shared_nodes)
        except ValueError as error:
            raise ValueError(f"{reader.path}.{error}") from None

    def wanted(self, nodes: int) -> int:
        """Return the number of candidates after which the search ends, for a number of nodes to search."""
        return max(nodes * self.min_candidate_percent // 100, self.min_candidates, 1)


class DefaultPreemption(PostFilterPlugin):
    """Preemption of pods of lower priority, as kube-scheduler's plugin decides it.

    Args:
        filters: filter plugins of the profile, in order; complete before the first call of :meth:`post_filter`.
        budgets: returns all disruption budgets.
        dice: draws the node at which the search starts.
        options: arguments of the plugin.

    Attributes:
        filters: filter plugins of the profile.
        budgets: returns all disruption budgets.
    """

    name = "DefaultPreemption"
    requeued_by = frozenset()  # as in kube-scheduler, only events of the filters that refused a pod requeue it

    def __init__(
        self,
        filters: Sequence[FilterPlugin],
        budgets: Callable[[], Collection[DisruptionBudget]],
        dice: random.Random,
        options: PreemptionOptions = PreemptionOptions(),
    ) -> None:
        self.filters, self.budgets, self._dice, self._options = filters, budgets, dice, options
        self._lowest = LowestPriorities()
        self._own = OwnNodes()
        self._decided: dict[str, tuple[Preemption, float]] = {}  # last preemption and its time, by uid of the preemptor

    def post_filter(
        self, pod: Pod, nodes: NodeTable, verdicts: Mapping[str, FilterVerdict], now: float
    ) -> Preemption | Rejection:
        """Return the victims and their node, or why preemption cannot help.

        The node stays the same while the watch does not show the victims' deletion yet, or if the deletion failed: on
        another node the pod would need further victims.
        """
        resolvable = _resolvable(verdicts, len(nodes))
        refusal = self._why_not_eligible(pod, nodes, resolvable)
        if refusal:
            return Rejection(f"preemption: not eligible due to {refusal}.", needs_room=True)
        if self._options.only_own:
            for name, other in nodes.occupancy.nominated.values():
                if other.scheduler_name != pod.scheduler_name:
                    resolvable[nodes.row(name)] = False
        chosen, reasons = self._choose_again(pod, nodes, resolvable, now)
        if chosen is None:
            parts = sorted(f"{count} {reason}" for reason, count in reasons.items())
            message = f"preemption: 0/{len(nodes)} nodes are available: {', '.join(parts)}."
            return Rejection(message, needs_room=True, ends_nomination=True)
        cleared = tuple(
            other
            for name, other in nodes.occupancy.nominated.values()
            if name == chosen.node_name and other.priority < pod.priority
        )
        preemption = Preemption(chosen.node_name, chosen.victims, cleared)
        before, since = self._decided.get(pod.uid, (preemption, now))
        self._decided[pod.uid] = preemption, since if before.node_name == preemption.node_name else now
        return preemption

    def _choose_again(
        self, pod: Pod, nodes: NodeTable, resolvable: Bools, now: float
    ) -> tuple[Candidate | None, Counter[str]]:
        if self._is_unseen(pod, nodes, now):
            only = np.zeros_like(resolvable)
            row = nodes.row(pod.nominated_node_name)
            only[row] = resolvable[row]
            chosen, reasons = self.choose(pod, nodes, only)
            if chosen is not None:
                return chosen, reasons
        return self.choose(pod, nodes, resolvable)

    def _is_unseen(self, pod: Pod, nodes: NodeTable, now: float) -> bool:
        """Return whether the victims of a pod's last preemption, on its nominated node, are all still running."""
        self._decided = {uid: each for uid, each in self._decided.items() if now - each[1] < _LATE_SECONDS}
        decided, _ = self._decided.get(pod.uid, (None, 0.0))
        if decided is None or decided.node_name != pod.nominated_node_name or decided.node_name not in nodes:
            return False
        there = [nodes.find(victim) for victim in decided.victims]
        return all(known is not None and not known[1].pod.terminating for known in there)

    def _why_not_eligible(self, pod: Pod, nodes: NodeTable, resolvable: Bools) -> str:
        """Return why a pod must not preempt others now; "" if it may."""
        if not pod.scheduling.preempts:
            return "preemptionPolicy=Never"
        row = nodes.rows.row_by_name.get(pod.nominated_node_name)
        if row is None or not resolvable[row]:
            return ""  # whatever happens on the nominated node, the pod will not fit there
        leaving = self.leaving(row, nodes)
        if any(each.terminating and each.preempted and self.is_awaited(each, pod, nodes) for each in leaving):
            return "a terminating pod on the nominated node"
        return ""

    def leaving(self, row: int, nodes: NodeTable) -> Iterable[Pod]:
        """Return the pods on a row: a pod that is nominated to the row may wait for the end of any of them."""
        return (placed.pod for placed in nodes.placed_on(row))

    def is_awaited(self, leaving: Pod, pod: Pod, nodes: NodeTable) -> bool:  # noqa: ARG002  for subclasses
        """Return whether a pending pod that is nominated to a node waits until another pod has left the node."""
        return leaving.priority < pod.priority and self.may_touch(leaving, pod)

    def may_touch(self, other: Pod, pod: Pod) -> bool:
        """Return whether a running pod belongs to a scheduler whose pods may be deleted for a pending pod."""
        return not self._options.only_own or other.scheduler_name == pod.scheduler_name

    def may_be_victim(self, other: Pod, pod: Pod) -> bool:
        """Return whether a running pod may be deleted for a pending pod."""
        return other.priority < pod.priority and self.may_touch(other, pod)

    def has_victims(self, pod: Pod, nodes: NodeTable, lowest: Int64s) -> Bools:  # noqa: ARG002  for subclasses
        """Return a mask of the nodes that may have victims, shape (nodes,).

        Args:
            pod: pending pod.
            nodes: node table.
            lowest: lowest priority of the pods on each node that may be touched, shape (nodes,).
        """
        return lowest < pod.priority

    def may_use(self, pod: Pod, nodes: NodeTable) -> Bools:
        """Return a mask of the nodes where preemption is allowed, shape (nodes,)."""
        if self._options.on_shared_nodes:
            return np.ones(len(nodes), np.bool_)
        self._lowest.of(nodes, pod.scheduler_name if self._options.only_own else None)
        return self._own.tainted(nodes) & ~self._lowest.others

    def search(self, pod: Pod, nodes: NodeTable, rows: Int64s) -> VictimSearch:
        """Return the search for the victims of a pending pod on the given rows, shape (k,)."""
        return self.search_among(
            pod, nodes, rows, lambda placed: [each for each in placed if self.may_be_victim(each.pod, pod)]
        )

    def search_among(
        self,
        pod: Pod,
        nodes: NodeTable,
        rows: Int64s,
        possible: Callable[[Iterable[PlacedPod]], list[PlacedPod]],
        bounds: AggregateConstraints = NO_BOUNDS,
    ) -> VictimSearch:
        """Return a search for victims among selected pods.

        Args:
            pod: pending pod.
            nodes: node table.
            rows: rows to search, shape (k,).
            possible: returns which of the pods of a node may be victims.
            bounds: limits in addition to the filters of the profile.
        """
        return VictimSearch(self.filters, pod, nodes, rows, self.budgets(), possible, bounds)

    def choose(self, pod: Pod, nodes: NodeTable, resolvable: Bools) -> tuple[Candidate | None, Counter[str]]:
        """Return the cheapest candidate, None without one, and the number of nodes that each reason excludes."""
        rows = np.flatnonzero(resolvable)
        reasons = Counter({_NOT_HELPFUL: len(nodes) - len(rows)} if len(rows) < len(nodes) else {})
        if not rows.size:
            return None, reasons
        wanted = self._options.wanted(len(rows))
        rows = np.roll(rows, -self._dice.randrange(len(rows)))
        lowest = self._lowest.of(nodes, pod.scheduler_name if self._options.only_own else None)
        has_victims = self.has_victims(pod, nodes, lowest)[rows]
        reasons.update({NO_VICTIMS: len(rows) - int(has_victims.sum())} if not has_victims.all() else {})
        rows = rows[has_victims]
        usable = self.may_use(pod, nodes)[rows]
        reasons.update({_SHARED: len(rows) - int(usable.sum())} if not usable.all() else {})
        rows = rows[usable]
        search = self.search(pod, nodes, rows)
        harmless: list[Candidate | DominatedCandidate] = []  # violate no budget
        harmful: list[Candidate | DominatedCandidate] = []
        for result in search.search(rows, wanted):
            if isinstance(result, tuple):
                reasons.update(result)
                continue
            (harmful if result.violations else harmless).append(result)
            if harmless and len(harmless) + len(harmful) >= wanted:
                break
        known = [each for each in harmless + harmful if isinstance(each, Candidate)]
        return min(known, key=lambda each: each.cost, default=None), reasons  # the first of equals


def _resolvable(verdicts: Mapping[str, FilterVerdict], size: int) -> Bools:
    """Return a mask of the nodes whose first refusal preemption may resolve, shape (nodes,)."""
    resolvable, undecided = np.zeros(size, np.bool_), np.ones(size, np.bool_)
    for verdict in verdicts.values():
        refused = undecided & ~verdict.allowed
        resolvable |= refused if verdict.unresolvable is None else refused & ~verdict.unresolvable
        undecided &= verdict.allowed
    return resolvable
