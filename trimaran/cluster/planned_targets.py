"""Nodes planned for the replacements of evicted pods, remembered after the pods are gone.

The rebalancer notes the target on a pod before it evicts the pod (:mod:`trimaran.cluster.target_note`). The note counts
from the deletion of the pod on, for one new pod of the same workload and revision: pods of one revision are
interchangeable, so it does not matter which one takes it. A replacement of a StatefulSet's pod has the same name, too.
"""

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Container
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from runtime.kubernetes.k8s_fields import unix_seconds
from runtime.kubernetes.objects import Pod
from runtime.kubernetes.reflector import Object
from runtime.kubernetes.workloads import Workload, revision_of
from trimaran.cluster.target_note import TargetNote

_CLOCKS: Final = 2.0  # seconds by which the API server's clock may differ from ours; its times are whole seconds
_MOST: Final = 10_000  # notes; the caps of the rebalancer are far below


class _Kin(NamedTuple):
    """Identity that a pod shares with its replacement."""

    workload: Workload
    revision: str
    name: str  # of a StatefulSet's pod, else ""


@dataclass(frozen=True, slots=True)
class _Vacancy:
    """Note of a deleted pod.

    Attributes:
        note: the note.
        since: Unix time of the pod's deletion.
    """

    note: TargetNote
    since: float


class PlannedTargets:
    """Observer of pods that remembers the notes of evicted pods for their replacements. Thread-safe.

    Args:
        clock: Unix time.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._noted: dict[str, tuple[_Kin, TargetNote]] = {}  # of pods that are not deleted, by UID
        self._vacancies: dict[_Kin, list[_Vacancy]] = defaultdict(list)  # oldest first
        self._claimed: dict[str, tuple[_Kin, _Vacancy]] = {}  # by pending replacement
        self._settled: dict[str, float] = {}  # UIDs of deleted pods and of replacements, and the end of their notes

    def claim(self, pod: Pod) -> TargetNote | None:
        """Return the note that a pending pod replaces a pod by; the pod keeps it until it is bound or deleted."""
        kin = _kin(pod)
        with self._lock:
            if kin is None or not (self._vacancies or self._claimed):
                return None
            self._expire()
            if pod.uid not in self._claimed and kin in self._vacancies:
                self._claimed[pod.uid] = kin, self._take(kin, 0)
            found = self._claimed.get(pod.uid)
            return None if found is None else found[1].note

    def put(self, manifest: Object, read: Pod) -> None:
        """Follow a pod: its note, its deletion, and the binding of a replacement."""
        metadata: dict[str, Any] = manifest.get("metadata") or {}
        note = TargetNote.read(metadata.get("annotations") or {})
        with self._lock:
            if note is None and not (self._noted or self._vacancies or self._claimed):
                return
            if read.uid not in self._settled:
                self._note(read, note)
            if metadata.get("deletionTimestamp"):
                self._vacate(read.uid, _deleted_at(metadata))
            if read.node_name:
                self._bind(read, unix_seconds(metadata.get("creationTimestamp"), "metadata") or 0.0)

    def drop(self, key: str) -> None:
        """Remember the note of a pod that is gone; release the note that a pending pod has claimed."""
        with self._lock:
            self._drop(key)

    def keep_only(self, keys: Container[str]) -> None:
        """Drop all pods that are not in a full list."""
        with self._lock:
            for uid in [uid for uid in (*self._noted, *self._claimed) if uid not in keys]:
                self._drop(uid)

    def _note(self, pod: Pod, note: TargetNote | None) -> None:
        kin = _kin(pod)
        if note is None or kin is None or note.until <= self._clock() or len(self._noted) >= _MOST:
            self._noted.pop(pod.uid, None)
        else:
            self._noted[pod.uid] = kin, note

    def _vacate(self, uid: str, since: float) -> None:
        """Open the note of a deleted pod for a replacement."""
        found = self._noted.pop(uid, None)
        if found is not None:
            kin, note = found
            self._vacancies[kin].append(_Vacancy(note, since))
            self._settled[uid] = note.until

    def _bind(self, pod: Pod, created_at: float) -> None:
        """Close the note of a bound replacement, whichever process has chosen its node."""
        claimed = self._claimed.pop(pod.uid, None)
        if claimed is not None:
            self._settled[pod.uid] = claimed[1].note.until
            return
        kin = _kin(pod)
        if kin is None or pod.uid in self._settled:
            return
        for index, vacancy in enumerate(self._vacancies.get(kin, ())):
            if created_at >= vacancy.since:
                self._settled[pod.uid] = self._take(kin, index).note.until
                return

    def _drop(self, uid: str) -> None:
        self._vacate(uid, self._clock() - _CLOCKS)
        claimed = self._claimed.pop(uid, None)
        if claimed is not None:
            kin, vacancy = claimed
            self._vacancies[kin].insert(0, vacancy)

    def _take(self, kin: _Kin, index: int) -> _Vacancy:
        vacancies = self._vacancies[kin]
        vacancy = vacancies.pop(index)
        if not vacancies:
            del self._vacancies[kin]
        return vacancy

    def _expire(self) -> None:
        """Forget notes that are no longer valid."""
        now = self._clock()
        for kin, vacancies in list(self._vacancies.items()):
            vacancies[:] = [each for each in vacancies if each.note.until > now]
            if not vacancies:
                del self._vacancies[kin]
        self._claimed = {uid: found for uid, found in self._claimed.items() if found[1].note.until > now}
        self._settled = {uid: until for uid, until in self._settled.items() if until > now}


def _kin(pod: Pod) -> _Kin | None:
    """Return what a pod shares with its replacement; None for a pod without a controller."""
    workload = pod.workload
    if workload is None:
        return None
    return _Kin(workload, revision_of(pod.labels), pod.name if workload.kind == "StatefulSet" else "")


def _deleted_at(metadata: dict[str, Any]) -> float:
    """Return the Unix time of the request to delete a pod: its deletionTimestamp is the end of the grace period."""
    ends_at = unix_seconds(metadata.get("deletionTimestamp"), "metadata") or 0.0
    return ends_at - float(metadata.get("deletionGracePeriodSeconds") or 0) - 1.0
