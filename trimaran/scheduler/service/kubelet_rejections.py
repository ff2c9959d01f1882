"""Rejections by kubelets: pods that were bound to a node and failed there before they started.

The watch of the pods that have not failed does not say why a pod is no longer in it, so failed pods are watched, too.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from runtime.kubernetes.k8s_fields import get
from runtime.kubernetes.reflector import Object

_REJECTED_MESSAGE = "Pod was rejected"  # how the kubelet's message begins
_SHORTAGE = "OutOf"  # followed by the name of a resource, such as cpu, memory or pods
_REASONS = frozenset(
    {
        "AppArmor", "InvalidNodeInfo", "NodeAffinity", "NodeName", "NodePorts", "PodFeatureUnsupported",
        "PodOSNotSupported", "PodOSSelectorNodeLabelDoesNotMatch", "SysctlForbidden", "TaintToleration",
        "TopologyAffinityError", "UnexpectedAdmissionError", "UnknownReason",
    }
)  # fmt: skip


def rejection_reason(pod: Mapping[str, Any]) -> str:
    """Return why a kubelet rejected a failed pod; "" if the pod failed otherwise.

    Reasons that this version does not know are ``other``, so that the number of a metric's labels is bounded.
    Source: ``rejectPod`` and ``lifecycle.predicateAdmitHandler`` of k8s.io/kubernetes/pkg/kubelet.

    Args:
        pod: v1 Pod.
    """
    status = get(pod, "status")
    reason, message = _text(status, "reason"), _text(status, "message")
    if reason in _REASONS or reason.startswith(_SHORTAGE):
        return reason[:63]
    return "other" if message.startswith(_REJECTED_MESSAGE) else ""


class RejectionFeed:
    """Reflector store of failed pods that reports each rejection once, except for pods in the first list.

    Args:
        scheduler_names: schedulers whose pods count.
        report: called with the name of the node and the reason.
        has_bound: returns whether this process has bound the pod with a UID to a node. A pod may be created with a
            node of its author's choice, and with any ``schedulerName``: its rejection says nothing of our decisions.
    """

    def __init__(
        self,
        scheduler_names: Collection[str],
        report: Callable[[str, str], None],
        has_bound: Callable[[str, str], bool] = lambda _uid, _node_name: True,
    ) -> None:
        self._names, self._report, self._has_bound = frozenset(scheduler_names), report, has_bound
        self._known: set[str] | None = None  # uids of the failed pods; None before the first list

    def replace(self, objects: Iterable[Object]) -> None:
        """Report the pods that were rejected since the last list."""
        listed = {_uid(each): each for each in objects}
        before, self._known = self._known, set(listed)
        if before is not None:
            for uid in listed.keys() - before:
                self._examine(listed[uid])

    def put(self, changed: Object) -> None:
        """Report a pod that has failed just now."""
        uid = _uid(changed)
        if self._known is not None and uid not in self._known:
            self._known.add(uid)
            self._examine(changed)

    def drop(self, deleted: Object) -> None:
        """Forget a pod."""
        if self._known is not None:
            self._known.discard(_uid(deleted))

    def _examine(self, failed: Object) -> None:
        spec, reason = get(failed, "spec"), rejection_reason(failed)
        node_name = _text(spec, "nodeName")
        is_ours = _text(spec, "schedulerName") in self._names and self._has_bound(_uid(failed), node_name)
        if reason and node_name and is_ours:
            self._report(node_name, reason)


def _uid(pod: Object) -> str:
    return str(get(get(pod, "metadata"), "uid"))


def _text(owner: Any, name: str) -> str:
    value = get(owner, name)
    return value if isinstance(value, str) else ""
