"""PodDisruptionBudgets. Source: policy/v1 and the disruption controller of Kubernetes."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from runtime.kubernetes.k8s_fields import decoder, get, get_whole
from runtime.kubernetes.objects import Pod
from runtime.kubernetes.scheduling_rules import LabelSelector, read_label_selector


@dataclass(frozen=True, slots=True)
class DisruptionBudget:
    """A PodDisruptionBudget.

    Attributes:
        namespace: its namespace.
        selector: labels of the pods that it covers; None covers no pod.
        disruptions_allowed: number of evictions in its status, which may be out of date.
        is_current: whether the status belongs to the current specification.
        disrupted: names of the pods whose eviction the API server has allowed, and which the controller has not seen
            deleted yet. The status counts them already.
    """

    namespace: str
    selector: LabelSelector | None = None
    disruptions_allowed: int = 0
    is_current: bool = True
    disrupted: frozenset[str] = frozenset()

    @classmethod
    @decoder("poddisruptionbudget")
    def from_k8s(cls, each: Mapping[str, Any]) -> "DisruptionBudget":
        """Read a policy/v1 PodDisruptionBudget.

        Raises:
            ValueError: the selector or a number is invalid.
        """
        metadata, spec, status = get(each, "metadata"), get(each, "spec"), get(each, "status")
        namespace = str(get(metadata, "namespace") or "")
        title = f"poddisruptionbudget {namespace}/{get(metadata, 'name')}"
        return cls(
            namespace,
            read_label_selector(spec, "selector", f"{title}: spec"),
            get_whole(status, "disruptionsAllowed", f"{title}: status"),
            get_whole(status, "observedGeneration", f"{title}: status", bits=64)
            >= get_whole(metadata, "generation", f"{title}: metadata", bits=64),
            frozenset(get(status, "disruptedPods") or ()),
        )

    @property
    def allowed(self) -> int:
        """Number of evictions that the API server allows now; 0 while the status is out of date."""
        return self.disruptions_allowed if self.is_current else 0

    def covers(self, pod: Pod) -> bool:
        """Return whether the budget covers a pod; a selector without requirements covers all pods of the namespace."""
        return pod.namespace == self.namespace and self.selector is not None and self.selector.matches(pod.labels)


def violations(pods: Iterable[Pod], budgets: Iterable[DisruptionBudget]) -> list[bool]:
    """Return for each pod whether its deletion, after that of the pods before it, would violate a budget.

    Unlike in evictions, a selector without requirements covers no pod, and no budget covers a pod without labels.
    Source: ``FilterVictimsWithPDBViolation`` of kube-scheduler.
    """
    left = [(budget, [budget.disruptions_allowed]) for budget in budgets]
    return [_violates(pod, left) for pod in pods]


def _violates(pod: Pod, left: Iterable[tuple[DisruptionBudget, list[int]]]) -> bool:
    """Charge the deletion of a pod to its budgets; stop and return True at the first budget that is violated."""
    if not pod.labels:
        return False
    for budget, remaining in left:
        if budget.selector is None or not budget.selector.requirements or not budget.covers(pod):
            continue
        if pod.name in budget.disrupted:
            continue
        remaining[0] -= 1
        if remaining[0] < 0:
            return True
    return False
