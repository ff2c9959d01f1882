"""Requeuing of pods that the filter rejected: a patched node annotation makes kube-scheduler retry them.

kube-scheduler retries a rejected pod at a cluster event such as a patch of a node, or after 5 minutes. A node is
patched when it is no longer over its limit for a waiting pod, at most once in 10 seconds, and when a pod has waited for
``max_wait_seconds``, once for each such pod. The annotation is the time of the patch.
"""

import logging
import threading
import time
from datetime import UTC, datetime

from runtime.http.failures import describe
from runtime.http.gather import Deadline
from runtime.kubernetes.api import REQUEST_FAILURES, Sender
from runtime.kubernetes.object_requests import patch
from runtime.kubernetes.paths import object_path
from runtime.threads import TurnGuard
from trimaran.extender.filtering import NodeFilter, RejectedPod

ANNOTATION = "trimaran.io/cooled-at"
_CYCLE_SECONDS = 2.0
_PATCH_INTERVAL_SECONDS = 10.0
_FORGET_SECONDS = 600.0  # a pod that waited for longer has been bound or deleted
_PODS_PER_CYCLE = 50  # the longest waiting pods
_log = logging.getLogger(__name__)


class Requeuer:
    """Requeuer of pods that the filter rejected, with a thread of its own.

    Args:
        api: Kubernetes API.
        filtering: filter, which knows the waiting pods.

    Attributes:
        patches: number of successful patches.
    """

    def __init__(self, api: Sender, filtering: NodeFilter) -> None:
        self._api, self._filtering = api, filtering
        self._patched_at = float("-inf")
        self._stop = threading.Event()
        self._turns = TurnGuard(_log, "waiting pods could not be requeued", "waiting pods are requeued again")
        self._refused_until = float("-inf")
        self.patches = 0

    def start(self) -> None:
        """Start the thread."""
        threading.Thread(target=self._run, name="requeuer", daemon=True).start()

    def close(self) -> None:
        """Stop the thread."""
        self._stop.set()

    def run_cycle(self) -> None:
        """Patch a node if kube-scheduler should retry a waiting pod."""
        now = time.monotonic()
        if now < self._refused_until:
            return
        node, waited = self._node_to_patch(now)
        if not node:
            return
        if not self._patch(node):
            self._refused_until = now + _PATCH_INTERVAL_SECONDS
            return
        self._patched_at = now
        if waited is not None:
            self._filtering.mark_requeued(waited)

    def _node_to_patch(self, now: float) -> tuple[str, RejectedPod | None]:
        """Return the node to patch, "" if none; and the pod to requeue if its wait is the reason, else None."""
        may_cool = now - self._patched_at >= _PATCH_INTERVAL_SECONDS  # the interval is not for pods that have waited
        for waiting in self._filtering.waiting[:_PODS_PER_CYCLE]:
            names = waiting.args.node_names
            if self._filtering.has_waited(waiting):
                if now - waiting.since > _FORGET_SECONDS:
                    self._filtering.forget(waiting)
                elif not waiting.requeued:
                    return names[0], waiting
                continue
            over = self._filtering.nodes_over_limit(waiting.args) if may_cool else None
            cooled = [] if over is None else [name for name in names if name not in over]
            if cooled:
                return cooled[0], None
        return "", None

    def _patch(self, node: str) -> bool:
        """Patch a node; return whether it succeeded."""
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        body = {"metadata": {"annotations": {ANNOTATION: now}}}
        try:
            patch(self._api, object_path("Node", node), body, Deadline.after(10))
        except REQUEST_FAILURES as error:
            _log.warning(
                "waiting pods cannot be requeued by a patch of the node; kube-scheduler retries them after 5 minutes",
                extra={"node": node, "error": describe(error).reason},
            )
            return False
        self.patches += 1
        return True

    def _run(self) -> None:
        while not self._stop.wait(_CYCLE_SECONDS):
            self._turns.run(self.run_cycle, None)
