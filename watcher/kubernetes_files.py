"""Pods and nodes from files, as ``kubectl get -o yaml`` or ``-o json`` writes them."""

import sys
from pathlib import Path
from typing import Any

import yaml


class FileError(ValueError):
    """A file cannot be read, or does not hold what was asked for."""


def read_objects(path: Path, kind: str) -> list[dict[str, Any]]:
    """Return the objects of one kind, from a List, a single object, or several documents.

    Args:
        path: a YAML or JSON file; ``-`` is standard input.
        kind: ``Pod`` or ``Node``.

    Raises:
        FileError: the file cannot be read, is no YAML, or holds something else.
    """
    try:
        content = sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
        documents = list(yaml.load_all(content, Loader=yaml.CSafeLoader))
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, ValueError) as error:  # a date that does not exist, say
        raise FileError(f"{path} is neither YAML nor JSON: {error}") from error
    found: list[dict[str, Any]] = []
    for document in documents:
        if document is None:
            continue
        items = document.get("items", [document]) if isinstance(document, dict) else None
        for item in items if isinstance(items, list) else [document]:
            if not isinstance(item, dict) or item.get("kind", kind) != kind:
                held = item.get("kind") if isinstance(item, dict) else type(item).__name__
                raise FileError(f"{path} should hold {kind} objects, but there is {held!r} in it")
            found.append(item)
    if not found:
        raise FileError(f"{path} holds no {kind}")
    return found
