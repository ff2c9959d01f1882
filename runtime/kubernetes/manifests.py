"""Pods and nodes from files in the formats of ``kubectl get -o yaml`` and ``-o json``."""

import contextlib
import sys
from pathlib import Path
from typing import Any, NoReturn

import orjson

from runtime.errors import quoted
from runtime.kubernetes.kinds import pod_of
from runtime.parsing import parse_documents, read_bounded

_MAX_BYTES = 4 << 30  # a list of 450,000 pods as JSON


class ManifestError(ValueError):
    """The file cannot be read, or does not hold the expected objects."""


def parse_pods(text: str, where: str) -> list[dict[str, Any]]:
    """Return the pods in a text, as ``read_pods`` does for a file; ``where`` names the text in errors."""
    return [_with_pod(each, where) for each in _parse(text, "Pod", where)] or _raise_empty(where, "Pod")


def parse_objects(text: str, kind: str, where: str) -> list[dict[str, Any]]:
    """Return the objects in a text, as ``read_objects`` does for a file; ``where`` names the text in errors."""
    return _of_kind(_parse(text, kind, where), kind, where)


def read_pods(path: Path) -> list[dict[str, Any]]:
    """Return the pods and workloads (such as Deployments) of a file; a workload stands for one pod of its template.

    Raises:
        ManifestError: the file cannot be read, is neither YAML nor JSON, or holds other objects.
    """
    return [_with_pod(each, path) for each in _read(path, "Pod")] or _raise_empty(path, "Pod")


def read_objects(path: Path, kind: str) -> list[dict[str, Any]]:
    """Return the objects of one kind from a file with a List, a single object, or several documents.

    Args:
        path: YAML or JSON file; ``-`` for standard input.
        kind: ``Pod`` or ``Node``.

    Raises:
        ManifestError: the file cannot be read, is neither YAML nor JSON, or holds other objects.
    """
    return _of_kind(_read(path, kind), kind, path)


def _of_kind(objects: list[dict[str, Any]], kind: str, where: Path | str) -> list[dict[str, Any]]:
    for item in objects:
        if item.get("kind", kind) != kind:
            raise _unexpected_content(where, kind, item["kind"])
    return objects or _raise_empty(where, kind)


def _read(path: Path, kind: str) -> list[dict[str, Any]]:
    try:
        with contextlib.nullcontext(sys.stdin.buffer) if str(path) == "-" else path.open("rb") as file:
            content = read_bounded(file, _MAX_BYTES)
    except OSError as error:
        raise ManifestError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ManifestError(f"{path} is {error}") from error
    return _parse(content, kind, path)


def _parse(content: bytes | str, kind: str, path: Path | str) -> list[dict[str, Any]]:
    try:
        documents = _documents(content)
    except ValueError as error:
        raise ManifestError(f"{path} is neither YAML nor JSON: {error}") from error
    objects: list[dict[str, Any]] = []
    for document in documents:
        if document is None:
            continue
        items = document.get("items", [document]) if isinstance(document, dict) else [document]
        if not isinstance(items, list | None):
            raise ManifestError(f"{path}: items must be a list, got {quoted(items)}")
        for item in items or ():  # Go writes an empty list as null
            if not isinstance(item, dict):
                raise _unexpected_content(path, kind, type(item).__name__)
            objects.append(item)
    return objects


def _documents(content: bytes | str) -> list[Any]:
    """Return the documents of a text. JSON is tried first, since parsing it as YAML takes a hundred times as long."""
    try:
        return [orjson.loads(content)]
    except orjson.JSONDecodeError:
        return parse_documents(content)


def _with_pod(item: dict[str, Any], path: Path | str) -> dict[str, Any]:
    """Check that an object is a pod or has a pod template; return the object itself, which names the workload."""
    try:
        pod_of(item)
    except ValueError as error:
        raise ManifestError(f"{path}: {error}") from error
    return item


def _raise_empty(path: Path | str, kind: str) -> NoReturn:
    raise ManifestError(f"{path} holds no {kind}")


def _unexpected_content(path: Path | str, kind: str, content_kind: object) -> ManifestError:
    return ManifestError(f"{path} should hold {kind} objects, but it contains {quoted(content_kind)}")
