"""The pods that a scheduler placed a moment ago: what neither the API server's list nor the metrics show yet.

A scheduler that counts such pods does not send the next ten to the same idle node. The record is fed by the scheduler
itself (``assign``) and by watch events of the Kubernetes API (``observe``); ``add_to`` puts it on a NodeTable, where
the scores find it.

A pod is kept until the metrics can have seen it: five minutes before the window's end and not before now, since a
window that ended long ago has seen less. After a restart a pod's own timestamps decide; a pod without any is an old
one. So an API server's first list, of every running pod, leaves no more than those placed lately.
"""

import threading
from bisect import bisect_left, insort
from collections.abc import Mapping
from math import isfinite
from typing import Any

from scoring import NodeTable, PlacedPod, Pod


class AssignedPods:
    """A record of recently placed pods, by time. May be used from several threads."""

    def __init__(self, *, keep_seconds: float = 300, max_pods: int = 10_000) -> None:
        """Make an empty record.

        Args:
            keep_seconds: pods placed so long before the window's end are dropped: see :meth:`prune`.
            max_pods: the oldest are dropped beyond this number, so that a window that never moves fills no memory.
        """
        self._keep_seconds = keep_seconds
        self._max_pods = max_pods
        self._lock = threading.Lock()
        self._by_uid: dict[str, tuple[str, PlacedPod]] = {}
        self._order: list[tuple[float, str]] = []  # (placed_at, uid), ascending
        self._cut_off = float("-inf")

    def __len__(self) -> int:
        return len(self._order)

    def assign(self, pod: Pod, node_name: str, at: float) -> None:
        """Record that the scheduler placed a pod.

        Args:
            pod: the pod; one with the same uid is replaced.
            node_name: the node.
            at: when, unix seconds.

        Raises:
            ValueError: the time is not finite.
        """
        if not isfinite(at):
            raise ValueError(f"pod {pod.namespace}/{pod.name} was placed at {at}: that is no time in unix seconds")
        with self._lock:
            self._put(pod, node_name, at)

    def forget(self, pod: Pod) -> None:
        """Take a pod back, told by its uid: it could not be bound, or is gone. Unknown pods are fine."""
        with self._lock:
            self._drop(pod.uid)

    def observe(self, event: Mapping[str, Any]) -> None:
        """Take in one event of a watch on pods; events that say nothing of a bound pod change nothing.

        Args:
            event: ``{"type": "ADDED", "object": {...}}``, the pod as a dict or an object of the kubernetes client. For
                the pods of a list, make one of type ADDED of each.

        Raises:
            ValueError: the pod has an unreadable quantity; the message names the pod and the field.
        """
        kind = event.get("type")
        if kind not in {"ADDED", "MODIFIED", "DELETED"}:
            return  # a bookmark, or an error of the watch
        pod = Pod.from_k8s(event["object"])
        nameless = Pod(name=pod.name, namespace=pod.namespace).uid  # of one that was assigned before it had a uid
        with self._lock:
            node_name, placed = self._by_uid.get(pod.uid) or self._by_uid.get(nameless) or ("", None)
            self._drop(nameless)
            if kind == "DELETED" or pod.finished:
                self._drop(pod.uid)
            elif pod.node_name:
                if placed is not None and node_name == pod.node_name:
                    self._put(pod, node_name, placed.placed_at)  # when we placed it, we know best
                elif pod.scheduled_at is not None:
                    self._put(pod, pod.node_name, pod.scheduled_at)
                else:
                    self._drop(pod.uid)

    def prune(self, window_end: float) -> None:
        """Drop pods that the metrics have seen, now and when they are observed again.

        Args:
            window_end: where the window of the newest snapshot ends, unix seconds; not the time of day.
        """
        with self._lock:
            self._cut_off = window_end - self._keep_seconds
            self._shorten(bisect_left(self._order, (self._cut_off, "")))

    def placed(self) -> tuple[tuple[str, PlacedPod], ...]:
        """Return the pods with their nodes' names, in the order they were placed in."""
        with self._lock:
            return tuple(self._by_uid[uid] for _, uid in self._order)

    def add_to(self, nodes: NodeTable) -> None:
        """Count the recorded pods on a table; those that it has already on this node get the time recorded here.

        Pods that it has on another node stay there, as the API server knows best where a pod is; pods on nodes that it
        does not have are left out. Writing to a table needs its caller's lock.
        """
        for node_name, placed in self.placed():
            known = nodes.find(placed.pod)
            if known is None and node_name in nodes:
                nodes.add(placed.pod, node_name, placed.placed_at)
            elif known is not None and known[0] == node_name and known[1].placed_at != placed.placed_at:
                nodes.add(known[1].pod, node_name, placed.placed_at)

    def _put(self, pod: Pod, node_name: str, at: float) -> None:
        self._drop(pod.uid)
        if at < self._cut_off:
            return
        self._by_uid[pod.uid] = (node_name, PlacedPod(pod, at))
        insort(self._order, (at, pod.uid))
        self._shorten(len(self._order) - self._max_pods)

    def _drop(self, uid: str) -> None:
        known = self._by_uid.pop(uid, None)
        if known is not None:
            del self._order[bisect_left(self._order, (known[1].placed_at, uid))]

    def _shorten(self, count: int) -> None:
        for _, uid in self._order[: max(0, count)]:
            del self._by_uid[uid]
        del self._order[: max(0, count)]
