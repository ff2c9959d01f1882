"""Nodes planned for the replacements of evicted pods, remembered after the pods are gone.

The rebalancer notes the target on a pod before it evicts the pod (:mod:`trimaran.cluster.target_note`). The note counts
from the deletion of the pod on, for one new pod of the same workload and revision: pods of one revision are
interchangeable, so any of them may take the note. In a StatefulSet the new pod must also have the same name.

A tenant may write notes on its own pods. So a note counts for an hour at most, and only the newest notes per namespace
and in total are kept: a tenant with too many notes loses its own oldest ones.
"""

import threading
import time
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Container
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush
from typing import Any, Final, NamedTuple

from runtime.kubernetes.k8s_fields import get_whole, unix_seconds
from runtime.kubernetes.objects import Pod
from runtime.kubernetes.reflector import Object
from runtime.kubernetes.workloads import Workload, revision_of
from trimaran.cluster.target_note import TargetNote

_CLOCKS: Final = 2.0  # seconds by which the API server's clock may differ from ours; its times are whole seconds
_LONGEST: Final = 3600.0  # seconds for which a note counts; the rebalancer waits 900 for a replacement by default
_MOST, _MOST_OF_NAMESPACE = 10_000, 100  # notes; the rebalancer writes far fewer


class _Kin(NamedTuple):
    """Identity that a pod shares with its replacement."""

    workload: Workload
    revision: str
    name: str  # of the pod, if it belongs to a StatefulSet; "" for other pods


@dataclass(slots=True, eq=False)
class _Noted:
    """Note on a pod, from the first event that has the note until the note expires or newer notes replace it.

    Attributes:
        uid: UID of the noted pod.
        kin: identity that the pod shares with its replacement.
        read: the note as written on the pod.
        note: the same note, valid for an hour at most.
        since: Unix time of the pod's deletion; None before the deletion.
        taker: UID of the pending or bound replacement that has taken the note; "" without a replacement.
    """

    uid: str
    kin: _Kin
    read: TargetNote
    note: TargetNote
    since: float | None = None
    taker: str = ""


