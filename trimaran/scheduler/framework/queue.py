"""Queue of the pending pods: active, in backoff, unschedulable until an event, or gated.

Source: k8s.io/kubernetes/pkg/scheduler/backend/queue. Pure: the caller passes the time.
"""

import heapq
import itertools
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from runtime.kubernetes.objects import Pod
from scoring.plugins.filtering import ClusterEvent
from trimaran.scheduler.framework.extension_points import Rejection
from trimaran.scheduler.framework.priority_sort import PrioritySort

SortKey = Callable[[Pod, float], tuple[Any, ...]]


@dataclass(slots=True)
class QueueEntry:
    """Pending pod with its attempts.

    Attributes:
        pod: the pod.
        queued_at: time when the pod was first ready for scheduling, seconds.
        attempts: number of scheduling attempts that were begun.
        refused_by: names of the plugins that refused the pod in the last attempt.
        ready_at: end of the backoff, seconds.
        flush_at: time at which an unschedulable pod is tried again without an event, seconds.
        begun: number of events that had been seen when the last attempt began.
    """

    pod: Pod
    queued_at: float
    attempts: int = 0
    refused_by: frozenset[str] = frozenset()
    ready_at: float = 0.0
    flush_at: float = 0.0
    begun: int = 0


@dataclass(frozen=True)
class QueueOptions:
    """Durations of the queue, seconds: the backoffs of a KubeSchedulerConfiguration, and kube-scheduler's flush time.

    Attributes:
        initial_backoff_seconds: backoff after the first failed attempt; doubled by each further failure.
        max_backoff_seconds: longest backoff.
        unschedulable_seconds: time after which an unschedulable pod is tried again without an event.
    """

    initial_backoff_seconds: float = 1.0
    max_backoff_seconds: float = 10.0
    unschedulable_seconds: float = 300.0


@dataclass(slots=True)
class _Heap:
    """Heap of entries by key. An entry that is removed by uid stays in the list, and is skipped when it is first."""

    items: list[tuple[Any, int, QueueEntry]] = field(default_factory=list)
    by_uid: dict[str, int] = field(default_factory=dict)
    numbers: "itertools.count[int]" = field(default_factory=itertools.count)

    def push(self, key: Any, entry: QueueEntry) -> None:
        number = next(self.numbers)
        self.by_uid[entry.pod.uid] = number
        heapq.heappush(self.items, (key, number, entry))

    def first(self) -> tuple[Any, QueueEntry] | None:
        while self.items:
            key, number, entry = self.items[0]
            if self.by_uid.get(entry.pod.uid) == number:
                return key, entry
            heapq.heappop(self.items)
        return None

    def pop(self) -> QueueEntry:
        entry: QueueEntry = heapq.heappop(self.items)[2]
        del self.by_uid[entry.pod.uid]
        return entry

    def remove(self, uid: str) -> None:
        self.by_uid.pop(uid, None)


@dataclass(slots=True)
class _Unschedulable:
    """Entries grouped by the plugins that refused them, so that an event is compared with groups, not with pods.

    Attributes:
        groups: entries by uid, the earliest failure first, by the names of the plugins.
        refused_by: names of the plugins, by uid.
        timed: entries that have a time at which they are tried again, by this time.
    """

    groups: dict[frozenset[str], dict[str, QueueEntry]] = field(default_factory=dict)
    refused_by: dict[str, frozenset[str]] = field(default_factory=dict)
    timed: _Heap = field(default_factory=_Heap)

    def add(self, entry: QueueEntry, retry_at: float | None) -> None:
        self.groups.setdefault(entry.refused_by, {})[entry.pod.uid] = entry
        self.refused_by[entry.pod.uid] = entry.refused_by
        if retry_at is not None:
            self.timed.push(retry_at, entry)

    def remove(self, uid: str) -> None:
        group = self.refused_by.pop(uid, None)
        if group is not None:
            del self.groups[group][uid]
            if not self.groups[group]:
                del self.groups[group]
            self.timed.remove(uid)

    def take(self, refused_by: frozenset[str], but: str) -> list[QueueEntry]:
        """Remove and return a group, except the pod with the uid ``but``."""
        entries = [entry for uid, entry in self.groups[refused_by].items() if uid != but]
        for entry in entries:
            self.remove(entry.pod.uid)
        return entries

    def first(self) -> tuple[float, QueueEntry] | None:
        """Return the time and the entry of the earliest retry without an event; None if there is no entry."""
        oldest = [next(iter(group.values())) for group in self.groups.values()]
        times = [(entry.flush_at, entry) for entry in oldest]
        timed = self.timed.first()
        return min([*times, timed] if timed is not None else times, key=lambda each: each[0], default=None)


