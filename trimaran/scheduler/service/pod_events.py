"""Events of the scheduler about pods, as ``kubectl describe pod`` shows them: Scheduled, FailedScheduling, Preempted.

They are written in a thread of their own, at a bounded rate. The same Event about the same pod is written once in five
minutes. Events beyond the rate or the length of the queue are dropped and counted: they are for people, and nothing
depends on them. Source: k8s.io/client-go/tools/events.
"""

import logging
import math
import queue
import socket
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import requests

from runtime.http.failures import describe
from runtime.http.gather import Deadline
from runtime.kubernetes.api import REQUEST_FAILURES, Sender
from runtime.kubernetes.events import create_event
from runtime.kubernetes.objects import Pod
from runtime.kubernetes.paths import list_path
from runtime.kubernetes.rbac import needed_rule
from runtime.threads import join_all

_REPEAT_SECONDS = 300.0
_MOST_REMEMBERED = 20_000
_QUEUE = 5_000
_BURST_SECONDS = 5.0  # a burst may have the Events of so many seconds
_KIND = "Event.events.k8s.io"
_JOIN_SECONDS = 3.0
_WRITE_SECONDS = 10.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PodEvent:
    """Event about a pod.

    Attributes:
        pod: the pod.
        reason: kind of the Event, one word.
        action: action that was taken or tried.
        note: text for people.
        kind: ``Normal`` or ``Warning``.
        related: another pod that the Event is about, or None.
    """

    pod: Pod
    reason: str
    action: str
    note: str
    kind: str = "Normal"
    related: Pod | None = None


class PodEventWriter:
    """Best-effort writer of Events about pods, in the background.

    Args:
        connection: connection to the API server.
        may_write: returns whether this process leads.
        component: name of the scheduler.
        per_second: largest mean rate of Events.
        clock: monotonic clock.

    Attributes:
        dropped: number of Events that were not written.
    """

    def __init__(
        self,
        connection: Sender,
        may_write: Callable[[], bool],
        component: str,
        per_second: float = 200.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._connection, self._may_write, self._component, self._clock = connection, may_write, component, clock
        self._per_second, self._tokens, self._filled_at = per_second, per_second * _BURST_SECONDS, clock()
        self._lock = threading.Lock()
        self._queue: queue.Queue[PodEvent | None] = queue.Queue(_QUEUE)
        self._written: OrderedDict[tuple[str, str, str], float] = OrderedDict()
        self._is_allowed = True
        self._host = socket.gethostname()
        self._thread = threading.Thread(target=self._run, name="events", daemon=True)
        self.dropped = 0

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def write(self, event: PodEvent) -> None:
        """Write an Event in the background, unless the same Event was written a short time ago. Thread-safe."""
        with self._lock:
            if self._is_repeated(event):
                return
            if self._is_allowed and self._has_token():
                try:
                    self._queue.put_nowait(event)
                except queue.Full:
                    pass
                else:
                    self._tokens -= 1
                    return
            self.dropped += 1

    def _is_repeated(self, event: PodEvent) -> bool:
        """Return whether the same Event was written a short time ago, and remember this one."""
        if event.reason == "Scheduled":
            return False  # a pod is bound once
        key, now = (event.pod.uid, event.reason, event.note), self._clock()
        if now - self._written.get(key, -math.inf) < _REPEAT_SECONDS:
            return True
        self._written[key] = now
        self._written.move_to_end(key)
        if len(self._written) > _MOST_REMEMBERED:
            self._written.popitem(last=False)
        return False

    def _has_token(self) -> bool:
        """Fill the token bucket for the time that has passed; return whether it has a token."""
        now = self._clock()
        filled = self._tokens + (now - self._filled_at) * self._per_second
        self._tokens, self._filled_at = min(self._per_second * _BURST_SECONDS, filled), now
        return self._tokens >= 1

    def stop(self) -> bool:
        """Stop after the queued Events, or after a few seconds; return whether the thread has ended."""
        try:
            self._queue.put(None, timeout=_JOIN_SECONDS)
        except queue.Full:
            return False
        return join_all([self._thread], _JOIN_SECONDS)

    def _run(self) -> None:
        while (event := self._queue.get()) is not None:
            if not (self._is_allowed and self._may_write()):
                self.dropped += 1
                continue
            try:
                self._send(event)
            except Exception:  # noqa: BLE001  Events are for people only
                _log.exception("an Event could not be written")

    def _send(self, event: PodEvent) -> None:
        pod, deadline = event.pod, Deadline.after(_WRITE_SECONDS)
        try:
            create_event(
                self._connection, _KIND, _reference(pod), event.note, self._fields(event), deadline,
                namespace=pod.namespace,
            )  # fmt: skip
        except REQUEST_FAILURES as error:
            self.dropped += 1
            failure = describe(error)
            if failure.status == requests.codes.forbidden:
                self._is_allowed = False
                remedy = needed_rule(list_path(_KIND), "create")
                _log.warning("no Events are written", extra={"error": failure.reason, "remedy": remedy})
            elif failure.status != requests.codes.not_found:  # the namespace has been deleted
                _log.info("an Event could not be written", extra={"error": failure.reason})

    def _fields(self, event: PodEvent) -> dict[str, Any]:
        fields: dict[str, Any] = {
            "eventTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "reportingController": self._component,
            "reportingInstance": f"{self._component}-{self._host}"[:128],
            "reason": event.reason,
            "action": event.action,
            "type": event.kind,
        }
        if event.related is not None:
            fields["related"] = _reference(event.related)
        return fields


def _reference(pod: Pod) -> dict[str, str]:
    return {"apiVersion": "v1", "kind": "Pod", "namespace": pod.namespace, "name": pod.name, "uid": pod.uid}
