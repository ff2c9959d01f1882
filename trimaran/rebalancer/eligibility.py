"""Eligibility of pods for moves, and of nodes as source or target: each check returns the first reason against it.

The reasons are label values of metrics, so their number is bounded; :data:`REASONS` has a text for each.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from runtime.kubernetes.disruption_budgets import DisruptionBudget
from runtime.kubernetes.workloads import Workload
from trimaran.rebalancer.facts import NodeBarrier, NodeFacts, PodBarrier, ScalerFacts, WorkloadFacts
from trimaran.rebalancer.lineage import Member
from trimaran.rebalancer.rules import NodeRules, PodRules


class Refusal(StrEnum):
    """Reason why a pod does not move, from the rules and the state of its workload."""

    NAMESPACE = "namespace"
    LABEL = "label"
    PRIORITY = "priority"
    YOUNG = "young"
    UNKNOWN_WORKLOAD = "unknown_workload"
    FEW_REPLICAS = "few_replicas"
    ROLLOUT = "rollout"
    PENDING_REPLICA = "pending_replica"
    SCALED = "scaled"
    OPEN_MOVE = "open_move"
    COOLDOWN = "cooldown"
    WORKLOAD_CAP = "workload_cap"
    BUDGET = "budget"
    MANY_BUDGETS = "many_budgets"
    LARGE = "large"
    UNKNOWN_USE = "unknown_use"
    SOURCE = "source"
    HELD = "held"


Reason = PodBarrier | Refusal

#: Text for each reason, with the setting that changes it, if there is one.
REASONS: Final[Mapping[Reason, str]] = {
    PodBarrier.TERMINATING: "it is being deleted",
    PodBarrier.NOT_READY: "it is not Ready",
    PodBarrier.DAEMON_SET: "it belongs to a DaemonSet, which runs a pod on every node",
    PodBarrier.MIRROR: "the kubelet runs it from a file",
    PodBarrier.BARE: "no controller would replace it",
    PodBarrier.CONTROLLER: "its controller is neither a Deployment nor a StatefulSet",
    PodBarrier.SYSTEM_CRITICAL: "it is critical for the system",
    PodBarrier.GANG: "it belongs to a gang, whose pods run together",
    PodBarrier.RESIZE: "a resize is pending or in progress",
    PodBarrier.OPTED_OUT: "an annotation of the pod forbids it",
    PodBarrier.SLOW_EVICTION: "its operator evicts it in the background, or it may take over an hour to end",
    PodBarrier.REQUIREMENT: "only the scheduler can check its requirements, such as affinity to other pods",
    PodBarrier.JOB: "it belongs to a Job, which would start over; an annotation of the pod allows it",
    PodBarrier.LOCAL_STORAGE: "it has local storage; an annotation of the pod allows the loss",
    PodBarrier.VOLUME: "it has persistent volumes; an annotation of the pod allows it",
    Refusal.NAMESPACE: "its namespace is excluded (rebalance.namespaces, rebalance.excluded_namespaces)",
    Refusal.LABEL: "its labels exclude it (rebalance.excluded_labels)",
    Refusal.PRIORITY: "its priority protects it",
    Refusal.YOUNG: "it became Ready too recently",
    Refusal.UNKNOWN_WORKLOAD: "its workload is not known yet",
    Refusal.FEW_REPLICAS: "its workload has too few replicas",
    Refusal.ROLLOUT: "its workload is rolling out",
    Refusal.PENDING_REPLICA: "another pod of its workload is not Ready",
    Refusal.SCALED: "an autoscaler changed its replicas recently",
    Refusal.OPEN_MOVE: "the replacement of another pod of its workload is not Ready",
    Refusal.COOLDOWN: "a cooldown of the pod, its workload or its node has not ended",
    Refusal.WORKLOAD_CAP: "its workload or namespace has used up its moves per hour",
    Refusal.BUDGET: "its disruption budget allows no eviction now",
    Refusal.MANY_BUDGETS: "more than one disruption budget covers it, so the API server refuses every eviction",
    Refusal.LARGE: "it is too large a part of its node",
    Refusal.UNKNOWN_USE: "its use is not known",
    Refusal.SOURCE: "its node is not a source of moves now",
    Refusal.HELD: "it is held back, to measure the gain of the other moves",
}

#: Barriers that an annotation of the pod lifts: only the pod's owner knows the cost of a restart.
_BY_OPT_IN: Final = frozenset({PodBarrier.JOB, PodBarrier.LOCAL_STORAGE, PodBarrier.VOLUME})


class NodeRefusal(StrEnum):
    """Reason why a node is not a source, or not a target, from its load."""

    UNKNOWN_REQUESTS = "unknown_requests"
    NOT_MEASURED = "not_measured"
    DISAGREES = "disagrees"
    NOT_HOT = "not_hot"
    NOT_TAINTED = "not_tainted"
    COOLDOWN = "cooldown"
    CAP = "cap"
    FEW_BAD_LOOKS = "few_bad_looks"


@dataclass(frozen=True, slots=True)
class WorkloadState:
    """State of the workloads of a cluster.

    Attributes:
        workloads: facts of the Deployments and StatefulSets.
        budgets: all disruption budgets, by namespace.
        scalers: time of the last scaling by workload.
    """

    workloads: Mapping[Workload, WorkloadFacts] = field(default_factory=dict)
    budgets: Mapping[str, Sequence[DisruptionBudget]] = field(default_factory=dict)
    scalers: Mapping[Workload, float] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        workloads: Mapping[Workload, WorkloadFacts],
        budgets: Iterable[DisruptionBudget],
        scalers: Iterable[ScalerFacts],
    ) -> "WorkloadState":
        """Return the state with the facts indexed by namespace and workload."""
        by_namespace: dict[str, list[DisruptionBudget]] = {}
        for budget in budgets:
            by_namespace.setdefault(budget.namespace, []).append(budget)
        last: dict[Workload, float] = {}
        for scaler in scalers:
            last[scaler.workload] = max(scaler.scaled_at, last.get(scaler.workload, 0.0))
        return cls(workloads, by_namespace, last)

    def budgets_of(self, member: Member) -> list[DisruptionBudget]:
        """Return the disruption budgets that cover a pod."""
        return [budget for budget in self.budgets.get(member.pod.namespace, ()) if budget.covers(member.pod)]


def pod_refusal(member: Member, rules: PodRules, now: float) -> Reason | None:
    """Return the first reason in a pod's own state against a move; None if there is none.

    Args:
        member: the pod.
        rules: which pods may move.
        now: Unix time.
    """
    pod, facts = member
    holding = facts.barriers - _BY_OPT_IN if facts.opted_in else facts.barriers
    barrier: PodBarrier | None = next((each for each in PodBarrier if each in holding), None)
    if barrier is not None:
        return barrier
    if pod.namespace in rules.excluded_namespaces or (rules.namespaces and pod.namespace not in rules.namespaces):
        return Refusal.NAMESPACE
    if any(_has(pod.labels, label) for label in rules.excluded_labels):
        return Refusal.LABEL
    if pod.priority >= rules.protected_priority:
        return Refusal.PRIORITY
    if facts.ready_at is None or now - facts.ready_at < rules.min_age:
        return Refusal.YOUNG
    return None


def workload_refusal(
    workload: Workload, members: Sequence[Member], state: WorkloadState, rules: PodRules, now: float
) -> Refusal | None:
    """Return the first reason in a workload's state against moving its pods now; None if there is none.

    Args:
        workload: the workload.
        members: all pods of the workload, also pending ones.
        state: state of the workloads.
        rules: which pods may move.
        now: Unix time.
    """
    if any(each.facts.ready_at is None and PodBarrier.JOB not in each.facts.barriers for each in members):
        return Refusal.PENDING_REPLICA
    if all(PodBarrier.JOB in each.facts.barriers for each in members):
        return None
    facts = state.workloads.get(workload)
    if facts is None:
        return Refusal.UNKNOWN_WORKLOAD
    if facts.replicas < rules.min_replicas and not all(each.facts.opted_in for each in members):
        return Refusal.FEW_REPLICAS
    if facts.is_rolling_out:
        return Refusal.ROLLOUT
    if len(members) < facts.replicas:
        return Refusal.PENDING_REPLICA
    if now - state.scalers.get(workload, float("-inf")) < rules.scaler_quiet:
        return Refusal.SCALED
    return None


def budget_refusal(member: Member, state: WorkloadState) -> Refusal | None:
    """Return the reason in the disruption budgets of a pod why it cannot be evicted now; None if there is none."""
    budgets = state.budgets_of(member)
    if len(budgets) > 1:
        return Refusal.MANY_BUDGETS
    return Refusal.BUDGET if budgets and budgets[0].allowed < 1 else None


def source_barrier(facts: NodeFacts, rules: NodeRules) -> NodeBarrier | NodeRefusal | None:
    """Return the first reason in a node's own state against moving pods away; None if there is none."""
    barrier = target_barrier(facts)
    if barrier is None and rules.source_taint and rules.source_taint not in facts.soft_taints:
        return NodeRefusal.NOT_TAINTED
    return barrier


def target_barrier(facts: NodeFacts) -> NodeBarrier | None:
    """Return the first reason in a node's own state against moving pods there; None if there is none."""
    return next((each for each in NodeBarrier if each in facts.barriers), None)


def _has(labels: Mapping[str, str], label: str) -> bool:
    key, equals, value = label.partition("=")
    return key in labels and (not equals or labels[key] == value)