class SchedulingQueue:
    """Queue of the pending pods of one scheduler. For one thread.

    Args:
        sort_key: order of the active pods: the least key comes first.
        gate: returns why a pod must not be scheduled yet, or None.
        requeued_by: events that requeue a pod, by the name of the plugin that refused it.
        options: durations of backoffs and retries.
        failed: called with each exception of ``sort_key`` and ``gate``.
    """

    def __init__(
        self,
        sort_key: SortKey,
        gate: Callable[[Pod], Rejection | None],
        requeued_by: Callable[[str], Collection[ClusterEvent]],
        options: QueueOptions = QueueOptions(),
        failed: Callable[[Exception], object] = lambda _: None,
    ) -> None:
        self._sort_key, self._gate, self._requeued_by, self._options = sort_key, gate, requeued_by, options
        self._failed = failed
        self._entries: dict[str, QueueEntry] = {}  # all pods but those in an attempt
        self._active, self._backoff = _Heap(), _Heap()
        self._unschedulable = _Unschedulable()
        self._gated: dict[str, tuple[QueueEntry, Rejection]] = {}
        self._events = 0
        self._last_event: dict[ClusterEvent, int] = {}

    def __contains__(self, uid: str) -> bool:
        return uid in self._entries

    @property
    def counts(self) -> Mapping[str, int]:
        """Number of pods by queue: active, backoff, unschedulable, gated."""
        return {
            "active": len(self._active.by_uid),
            "backoff": len(self._backoff.by_uid),
            "unschedulable": len(self._unschedulable.refused_by),
            "gated": len(self._gated),
        }

    def put(self, pod: Pod, now: float) -> None:
        """Add a pending pod, or replace it by its new version.

        An unschedulable pod whose specification or labels changed is tried again.
        """
        entry = self._entries.get(pod.uid)
        if entry is None:
            self._enqueue(QueueEntry(pod, now), now)
            return
        changed = replace(pod, nominated_node_name=entry.pod.nominated_node_name) != entry.pod
        resort = changed and pod.priority != entry.pod.priority
        entry.pod = pod
        if pod.uid in self._gated or (changed and pod.uid in self._unschedulable.refused_by) or resort:
            self.drop(pod.uid)
            self._enqueue(entry, now)

    def drop(self, uid: str) -> None:
        """Remove a pod, if it is in the queue."""
        if self._entries.pop(uid, None) is not None:
            self._active.remove(uid)
            self._backoff.remove(uid)
            self._unschedulable.remove(uid)
            self._gated.pop(uid, None)

    def pop(self, now: float) -> QueueEntry | None:
        """Remove and return the next pod to schedule, with one more attempt; None if no pod is due."""
        self._flush(now)
        entry = self._first()
        if entry is None:
            return None
        del self._entries[entry.pod.uid]
        entry.attempts += 1
        entry.begun = self._events
        return entry

    def is_active(self, uid: str) -> bool:
        """Return whether a pod is due for an attempt."""
        return uid in self._active.by_uid

    def take(self, uid: str) -> QueueEntry | None:
        """Remove and return a pod, due or not, with one more attempt; None if it is gated or not in the queue."""
        entry = self._entries.get(uid)
        if entry is None or uid in self._gated:
            return None
        self.drop(uid)
        entry.attempts += 1
        entry.begun = self._events
        return entry

    def activate(self, uids: Iterable[str], now: float) -> None:
        """Try pods as soon as possible, without backoff; check their gates again. Ignore pods not in the queue."""
        for uid in uids:
            entry = self._entries.get(uid)
            if entry is not None:
                self.drop(uid)
                entry.ready_at = now
                self._enqueue(entry, now)

    def retry(
        self, entry: QueueEntry, now: float, refused_by: Collection[str] = (), retry_at: float | None = None
    ) -> None:
        """Take back a pod after a failed attempt.

        Args:
            entry: the pod.
            now: current time, seconds.
            refused_by: plugins that refused the pod: it then waits for one of their events, unless such an event came
                during the attempt. Empty after an error: the pod then waits for its backoff only.
            retry_at: time at which the pod is tried again, seconds: if plugins refused it, without waiting for an
                event; else in place of the end of its backoff. A past time has no effect.
        """
        entry.ready_at = now + self._backoff_seconds(entry)
        if retry_at is not None and retry_at > now and not refused_by:  # a past time must not end the backoff
            entry.ready_at = min(retry_at, now + self._options.unschedulable_seconds)
        entry.refused_by = frozenset(refused_by)
        missed = any(
            self._last_event.get(event, 0) > entry.begun for name in refused_by for event in self._requeued_by(name)
        )
        if refused_by and not missed:
            entry.flush_at = now + self._options.unschedulable_seconds
            self._entries[entry.pod.uid] = entry
            self._unschedulable.add(entry, retry_at)
        else:
            self._enqueue(entry, now)

    def move(self, event: ClusterEvent, now: float, but: str = "") -> None:
        """Requeue the unschedulable pods that may fit after an event, except the pod with the uid ``but``."""
        self._events += 1
        self._last_event[event] = self._events
        for refused_by in list(self._unschedulable.groups):
            if any(event in self._requeued_by(name) for name in refused_by):
                for entry in self._unschedulable.take(refused_by, but):
                    self._enqueue(entry, now)

    def next_at(self) -> float | None:
        """Return the time at which a pod is due without an event, seconds; None if no pod waits for a time."""
        if self._active.first() is not None:
            return float("-inf")
        firsts = (self._backoff.first(), self._unschedulable.first())
        return min((first[0] for first in firsts if first is not None), default=None)

    def _enqueue(self, entry: QueueEntry, now: float) -> None:
        self._entries[entry.pod.uid] = entry
        try:
            rejection = self._gate(entry.pod)
        except Exception as error:  # noqa: BLE001  of a plugin, which is asked again after the backoff
            self._failed(error)
            entry.attempts += 1
            entry.ready_at = max(entry.ready_at, now + self._backoff_seconds(entry))
            self._backoff.push(entry.ready_at, entry)
            return
        if rejection is not None:
            self._gated[entry.pod.uid] = entry, rejection
        elif entry.ready_at > now:
            self._backoff.push(entry.ready_at, entry)
        else:
            self._activate(entry)

    def _activate(self, entry: QueueEntry) -> None:
        try:
            self._active.push(self._sort_key(entry.pod, entry.queued_at), entry)
        except Exception as error:  # noqa: BLE001  of a plugin, or of a comparison of its keys
            self._sort_by_priority(error, entry)

    def _first(self) -> QueueEntry | None:
        """Remove and return the active pod that comes first."""
        try:
            return None if self._active.first() is None else self._active.pop()
        except Exception as error:  # noqa: BLE001  of a comparison of a plugin's keys
            self._sort_by_priority(error)
            return self._active.pop()

    def _sort_by_priority(self, error: Exception, *more: QueueEntry) -> None:
        """Order the active pods by priority and time from now on: the plugin's order failed for one of them."""
        self._failed(error)
        self._sort_key = PrioritySort().sort_key
        entries = [*(self._entries[uid] for uid in self._active.by_uid), *more]
        self._active = _Heap()
        for entry in {entry.pod.uid: entry for entry in entries}.values():
            self._active.push(self._sort_key(entry.pod, entry.queued_at), entry)

    def _backoff_seconds(self, entry: QueueEntry) -> float:
        doubled = self._options.initial_backoff_seconds * 2.0 ** min(entry.attempts - 1, 60)
        return min(doubled, self._options.max_backoff_seconds)

    def _flush(self, now: float) -> None:
        while (first := self._backoff.first()) is not None and first[0] <= now:
            self._enqueue(self._backoff.pop(), now)
        while (first := self._unschedulable.first()) is not None and first[0] <= now:
            self._unschedulable.remove(first[1].pod.uid)
            self._enqueue(first[1], now)
