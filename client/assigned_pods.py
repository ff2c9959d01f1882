"""Pods that a scheduler placed recently, which neither the API server's list nor the metrics show yet.

Without counting such pods, a scheduler would send the next ten pods to the same idle node. The scheduler records its
placements (``assign``), and the watch of the Kubernetes API adds its events (``observe``). ``add_to`` adds the pods to
a NodeTable, where the scores find them.

A pod is dropped if it was placed more than five minutes before the end of the metrics' window, because the metrics
then show it. The current time does not matter: an old window shows fewer pods. After a restart the pods' own timestamps
decide; a pod without timestamps counts as old. So a first list of all pods adds only the recently placed ones.
"""

import threading
from bisect import bisect_left, insort
from collections.abc import Mapping
from math import isfinite
from typing import Any

from scoring import NodeTable, PlacedPod, Pod


class AssignedPods:
    """Record of recently placed pods, in order of time. Thread-safe."""

    def __init__(self, *, keep_seconds: float = 300, max_pods: int = 10_000) -> None:
        """Create an empty record.

        Args:
            keep_seconds: pods placed earlier than this before the window's end are dropped; see :meth:`prune`.
            max_pods: maximum number of pods; above it the oldest are dropped, in case the window's end never moves.
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
            pod: the pod; it replaces a recorded pod with the same uid.
            node_name: the node.
            at: time of the placement, Unix seconds.

        Raises:
            ValueError: the time is not finite.
        """
        if not isfinite(at):
            raise ValueError(f"pod {pod.namespace}/{pod.name}: at must be a time in Unix seconds, got {at}")
        with self._lock:
            self._put(pod, node_name, at)

    def forget(self, pod: Pod) -> None:
        """Remove a pod, identified by its uid, because it could not be bound or was deleted. Ignores unknown pods."""
        with self._lock:
            self._drop(pod.uid)

    def observe(self, event: Mapping[str, Any]) -> None:
        """Process a watch event of a pod. Events of pods that are not bound have no effect.

        Args:
            event: ``{"type": "ADDED", "object": {...}}``, with the pod as a dict or an object of the kubernetes client.
                For the pods of a list, pass an event of type ADDED for each.

        Raises:
            ValueError: the pod has an invalid quantity; the message names the pod and the field.
        """
        kind = event.get("type")
        if kind not in {"ADDED", "MODIFIED", "DELETED"}:
            return  # a bookmark or an error
        pod = Pod.from_k8s(event["object"])
        default_uid = Pod(name=pod.name, namespace=pod.namespace).uid  # of a pod that was assigned without a uid
        with self._lock:
            node_name, placed = self._by_uid.get(pod.uid) or self._by_uid.get(default_uid) or ("", None)
            self._drop(default_uid)
            if kind == "DELETED" or pod.finished:
                self._drop(pod.uid)
            elif pod.node_name:
                if placed is not None and node_name == pod.node_name:
                    self._put(pod, node_name, placed.placed_at)  # the scheduler's own time is the most exact
                elif pod.scheduled_at is not None:
                    self._put(pod, pod.node_name, pod.scheduled_at)
                else:
                    self._drop(pod.uid)

    def prune(self, window_end: float) -> None:
        """Drop pods whose use the metrics show by now. Later events of these pods do not add them again.

        Args:
            window_end: end of the newest snapshot's window, Unix seconds; not the current time.
        """
        with self._lock:
            self._cut_off = window_end - self._keep_seconds
            self._drop_oldest(bisect_left(self._order, (self._cut_off, "")))

    def placed(self) -> tuple[tuple[str, PlacedPod], ...]:
        """Return the pods with the names of their nodes, in order of placement."""
        with self._lock:
            return tuple(self._by_uid[uid] for _, uid in self._order)

    def add_to(self, nodes: NodeTable) -> None:
        """Add the recorded pods to a table, and set the placement time of pods that the table has on the same node.

        Pods that the table has on another node are left there, because the API server's data are more reliable. Pods on
        nodes that the table does not have are skipped. The caller must hold the table's lock, if it uses one.
        """
        for node_name, placed in self.placed():
            counted = nodes.find(placed.pod)
            if counted is None and node_name in nodes:
                nodes.add(placed.pod, node_name, placed.placed_at)
            elif counted is not None and counted[0] == node_name and counted[1].placed_at != placed.placed_at:
                nodes.add(counted[1].pod, node_name, placed.placed_at)

    def _put(self, pod: Pod, node_name: str, at: float) -> None:
        self._drop(pod.uid)
        if at < self._cut_off:
            return
        self._by_uid[pod.uid] = (node_name, PlacedPod(pod, at))
        insort(self._order, (at, pod.uid))
        self._drop_oldest(len(self._order) - self._max_pods)

    def _drop(self, uid: str) -> None:
        removed = self._by_uid.pop(uid, None)
        if removed is not None:
            del self._order[bisect_left(self._order, (removed[1].placed_at, uid))]

    def _drop_oldest(self, count: int) -> None:
        for _, uid in self._order[: max(0, count)]:
            del self._by_uid[uid]
        del self._order[: max(0, count)]
