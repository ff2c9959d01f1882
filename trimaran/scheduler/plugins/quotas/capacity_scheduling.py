"""CapacityScheduling: quotas of namespaces, which may lend unused amounts to each other and take them back.

A pod of a namespace with an ElasticQuota is refused if its namespace would use more than ``max``, or all namespaces
with a quota together more than the sum of their ``min``. A namespace may thus use more than its ``min`` if others use
less. A pod within the ``min`` of its namespace takes borrowed amounts back: its victims are pods of namespaces above
their ``min``, of any priority. A pod above it preempts pods of lower priority in its own namespace, and a pod of a
namespace without quota pods of other namespaces without quota. Pods that are about to leave do not count as borrowers,
so that several pods that take amounts back at the same time leave each namespace its ``min``.
Source: kubernetes-sigs/scheduler-plugins v0.33.5, pkg/capacityscheduling.
"""

import random
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from runtime.kubernetes.disruption_budgets import DisruptionBudget
from runtime.kubernetes.objects import MAX_AMOUNT, Pod
from scoring.arrays import Bools, Int64s
from scoring.plugins.filtering import ClusterEvent, FilterPlugin, FilterVerdict
from scoring.table.node_table import NodeTable
from scoring.table.placed_pods import PlacedPod
from trimaran.scheduler.framework.extension_points import Preemption, PreFilterPlugin, Rejection
from trimaran.scheduler.plugins.preemption.aggregate_constraints import AggregateConstraints
from trimaran.scheduler.plugins.preemption.default_preemption import DefaultPreemption, PreemptionOptions
from trimaran.scheduler.plugins.preemption.victims import VictimSearch, importance
from trimaran.scheduler.plugins.quotas.elastic_quota import Amounts, ElasticQuota, added, compared, excess
from trimaran.scheduler.plugins.quotas.expected_victims import ExpectedVictims
from trimaran.scheduler.plugins.quotas.namespace_use import NamespaceUse, amounts_of

_IN_PROGRESS = "preemption: not eligible due to victims that are being deleted."
_MAX_EXCESS = 2**62
_ENTITLED = "min of ElasticQuota"  # in place of a plugin's name: the pod is tried again after any event


