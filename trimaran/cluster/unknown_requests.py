"""Nodes whose free CPU and memory are not known, because the requests of a pod on them are not known.

Either the pod cannot be decoded, or its resource claims report their share of the node in an unknown form. No API
server of a known version sends such pods. Known requests still count, but the node has less left than they leave.
"""

from collections import Counter
from collections.abc import Callable, Container

from runtime.kubernetes.objects import Pod
from runtime.kubernetes.reflector import Object


class UnknownRequests:
    """Pods with unknown requests, by UID. One thread may change them; any thread may read :meth:`by_node`.

    Args:
        on_change: called with a node's name and True when the node gets its first pod with unknown requests, and with
            False when it loses its last one.
    """

    def __init__(self, on_change: Callable[[str, bool], None] = lambda _name, _is_unknown: None) -> None:
        self._on_change = on_change
        self._pods: dict[str, tuple[str, str]] = {}  # node and reason
        self._counts: Counter[str] = Counter()  # pods by node

    def observe(self, manifest: Object, pod: Pod | None) -> None:
        """Record a pod with unknown requests, forget any other; ``pod`` is the parsed manifest, None if unreadable."""
        metadata, spec, status = (_mapping(manifest, key) for key in ("metadata", "spec", "status"))
        uid, node = str(metadata.get("uid")), spec.get("nodeName")
        name = f"pod {metadata.get('namespace')}/{metadata.get('name')}"
        is_over = not node or status.get("phase") in ("Succeeded", "Failed")
        if is_over or (pod is not None and pod.claimed is not None):
            self.forget(uid)
            return
        problem = "cannot be read" if pod is None else "has resource claims with amounts in an unknown form"
        if uid in self._pods and self._pods[uid][0] != node:
            self.forget(uid)
        is_new = uid not in self._pods
        self._pods[uid] = str(node), f"{name} {problem}"
        if is_new:
            self._count(str(node), 1)

    def forget(self, uid: str) -> None:
        """Forget a pod that was deleted or whose requests are known now."""
        if uid in self._pods:
            self._count(self._pods.pop(uid)[0], -1)

    def keep_only(self, uids: Container[str]) -> None:
        """Forget all other pods, after a full list."""
        for uid in [uid for uid in self._pods if uid not in uids]:
            self.forget(uid)

    def by_node(self) -> dict[str, str]:
        """Return a reason for each node whose free CPU and memory are not known."""
        return dict(self._pods.copy().values())  # the copy is made in one step, which the other thread cannot disturb

    def _count(self, node: str, sign: int) -> None:
        before = self._counts[node]
        self._counts[node] += sign
        if not self._counts[node]:
            del self._counts[node]
        if bool(before) != bool(before + sign):
            self._on_change(node, not before)


def _mapping(manifest: Object, key: str) -> Object:
    value = manifest.get(key)
    return value if isinstance(value, dict) else {}
