"""Objects of a simulated cluster, besides nodes and pods, that plugins of the scheduler read: ElasticQuotas."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from runtime.parsing import parse_documents, read_bounded
from trimaran.scheduler.profiles.object_cache import ObjectCache, object_kinds


def read_objects(path: Path) -> tuple[Mapping[str, Any], ...]:
    """Read objects from a YAML file: one in each document, or a list as ``kubectl get -o yaml`` writes it.

    Raises:
        ValueError: the file cannot be read, or has an object that no plugin reads or that is invalid; the message names
            the file.
    """
    try:
        with path.open("rb") as opened:
            objects = tuple(_flat(parse_documents(read_bounded(opened))))
        cache = ObjectCache()
        for document in objects:
            _check_kind(document)
            cache.put(document["kind"], document)
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    return objects


def _flat(documents: list[Any]) -> Iterator[Any]:
    for document in documents:
        if isinstance(document, dict) and document.get("kind") == "List":
            yield from document.get("items") or ()
        elif document is not None:
            yield document


def _check_kind(document: Any) -> None:
    kind = document.get("kind") if isinstance(document, dict) else None
    if kind not in object_kinds():
        got = repr(kind) if kind else "none"
        raise ValueError(f"an object must have one of the kinds {', '.join(sorted(object_kinds()))}, got {got}")