class CapacityScheduling(PreFilterPlugin, DefaultPreemption):
    """Quotas of namespaces, with preemption.

    Args:
        filters: filter plugins of the profile, in order; complete before the first call of :meth:`post_filter`.
        budgets: returns all disruption budgets.
        dice: draws the node at which the search starts.
        options: arguments of the preemption.
        quotas: returns the quotas by namespace.
    """

    name = "CapacityScheduling"
    requeued_by = frozenset({
        ClusterEvent.NODE_ADDED, ClusterEvent.NODE_CHANGED, ClusterEvent.POD_GONE, ClusterEvent.POD_CHANGED,
        ClusterEvent.OTHER_CHANGED,
    })  # fmt: skip

    def __init__(
        self,
        filters: Sequence[FilterPlugin],
        budgets: Callable[[], Collection[DisruptionBudget]],
        dice: random.Random,
        options: PreemptionOptions,
        quotas: Callable[[], Mapping[str, ElasticQuota]],
    ) -> None:
        super().__init__(filters, budgets, dice, options)
        self._quotas, self._use, self._staying = quotas, NamespaceUse(), NamespaceUse(with_leaving=False)
        self._expected = ExpectedVictims()

    def pre_filter(self, pod: Pod, nodes: NodeTable, now: float) -> Rejection | None:  # noqa: ARG002
        """Refuse a pod that would exceed the quota of its namespace, or all quotas together."""
        claim = self._claim(pod, nodes)
        if claim is not None:
            unreadable = claim.quotas[pod.namespace].unreadable
            why = next((unreadable[name] for name in unreadable if amounts_of(pod).get(name)), "")
            if why:
                return Rejection(why)  # preemption does not help, only a valid quota
        reason = "" if claim is None else claim.refusal(*claim.excess(self._use, nodes))
        return Rejection(reason, may_preempt=True) if reason else None

    def post_filter(
        self, pod: Pod, nodes: NodeTable, verdicts: Mapping[str, FilterVerdict], now: float
    ) -> Preemption | Rejection:
        """Return the victims and their node, or why preemption cannot help.

        A pod within the ``min`` of its namespace is tried again after any event, because any pod that gets a node may
        be a victim. It is also tried again when the expected victims of other pods may stay after all.
        """
        claim = self._claim(pod, nodes)
        if claim is None:
            return super().post_filter(pod, nodes, verdicts, now)
        self._expected.update(nodes, now)
        refused_by = frozenset({self.name if claim.borrows else _ENTITLED})
        recheck_at = self._expected.recheck_at(now)
        if self._expected.is_awaited_by(pod, now):
            return Rejection(_IN_PROGRESS, needs_room=True, refused_by=refused_by, retry_at=recheck_at)
        result = super().post_filter(pod, nodes, verdicts, now)
        if isinstance(result, Preemption):
            self._expected.replace(pod, result.victims, now)
            return result
        return replace(result, refused_by=refused_by, retry_at=None if claim.borrows else recheck_at)

    def is_awaited(self, leaving: Pod, pod: Pod, nodes: NodeTable) -> bool:
        """Return whether a pending pod that is nominated to a node waits until another pod has left the node."""
        claim = self._claim(pod, nodes)
        if claim is None:
            return super().is_awaited(leaving, pod, nodes) and leaving.namespace not in self._quotas()
        return self._may_leave(claim, leaving, self._use.of(nodes, leaving.namespace))

    def has_victims(self, pod: Pod, nodes: NodeTable, lowest: Int64s) -> Bools:
        """Return a mask of the nodes that may have victims, shape (nodes,)."""
        claim = self._claim(pod, nodes)
        if claim is None or claim.borrows:
            return super().has_victims(pod, nodes, lowest)
        borrowers = {
            namespace
            for namespace, quota in claim.quotas.items()
            if quota.is_over_least(self._use.of(nodes, namespace), claim.resources)
        }
        return self._use.has_any(nodes, borrowers)

    def search(self, pod: Pod, nodes: NodeTable, rows: Int64s) -> VictimSearch:
        """Return the search for victims that the quotas allow; after their end the pod fits the node and the quotas."""
        claim, quotas = self._claim(pod, nodes), self._quotas()
        if claim is None:
            return self.search_among(
                pod, nodes, rows,
                lambda placed: [
                    each for each in placed
                    if each.pod.namespace not in quotas and self.may_be_victim(each.pod, pod)
                ],
            )  # fmt: skip
        staying = self._staying.without(nodes, self._expected.of_others(pod))
        bounds = claim.bounds(staying, nodes)
        return self.search_among(pod, nodes, rows, lambda placed: self._victims(claim, staying, nodes, placed), bounds)

    def _claim(self, pod: Pod, nodes: NodeTable) -> "_Claim | None":
        """Return the claim of a pod on its quota and on all quotas; None if its namespace has no quota."""
        quotas = self._quotas()
        quota = quotas.get(pod.namespace)
        if quota is None:
            return None
        guaranteed = added(*(each.least for each in quotas.values()))
        own = everywhere = amounts_of(pod)
        promised: dict[str, Amounts] = {}  # use of other namespaces, with their nominated pods that do not borrow
        for uid, (_, other) in nodes.occupancy.nominated.items():
            if uid == pod.uid or other.namespace not in quotas:
                continue
            more = amounts_of(other)
            if other.namespace != pod.namespace:
                used = added(promised.get(other.namespace, self._use.of(nodes, other.namespace)), more)
                if not quotas[other.namespace].is_over_least(used, guaranteed.keys() & more):
                    promised[other.namespace], everywhere = used, added(everywhere, more)
            elif other.priority >= pod.priority:
                own, everywhere = added(own, more), added(everywhere, more)
        resources = [name for name in compared(own) if name in guaranteed]
        borrows = quota.is_over_least(added(self._use.of(nodes, pod.namespace), own), resources)
        return _Claim(pod, own, everywhere, quotas, guaranteed, resources, borrows)

    def _victims(
        self, claim: "_Claim", staying: NamespaceUse, nodes: NodeTable, placed: Iterable[PlacedPod]
    ) -> list[PlacedPod]:
        """Return the possible victims on a node: the least important pods, as long as their namespace borrows.

        Pods that leave anyway are always possible victims, and do not count as use of their namespace.
        """
        used: dict[str, Amounts] = {}
        victims = []
        for each in sorted(placed, key=lambda one: importance(one.pod), reverse=True):
            namespace = each.pod.namespace
            if not staying.counts(each.pod):
                victims.append(each)
                continue
            before = used.get(namespace, staying.of(nodes, namespace))
            if self._may_leave(claim, each.pod, before):
                victims.append(each)
                used[namespace] = added(before, {name: -amount for name, amount in amounts_of(each.pod).items()})
        return victims

    def _may_leave(self, claim: "_Claim", other: Pod, used: Amounts) -> bool:
        """Return whether a pod may be a victim for a claim; ``used`` is the use of the pod's namespace."""
        quota = claim.quotas.get(other.namespace)
        if quota is None or not self.may_touch(other, claim.pod):
            return False
        if claim.borrows:
            return other.namespace == claim.pod.namespace and other.priority < claim.pod.priority
        requested = amounts_of(other)
        resources = [name for name in claim.resources if name in requested]
        return other.namespace != claim.pod.namespace and quota.is_over_least(used, resources)


