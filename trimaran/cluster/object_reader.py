"""Decoders of Kubernetes objects that arrive by list and watch: an unreadable object is logged once, and left out."""

import logging
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, Generic, TypeVar

from runtime.kubernetes.k8s_fields import decoder
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
    """Decoder of Kubernetes objects that logs an unreadable object once. Only ``unreadable`` is thread-safe.

    Args:
        from_k8s: decodes an object; raises a ValueError if it cannot.
        on_unreadable: called once with an unreadable object and the error.
    """

    def __init__(
        self,
        from_k8s: Callable[[Object], Kind],
        on_unreadable: Callable[[Object, str], None] = lambda _each, _why: None,
    ) -> None:
        self._from_k8s, self._on_unreadable = decoder("object")(from_k8s), on_unreadable
        self._unreadable: dict[str, str] = {}

    @property
    def unreadable(self) -> Mapping[str, str]:
        """Error by object name. Safe from any thread."""
        # Copied here (atomically) and not at each write: other threads read seldom, and there may be many errors.
        return self._unreadable.copy()

    def read(self, each: Object) -> Kind | None:
        """Return the decoded object; None if it is unreadable."""
        try:
            decoded = self._decode(each)
        except ValueError as error:
            name, why = _name(each), str(error)
            if self._unreadable.get(name) != why:
                _log.warning("an object cannot be read, so it is not counted", extra={"object": name, "error": why})
                self._on_unreadable(each, why)
            self._unreadable[name] = why
            return None
        self.forget(each)
        return decoded

    def _decode(self, each: Object) -> Kind:
        metadata = metadata_of(each)
        names = (metadata.get("name"), metadata.get("namespace") or "", metadata.get("uid") or "")
        if not names[0]:
            raise ValueError("metadata.name is missing")
        if not all(isinstance(name, str) for name in names):
            raise ValueError("metadata: name, namespace and uid must be strings")
        return self._from_k8s(each)

    def forget(self, gone: Object) -> None:
        """Forget the error of an object that was deleted or is readable again."""
        if self._unreadable:
            self._unreadable.pop(_name(gone), None)

    def forget_all(self) -> None:
        """Forget all errors, before a full list is read."""
        self._unreadable = {}


def pod_reader(
    name_workload: Callable[..., Workload] = workload_of,
    kept_annotations: Collection[str] = (),
    on_unreadable: Callable[[Object, str], None] = lambda _each, _why: None,
) -> ObjectReader[Pod]:
    """Return a decoder of pods whose equal field values are shared in memory.

    Args:
        name_workload: names the workloads of the pods, as for :meth:`Pod.from_k8s`.
        kept_annotations: names of the annotations to keep.
        on_unreadable: as for :class:`ObjectReader`.
    """
    interner, request_cache = Interner(), RequestCache()

    def from_k8s(each: Object) -> Pod:
        pod = Pod.from_k8s(each, request_cache.lookup, name_workload, kept_annotations)
        return interner.intern(pod, unique_fields=_UNIQUE_FIELDS)

    return ObjectReader(from_k8s, on_unreadable)


def metadata_of(each: Object) -> Mapping[str, Any]:
    """Return the metadata of an object; empty if there is none."""
    metadata = each.get("metadata")
    return metadata if isinstance(metadata, dict) else {}


def _name(each: Object) -> str:
    metadata = metadata_of(each)
    names = (metadata.get(key) for key in ("namespace", "name"))
    return "/".join(name for name in names if name and isinstance(name, str))
