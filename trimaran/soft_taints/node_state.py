"""What is marked on nodes now, as a reflector tells it, and the patches that change it."""

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from trimaran.soft_taints.annotations import PREFIX

TAINT_EFFECT = "PreferNoSchedule"
Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Marks:
    """What a node has.

    Attributes:
        version: of the node, by which a patch is refused where somebody was faster.
        taints: all of them, as they are.
        annotations: ours.
    """

    version: str = ""
    taints: tuple[Mapping[str, Any], ...] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, node: Object) -> "Marks":
        """Read a v1 Node."""
        metadata, spec = node.get("metadata") or {}, node.get("spec") or {}
        annotations = metadata.get("annotations") or {}
        ours = {key: str(value) for key, value in annotations.items() if key.startswith(PREFIX)}
        return cls(str(metadata.get("resourceVersion", "")), tuple(spec.get("taints") or ()), ours)

    def is_tainted(self, key: str) -> bool:
        """Return whether our taint is among them."""
        return any(_is_ours(taint, key) for taint in self.taints)

    def patch(self, key: str, *, hot: bool | None, annotations: Mapping[str, str | None]) -> Object:
        """Return the merge patch that makes a node so; an empty one where it is.

        Taints are one list, which a patch replaces: the version makes sure that nobody's is lost.

        Args:
            key: of our taint.
            hot: whether the node is to have it; None leaves that as it is.
            annotations: values by key, None takes one away.
        """
        change: Object = {}
        if hot is not None and hot != self.is_tainted(key):
            others = [dict(taint) for taint in self.taints if not _is_ours(taint, key)]
            ours = [{"key": key, "value": "true", "effect": TAINT_EFFECT}] if hot else []
            change["spec"] = {"taints": others + ours}
        differing = {name: text for name, text in annotations.items() if self.annotations.get(name) != text}
        if differing:
            change["metadata"] = {"annotations": differing}
        if "spec" in change:
            change.setdefault("metadata", {})["resourceVersion"] = self.version
        return change


class MarkMirror:
    """Keeps the marks of all nodes. Safe from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._marks: dict[str, Marks] = {}

    def replace(self, objects: Iterable[Object]) -> None:
        """Take all nodes that there are."""
        marks = {_name(each): Marks.of(each) for each in objects}
        with self._lock:
            self._marks = marks

    def put(self, changed: Object) -> None:
        """Take a node that is new or has changed."""
        with self._lock:
            self._marks[_name(changed)] = Marks.of(changed)

    def drop(self, deleted: Object) -> None:
        """Take a node away."""
        with self._lock:
            self._marks.pop(_name(deleted), None)

    def all(self) -> dict[str, Marks]:
        """Return what every node has."""
        with self._lock:
            return dict(self._marks)


def _is_ours(taint: Mapping[str, Any], key: str) -> bool:
    return taint.get("key") == key and taint.get("effect") == TAINT_EFFECT


def _name(node: Object) -> str:
    return str((node.get("metadata") or {}).get("name", ""))
