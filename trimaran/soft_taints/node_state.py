"""Current taints and load annotations of the nodes, and the patches that change them."""

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from runtime.kubernetes.k8s_fields import decoder
from runtime.kubernetes.reflector import version_number
from trimaran.cluster.object_reader import ObjectReader, metadata_of
from trimaran.soft_taints.annotations import PREFIX, timestamp

TAINT_EFFECT = "PreferNoSchedule"
Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class NodeState:
    """Taints and load annotations of a node.

    Attributes:
        version: resource version of the node; the API server refuses a patch with an outdated one.
        taints: all taints of the node, unchanged.
        annotations: the load annotations alone.
        uid: UID of the node, for Events about it.
    """

    version: str = ""
    taints: tuple[Mapping[str, Any], ...] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)
    uid: str = ""

    @classmethod
    @decoder("node")
    def from_k8s(cls, node: Object) -> "NodeState":
        """Read the taints and load annotations of a v1 Node object.

        Raises:
            ValueError: a field has another type than in Kubernetes.
        """
        metadata, spec = node.get("metadata") or {}, node.get("spec") or {}
        annotations = metadata.get("annotations") or {}
        ours = {key: str(value) for key, value in annotations.items() if key.startswith(PREFIX)}
        taints = tuple(dict(taint) for taint in spec.get("taints") or ())
        return cls(str(metadata.get("resourceVersion", "")), taints, ours, str(metadata.get("uid", "")))

    def is_newer_than(self, other: "NodeState") -> bool:
        """Return whether this is a later state of the same node; False if a version is not a number."""
        return self.uid == other.uid and version_number(self.version) > version_number(other.version) > 0

    def is_tainted(self, key: str) -> bool:
        """Return whether the node has a PreferNoSchedule taint with this key."""
        return any(_is_ours(taint, key) for taint in self.taints)

    def patch(self, taints: Mapping[str, bool], *, annotations: Mapping[str, str | None], now: float = 0.0) -> Object:
        """Return the merge patch that sets the taints and the annotations; empty if nothing changes.

        A patch replaces the whole list of taints. It carries the resource version, so that the API server refuses it if
        another client has changed the node meanwhile, such as the replica that took over from a suspended one.

        Args:
            taints: keys of our taints, and whether the node should have the taint.
            annotations: text by annotation key; None removes the annotation.
            now: Unix time, for the field ``timeAdded`` of a new taint.
        """
        change: Object = {}
        changing = {key: wanted for key, wanted in taints.items() if wanted != self.is_tainted(key)}
        if changing:
            kept = [dict(taint) for taint in self.taints if not any(_is_ours(taint, key) for key in changing)]
            added = [
                {"key": key, "value": "true", "effect": TAINT_EFFECT, "timeAdded": timestamp(now)}
                for key, wanted in changing.items()
                if wanted
            ]
            change["spec"] = {"taints": kept + added}
        differing = {name: text for name, text in annotations.items() if self.annotations.get(name) != text}
        if differing:
            change["metadata"] = {"annotations": differing}
        if change:
            change.setdefault("metadata", {})["resourceVersion"] = self.version
        return change


def node_reference(name: str, uid: str) -> dict[str, str]:
    """Return a reference to a node, for Events about it."""
    return {"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid}


class NodeStateCache:
    """Thread-safe cache of the taints and load annotations of all nodes, filled by a reflector."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._states: dict[str, NodeState] = {}
        self._reader = ObjectReader(NodeState.from_k8s)

    def replace(self, objects: Iterable[Object]) -> None:
        """Replace the cache with a full list of nodes."""
        self._reader.forget_all()
        states = {_name(each): state for each in objects if (state := self._reader.read(each)) is not None}
        with self._lock:
            self._states = states

    def put(self, changed: Object) -> None:
        """Add or update a node. A late event does not replace a newer state, such as the response to a patch."""
        name, state = _name(changed), self._reader.read(changed)
        if state is None:
            return
        with self._lock:
            known = self._states.get(name)
            if known is None or not known.is_newer_than(state):
                self._states[name] = state

    def drop(self, deleted: Object) -> None:
        """Remove a node."""
        self._reader.forget(deleted)
        with self._lock:
            self._states.pop(_name(deleted), None)

    def get(self, name: str) -> NodeState | None:
        """Return the taints and load annotations of a node; None if it is unknown."""
        with self._lock:
            return self._states.get(name)

    def all(self) -> dict[str, NodeState]:
        """Return the taints and load annotations of every node, by node name."""
        with self._lock:
            return dict(self._states)


def _is_ours(taint: Mapping[str, Any], key: str) -> bool:
    return taint.get("key") == key and taint.get("effect") == TAINT_EFFECT


def _name(node: Object) -> str:
    return str(metadata_of(node).get("name", ""))