@dataclass(frozen=True)
class _Claim:
    """Claim of a pending pod on the quotas.

    Attributes:
        pod: the pod, whose namespace has a quota.
        own: requests of the pod, and of nominated pods of its namespace that are at least as important.
        everywhere: ``own``, and the requests of nominated pods of other namespaces that do not borrow.
        quotas: all quotas by namespace.
        guaranteed: sum of all guarantees by resource. It does not limit resources without any guarantee.
        resources: resources of which the namespace borrows if it uses more than its guarantee.
        borrows: whether the namespace uses more than its guarantee with the claim.
    """

    pod: Pod
    own: Amounts
    everywhere: Amounts
    quotas: Mapping[str, ElasticQuota]
    guaranteed: Amounts
    resources: Sequence[str]
    borrows: bool

    def excess(self, use: NamespaceUse, nodes: NodeTable) -> tuple[Amounts, Amounts]:
        """Return by how much the claim exceeds the quota of its namespace, and all quotas together."""
        own = self.quotas[self.pod.namespace].excess(use.of(nodes, self.pod.namespace), self.own)
        used = added(*(use.of(nodes, namespace) for namespace in self.quotas))
        bounds = {name: self.guaranteed[name] for name in compared(self.everywhere) if name in self.guaranteed}
        return own, excess(used, self.everywhere, bounds)

    def refusal(self, own: Amounts, everywhere: Amounts) -> str:
        """Return which bound is exceeded, from the amounts of :meth:`excess`; "" if none."""
        if own:
            quota = self.quotas[self.pod.namespace]
            return f"elastic quota {quota.namespace}/{quota.name} would exceed its max of {next(iter(own))}"
        return f"the elastic quotas would exceed the sum of their min of {next(iter(everywhere))}" if everywhere else ""

    def bounds(self, use: NamespaceUse, nodes: NodeTable) -> AggregateConstraints:
        """Return the amounts that must become free before the claim is granted; ``use`` says which pods count."""
        own, everywhere = self.excess(use, nodes)

        def freed_by(pods: Sequence[Pod]) -> Int64s:
            freed = np.zeros((len(pods), len(own) + len(everywhere)), np.int64)
            for row, pod in zip(freed, pods, strict=True):
                if pod.namespace in self.quotas and use.counts(pod):
                    amounts = {name: min(amount, MAX_AMOUNT) for name, amount in amounts_of(pod).items()}
                    row[len(own) :] = [amounts.get(name, 0) for name in everywhere]
                    if pod.namespace == self.pod.namespace:
                        row[: len(own)] = [amounts.get(name, 0) for name in own]
            return freed

        # What one pod frees is limited, too, so that the sum over the pods of a node fits 64 bits.
        excess = [min(amount, _MAX_EXCESS) for amount in (*own.values(), *everywhere.values())]
        return AggregateConstraints(np.array(excess, np.int64), freed_by, self.refusal(own, everywhere))
