"""Decoders of Kubernetes objects that arrive by list and watch: an unreadable object is logged once, and left out."""

import logging
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, Generic, TypeVar

from runtime.kubernetes.pod_demand import RequestCache
from runtime.kubernetes.reflector import Object
from runtime.kubernetes.workloads import Workload, workload_of
from scoring import Pod
from trimaran.cluster.interner import Interner

RUNNING: Final = "status.phase!=Succeeded,status.phase!=Failed"
"""Field selector of the pods that have not finished."""

_UNIQUE_FIELDS = frozenset({"name", "uid", "created_at", "scheduled_at", "started_at", "cached_requests"})
Kind = TypeVar("Kind")
_log = logging.getLogger(__name__)


class ObjectReader(Generic[Kind]):
    """Decoder of Kubernetes objects that logs an unreadable object once. For one thread.

    Attributes:
        unreadable: error by object name. The mapping is replaced, never modified, so that any thread may read it.
    """

    def __init__(self, from_k8s: Callable[[Object], Kind]) -> None:
        self._from_k8s = from_k8s
        self.unreadable: Mapping[str, str] = {}

    def read(self, each: Object) -> Kind | None:
        """Return the decoded object; None if it is unreadable."""
        try:
            decoded = self._from_k8s(each)
        except ValueError as error:
            self.refuse(each, error)
            return None
        self.forget(each)
        return decoded

    def refuse(self, each: Object, error: ValueError) -> None:
        """Record the error of an object that is ignored, and log the error once."""
        name, why = _name(each), str(error)
        if self.unreadable.get(name) != why:
            _log.warning("an object cannot be read, so it is not counted", extra={"error": why})
        self.unreadable = {**self.unreadable, name: why}

    def forget(self, gone: Object) -> None:
        """Forget the error of an object that was deleted or is readable again."""
        if self.unreadable and (name := _name(gone)) in self.unreadable:
            self.unreadable = {other: why for other, why in self.unreadable.items() if other != name}


def pod_reader(
    name_workload: Callable[..., Workload] = workload_of, kept_annotations: Collection[str] = ()
) -> ObjectReader[Pod]:
    """Return a decoder of pods whose equal field values are shared in memory.

    Args:
        name_workload: names the workloads of the pods, as for :meth:`Pod.from_k8s`.
        kept_annotations: names of the annotations to keep.
    """
    interner, request_cache = Interner(), RequestCache()

    def from_k8s(each: Object) -> Pod:
        pod = Pod.from_k8s(each, request_cache.lookup, name_workload, kept_annotations)
        return interner.intern(pod, unique_fields=_UNIQUE_FIELDS)

    return ObjectReader(from_k8s)


def metadata_of(each: Object) -> Mapping[str, Any]:
    """Return the metadata of an object; empty if there is none."""
    metadata = each.get("metadata")
    return metadata if isinstance(metadata, dict) else {}


def _name(each: Object) -> str:
    metadata = metadata_of(each)
    return "/".join(str(metadata[key]) for key in ("namespace", "name") if metadata.get(key))
