"""Kubernetes Events of the extender, about outages, in which it cannot score nodes by their load, and field trials."""

import logging
import socket
import threading
import time
from datetime import UTC, datetime
from typing import Any

import requests

from runtime.http.failures import describe
from runtime.http.gather import Deadline
from runtime.kubernetes.api import REQUEST_FAILURES, Sender
from runtime.kubernetes.rbac import needed_rule

_SECONDS = 10.0
_LONGEST_NOTE = 1000  # the API server takes 1024
_log = logging.getLogger(__name__)


class EventRecorder:
    """Best-effort writer of Kubernetes Events: a failed write is only logged, and after a 403 no more are tried.

    Args:
        api: Kubernetes API.
        namespace: namespace of the Events, and the object that they are about; "" writes no Events.
    """

    def __init__(self, api: Sender, namespace: str) -> None:
        self._api = api
        self._namespace = namespace

    def record(self, why: str) -> None:
        """Write an Event in the background: an outage began for this reason, or ended if the reason is empty."""
        message = f"Nodes are not scored by their load: {why}" if why else "Nodes are scored by their load again"
        self.announce("LoadUnknown" if why else "LoadKnown", message, is_warning=bool(why))

    def announce(self, reason: str, message: str, *, is_warning: bool) -> None:
        """Write an Event in the background.

        Args:
            reason: kind of the Event, one word.
            message: text for people.
            is_warning: whether somebody should act.
        """
        if self._namespace:
            event = self._event(reason, message, "Warning" if is_warning else "Normal")
            threading.Thread(target=self._write, args=(event,), name="event", daemon=True).start()

    def _write(self, event: dict[str, Any]) -> None:
        path = f"/api/v1/namespaces/{self._namespace}/events"
        try:
            self._api.send("POST", path, Deadline.after(_SECONDS), event)
        except REQUEST_FAILURES as error:
            failure = describe(error)
            extra = {"namespace": self._namespace, "error": failure.reason}
            if failure.status == requests.codes.forbidden:
                self._namespace = ""
                remedy = (
                    f"{needed_rule(path, 'create')}, or set extender.events_namespace to another namespace, or empty"
                )
                _log.warning("no Events are written", extra={**extra, "remedy": remedy})
            else:
                _log.warning("an Event could not be written", extra=extra)

    def _event(self, reason: str, message: str, kind: str) -> dict[str, Any]:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        subject = {"apiVersion": "v1", "kind": "Namespace", "name": self._namespace, "namespace": self._namespace}
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"trimaran-extender.{time.time_ns():x}", "namespace": self._namespace},
            "involvedObject": subject,
            "reason": reason,
            "message": message[:_LONGEST_NOTE],
            "type": kind,
            "source": {"component": "trimaran-extender", "host": socket.gethostname()},
            "reportingComponent": "trimaran-extender",
            "reportingInstance": socket.gethostname(),
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
