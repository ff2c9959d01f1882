"""Kinds of Kubernetes objects, and the pods of workloads, such as of a Deployment.

Items of a list have no ``kind`` in the API server's JSON, and most objects of the kubernetes client have none either.
Their kind is that of their class, such as ``V1Pod``, or is recognized by a field.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from runtime.kubernetes.k8s_fields import get

_WORKLOADS = ("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job", "ReplicationController")
TEMPLATES: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys(_WORKLOADS, ("spec", "template")),
    "CronJob": ("spec", "jobTemplate", "spec", "template"),
    "PodTemplate": ("template",),
}
"""Path of the pod template in each kind of object that has one."""

_CLIENT_PREFIX = "V1"
# Fields that reveal the kind of an object without ``kind``; the first match counts. Nearly all such objects are pods.
_FIELDS = (
    ("Pod", ("spec", "containers")),
    ("Node", ("status", "allocatable")),
    ("Node", ("status", "capacity")),
    ("Deployment", TEMPLATES["Deployment"]),  # or another workload: the template is in the same place
    ("CronJob", ("spec", "jobTemplate")),
    ("List", ("items",)),
)


def kind_of(item: Any) -> str:
    """Return the kind of an object in any of its forms; "" for an object that may be of any kind."""
    kind = get(item, "kind")
    if kind:
        return str(kind)
    if not isinstance(item, Mapping):
        name = type(item).__name__
        if name.startswith(_CLIENT_PREFIX):
            return name.removeprefix(_CLIENT_PREFIX)
        if not hasattr(item, "metadata"):
            return name  # such as str
    for kind, path in _FIELDS:
        if _at(item, path) is not None:
            return kind
    return ""


def check_kind(item: Any, expected: str) -> Any:
    """Return an object after checking its kind.

    Raises:
        ValueError: the object has another kind.
    """
    kind = kind_of(item)
    if kind not in {expected, ""}:
        raise ValueError(f"{_name_of(item)}expected a {expected}, got a {kind}")
    return item


def items_of(listed: Any, expected: str) -> Iterable[Any]:
    """Return the objects of a list object, of an iterable, or a single object; objects of another kind are refused.

    Args:
        listed: list object with ``items``, iterable of objects, or single object.
        expected: kind of the objects.

    Raises:
        ValueError: the argument is not a list or an object, or has another kind. An object's kind is checked when the
            iteration reaches the object.
    """
    if _is_list(listed):
        kind = kind_of(listed)
        if kind.endswith("List") and kind not in {"List", f"{expected}List"}:
            raise ValueError(f"expected {expected} objects, got a {kind}")
        listed = get(listed, "items") or ()
    elif isinstance(listed, Mapping) or hasattr(listed, "metadata"):
        listed = (listed,)
    if isinstance(listed, str | bytes) or not isinstance(listed, Iterable):
        raise ValueError(f"expected {expected} objects, got a {type(listed).__name__}")  # noqa: TRY004  a user's mistake
    return (check_kind(item, expected) for item in listed)


def _is_list(listed: Any) -> bool:
    """Return whether an object is a list. Its ``items`` may be null, because Go writes an empty list as null."""
    if isinstance(listed, Mapping):
        return "items" in listed or str(get(listed, "kind")).endswith("List")
    return get(listed, "items") is not None or (hasattr(listed, "items") and type(listed).__name__.endswith("List"))


def pod_of(item: Any) -> Any:
    """Return a pod: the object itself, or for a workload a pod from its template, with the workload's name.

    Raises:
        ValueError: the object is neither a pod nor a workload, or the workload has no template.
    """
    kind = kind_of(item)
    path = TEMPLATES.get(kind)
    if path is None:
        if kind not in {"Pod", ""}:
            raise ValueError(f"{_name_of(item)}expected a Pod or one of {', '.join(TEMPLATES)}, got a {kind}")
        return item
    template = _at(item, path)
    spec = get(template, "spec")
    if spec is None or isinstance(spec, str | int):
        raise ValueError(f"{_name_of(item)}the {kind} has no pod template at {'.'.join(path)}")
    owner, metadata = get(item, "metadata"), get(template, "metadata")
    named = {key: get(owner, key) for key in ("name", "namespace")}
    copied = {key: get(metadata, key) for key in ("labels", "annotations")}
    return {"kind": "Pod", "metadata": {**copied, **named}, "spec": spec}


def _at(item: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        item = get(item, key)
    return item


def _name_of(item: Any) -> str:
    name = get(get(item, "metadata"), "name")
    return f"{name}: " if isinstance(name, str) else ""