class PlannedTargets:
    """Observer of pods that remembers the notes of evicted pods for their replacements. Thread-safe.

    Keeps the newest 100 notes of a namespace and the newest 10,000 in all, each for an hour at most.

    Args:
        clock: Unix time.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._noted: OrderedDict[str, _Noted] = OrderedDict()  # all notes by UID of the noted pod, oldest first
        self._namespaces: dict[str, dict[str, _Noted]] = defaultdict(dict)  # the same notes by namespace and UID
        self._vacancies: dict[_Kin, list[_Noted]] = defaultdict(list)  # notes of deleted, unreplaced pods
        self._claimed: dict[str, _Noted] = {}  # notes by UID of the pending replacement
        self._settled: dict[str, _Noted] = {}  # notes by UID of the bound replacement
        self._ends: list[tuple[float, str]] = []  # heap of ends and UIDs, some of which are outdated

    def claim(self, pod: Pod) -> TargetNote | None:
        """Claim the note of the evicted pod that a pending pod replaces, and return the note; None without a note."""
        kin = _kin(pod)
        with self._lock:
            if kin is None or not self._noted:
                return None
            self._expire()
            if pod.uid not in self._claimed and kin in self._vacancies:
                self._claimed[pod.uid] = self._take(kin, 0, pod.uid)
            found = self._claimed.get(pod.uid)
            return None if found is None else found.note

    def put(self, manifest: Object, read: Pod) -> None:
        """Process a pod's event: its annotation, its deletion, and the binding of a replacement."""
        metadata: dict[str, Any] = manifest.get("metadata") or {}
        note = TargetNote.read(metadata.get("annotations") or {})
        with self._lock:
            if note is None and not self._noted:
                return
            self._expire()
            self._note(read, note)
            if metadata.get("deletionTimestamp"):
                self._vacate(read.uid, _deleted_at(metadata))
            if read.node_name:
                self._bind(read, unix_seconds(metadata.get("creationTimestamp"), "metadata") or 0.0)

    def drop(self, key: str) -> None:
        """Process a deletion: offer the note on the pod to a replacement; release a note that the pod has claimed."""
        with self._lock:
            self._drop(key)

    def keep_only(self, keys: Container[str]) -> None:
        """Drop all pods that are not in a full list."""
        with self._lock:
            for uid in [uid for uid in (*self._noted, *self._claimed) if uid not in keys]:
                self._drop(uid)

    def _note(self, pod: Pod, note: TargetNote | None) -> None:
        """Record the newest note on a pod; once the pod is deleted, its note no longer changes."""
        noted = self._noted.get(pod.uid)
        if noted is not None:
            if noted.since is not None or noted.read == note:
                return
            self._forget(noted)
        kin, now = _kin(pod), self._clock()
        if note is None or kin is None or note.until <= now:
            return
        noted = _Noted(pod.uid, kin, note, replace(note, until=min(note.until, now + _LONGEST)))
        of_namespace = self._namespaces[kin.workload.namespace]
        self._noted[pod.uid] = of_namespace[pod.uid] = noted
        heappush(self._ends, (noted.note.until, pod.uid))
        if len(of_namespace) > _MOST_OF_NAMESPACE:
            self._forget(next(iter(of_namespace.values())))
        if len(self._noted) > _MOST:
            self._forget(next(iter(self._noted.values())))
        if len(self._ends) > 2 * len(self._noted) + _MOST_OF_NAMESPACE:  # ends of replaced notes remain in the heap
            self._ends = [(each.note.until, uid) for uid, each in self._noted.items()]
            heapify(self._ends)

    def _vacate(self, uid: str, since: float) -> None:
        """Open the note of a deleted pod for a replacement."""
        noted = self._noted.get(uid)
        if noted is not None and noted.since is None:
            noted.since = since
            self._vacancies[noted.kin].append(noted)

    def _bind(self, pod: Pod, created_at: float) -> None:
        """Mark a note as used by a bound replacement, also if another process has chosen the pod's node."""
        claimed = self._claimed.pop(pod.uid, None)
        if claimed is not None:
            self._settled[pod.uid] = claimed
            return
        kin = _kin(pod)
        noted = self._noted.get(pod.uid)
        if kin is None or pod.uid in self._settled or (noted is not None and noted.since is not None):
            return
        for index, vacancy in enumerate(self._vacancies.get(kin, ())):
            if vacancy.since is not None and created_at >= vacancy.since:
                self._settled[pod.uid] = self._take(kin, index, pod.uid)
                return

    def _drop(self, uid: str) -> None:
        self._vacate(uid, self._clock() - _CLOCKS)
        claimed = self._claimed.pop(uid, None)
        if claimed is not None:
            claimed.taker = ""
            self._vacancies[claimed.kin].insert(0, claimed)

    def _take(self, kin: _Kin, index: int, taker: str) -> _Noted:
        vacancies = self._vacancies[kin]
        vacancy = vacancies.pop(index)
        vacancy.taker = taker
        if not vacancies:
            del self._vacancies[kin]
        return vacancy

    def _expire(self) -> None:
        """Forget notes that are no longer valid."""
        now = self._clock()
        while self._ends and self._ends[0][0] <= now:
            noted = self._noted.get(heappop(self._ends)[1])
            if noted is not None and noted.note.until <= now:
                self._forget(noted)

    def _forget(self, noted: _Noted) -> None:
        namespace = noted.kin.workload.namespace
        del self._noted[noted.uid], self._namespaces[namespace][noted.uid]
        if not self._namespaces[namespace]:
            del self._namespaces[namespace]
        if noted.taker:
            self._claimed.pop(noted.taker, None)
            self._settled.pop(noted.taker, None)
        elif noted.since is not None:
            vacancies = self._vacancies[noted.kin]
            self._take(noted.kin, vacancies.index(noted), "")


def _kin(pod: Pod) -> _Kin | None:
    """Return the identity that a pod shares with its replacement; None for a pod without a controller."""
    workload = pod.workload
    if workload is None:
        return None
    return _Kin(workload, revision_of(pod.labels), pod.name if workload.kind == "StatefulSet" else "")


def _deleted_at(metadata: dict[str, Any]) -> float:
    """Return the Unix time of the request to delete a pod: its deletionTimestamp is the end of the grace period."""
    try:
        ends_at = unix_seconds(metadata.get("deletionTimestamp"), "metadata") or 0.0
        return ends_at - get_whole(metadata, "deletionGracePeriodSeconds", "metadata", bits=64) - 1.0
    except ValueError:  # in a form that no API server sends
        return 0.0
