"""Nodes whose free CPU and memory are not known, because the requests of a pod on them are not known.

Such a pod cannot be read, or its resource claims report what they hold of the node in a form that is not known. What is
known of the pods still counts; the node has less left than that.
"""

from collections.abc import Container, Mapping

from runtime.kubernetes.objects import Pod
from runtime.kubernetes.reflector import Object


class UnknownRequests:
    """Pods with unknown requests, by UID. One thread may change them; any thread may read :meth:`by_node`."""

    def __init__(self) -> None:
        self._pods: Mapping[str, tuple[str, str]] = {}  # node and reason; replaced, never modified

    def observe(self, manifest: Object, pod: Pod | None) -> None:
        """Note a pod as the API server sent it and as it was read; None if it cannot be read or counted."""
        metadata, spec, status = (_mapping(manifest, key) for key in ("metadata", "spec", "status"))
        uid, node = str(metadata.get("uid")), spec.get("nodeName")
        name = f"pod {metadata.get('namespace')}/{metadata.get('name')}"
        if not node or status.get("phase") in {"Succeeded", "Failed"}:
            self.forget(uid)
        elif pod is None:
            self._pods = {**self._pods, uid: (str(node), f"{name} cannot be read")}
        elif pod.claimed is None:
            self._pods = {**self._pods, uid: (str(node), f"{name} has resource claims with amounts in an unknown form")}
        else:
            self.forget(uid)

    def forget(self, uid: str) -> None:
        """Forget a pod, which is gone or known now."""
        if uid in self._pods:
            self._pods = {other: why for other, why in self._pods.items() if other != uid}

    def keep_only(self, uids: Container[str]) -> None:
        """Forget all other pods, after a full list."""
        self._pods = {uid: why for uid, why in self._pods.items() if uid in uids}

    def by_node(self) -> dict[str, str]:
        """Return a reason for each node whose free CPU and memory are not known."""
        return dict(self._pods.values())


def _mapping(manifest: Object, key: str) -> Object:
    value = manifest.get(key)
    return value if isinstance(value, dict) else {}
