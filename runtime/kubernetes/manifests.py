"""Pods and nodes from files, as ``kubectl get -o yaml`` or ``-o json`` writes them."""

import sys
from pathlib import Path
from typing import Any, NoReturn

import orjson
import yaml

_WORKLOADS = ("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job", "ReplicationController")
_TEMPLATES = {
    **dict.fromkeys(_WORKLOADS, ("spec", "template")),
    "CronJob": ("spec", "jobTemplate", "spec", "template"),
    "PodTemplate": ("template",),
}


class ManifestError(ValueError):
    """A file cannot be read, or does not hold what was asked for."""


def parse_pods(text: str, where: str) -> list[dict[str, Any]]:
    """Return what ``read_pods`` does, from text; ``where`` names it in errors."""
    return [_pod_of(each, where) for each in _parse(text, "Pod", where)] or _nothing(where, "Pod")


def parse_objects(text: str, kind: str, where: str) -> list[dict[str, Any]]:
    """Return what ``read_objects`` does, from text; ``where`` names it in errors."""
    return _of_kind(_parse(text, kind, where), kind, where)


def read_pods(path: Path) -> list[dict[str, Any]]:
    """Return pods, also as they would be made by a Deployment or another workload; otherwise as ``read_objects``.

    Raises:
        ManifestError: the file cannot be read, is no YAML, or holds something else.
    """
    return [_pod_of(each, path) for each in _read(path, "Pod")] or _nothing(path, "Pod")


def read_objects(path: Path, kind: str) -> list[dict[str, Any]]:
    """Return the objects of one kind, from a List, a single object, or several documents.

    Args:
        path: a YAML or JSON file; ``-`` is standard input.
        kind: ``Pod`` or ``Node``.

    Raises:
        ManifestError: the file cannot be read, is no YAML, or holds something else.
    """
    return _of_kind(_read(path, kind), kind, path)


def _of_kind(found: list[dict[str, Any]], kind: str, where: Path | str) -> list[dict[str, Any]]:
    for item in found:
        if item.get("kind", kind) != kind:
            raise _other(where, kind, item["kind"])
    return found or _nothing(where, kind)


def _read(path: Path, kind: str) -> list[dict[str, Any]]:
    try:
        content = sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
    except OSError as error:
        raise ManifestError(f"{path} cannot be read: {error.strerror}") from error
    return _parse(content, kind, path)


def _parse(content: bytes | str, kind: str, path: Path | str) -> list[dict[str, Any]]:
    try:
        documents = _documents(content)
    except (yaml.YAMLError, ValueError) as error:  # a date that does not exist, say
        raise ManifestError(f"{path} is neither YAML nor JSON: {error}") from error
    found: list[dict[str, Any]] = []
    for document in documents:
        if document is None:
            continue
        items = document.get("items", [document]) if isinstance(document, dict) else None
        for item in items if isinstance(items, list) else [document]:
            if not isinstance(item, dict):
                raise _other(path, kind, type(item).__name__)
            found.append(item)
    return found


def _documents(content: bytes | str) -> list[Any]:
    """Return the documents of a text. JSON is YAML too, but is read a hundred times as fast as such."""
    try:
        return [orjson.loads(content)]
    except orjson.JSONDecodeError:
        return list(yaml.load_all(content, Loader=yaml.CSafeLoader))


def _pod_of(item: dict[str, Any], path: Path | str) -> dict[str, Any]:
    kind = str(item.get("kind", "Pod"))
    if kind == "Pod":
        return item
    if kind not in _TEMPLATES:
        raise _other(path, f"Pod, {', '.join(_TEMPLATES)}", kind)
    template: Any = item
    for key in _TEMPLATES[kind]:
        template = template.get(key) if isinstance(template, dict) else None
    if not isinstance(template, dict) or not isinstance(template.get("spec"), dict):
        raise ManifestError(f"{path}: the {kind} has no pod template at {'.'.join(_TEMPLATES[kind])}")
    owner, own = item.get("metadata") or {}, template.get("metadata") or {}
    named = {key: owner[key] for key in ("name", "namespace") if key in owner}
    return {"kind": "Pod", "metadata": {**own, **named}, "spec": template["spec"]}


def _nothing(path: Path | str, kind: str) -> NoReturn:
    raise ManifestError(f"{path} holds no {kind}")


def _other(path: Path | str, kind: str, held: object) -> ManifestError:
    return ManifestError(f"{path} should hold {kind} objects, but there is {held!r} in it")
