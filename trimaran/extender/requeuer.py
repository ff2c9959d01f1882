"""Wakes pods that the filter rejected: kube-scheduler tries them again at any event of the cluster, or after 5 minutes.

One deliberate patch of a node, an annotation that says when it cooled, is such an event. It is written when a node that
was over its limit for a waiting pod is not any more, no more than one each so many seconds whoever waits; and once for
a pod that has waited long enough.
"""

import logging
import threading
import time
from datetime import UTC, datetime

from runtime.http.gather import Deadline
from runtime.kubernetes.api import REQUEST_FAILURES, Sender
from trimaran.extender.filtering import NodeFilter

ANNOTATION = "trimaran.io/cooled-at"
_TURN_SECONDS = 2.0
_APART_SECONDS = 10.0
_FORGET_SECONDS = 600.0  # beyond its time: it is bound by now, or gone
_LOOKED_AT = 50  # waiting pods a turn: those that wait longest
_log = logging.getLogger(__name__)


class Waker:
    """Looks after those that wait, in a thread of its own.

    Args:
        api: the API server.
        filtering: who waits.
    """

    def __init__(self, api: Sender, filtering: NodeFilter) -> None:
        self._api, self._filtering = api, filtering
        self._patched_at = float("-inf")
        self._stop = threading.Event()
        self.patches = 0

    def start(self) -> None:
        """Begin in the background."""
        threading.Thread(target=self._run, name="waker", daemon=True).start()

    def close(self) -> None:
        """Stop."""
        self._stop.set()

    def turn(self) -> None:
        """Patch a node, if somebody is to be woken."""
        now = time.monotonic()
        if node := self._woken_by(now):
            self._patched_at = now
            self._patch(node)

    def _woken_by(self, now: float) -> str:
        """Return the node to patch; "" where nobody is to be woken."""
        may_cool = now - self._patched_at >= _APART_SECONDS  # who has waited long enough is not held up by that
        for uid, waiting in list(self._filtering.waiting.items())[:_LOOKED_AT]:
            names = waiting.asked.node_names
            if self._filtering.has_waited(waiting):
                if now - waiting.since > _FORGET_SECONDS:
                    self._filtering.waiting.pop(uid, None)
                elif not waiting.woken:
                    waiting.woken = True
                    return names[0]
                continue
            over = self._filtering.over(waiting.asked) if may_cool else None
            cooled = [] if over is None else [name for name in names if name not in over]
            if cooled:
                return cooled[0]
        return ""

    def _patch(self, node: str) -> None:
        said = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        body = {"metadata": {"annotations": {ANNOTATION: said}}}
        try:
            self._api.send("PATCH", f"/api/v1/nodes/{node}", Deadline.after(10), body, "application/merge-patch+json")
            self.patches += 1
        except REQUEST_FAILURES as error:
            _log.warning(
                "pods that wait cannot be woken, and are tried again by kube-scheduler after minutes",
                extra={"node": node, "error": str(error)},
            )

    def _run(self) -> None:
        while not self._stop.wait(_TURN_SECONDS):
            try:
                self.turn()
            except Exception:  # noqa: BLE001  answers go on, and so does this
                _log.exception("looking after pods that wait failed")
