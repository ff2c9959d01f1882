"""Tells that nodes are not scored by their load: a Kubernetes Event, beside the log line and the counter."""

import logging
import socket
import threading
import time
from datetime import UTC, datetime
from typing import Any

from runtime.http.gather import Deadline
from runtime.kubernetes.api import REQUEST_FAILURES, Sender

_SECONDS = 10.0
_LONGEST_NOTE = 1000  # the API server takes 1024
_log = logging.getLogger(__name__)


class Events:
    """Writes Events, as well as it can: without the right to, it says so in the log, and nothing else happens.

    Args:
        api: the API server.
        namespace: where, and what the Events are about; "" writes none.
    """

    def __init__(self, api: Sender, namespace: str) -> None:
        self._api = api
        self._namespace = namespace

    def tell(self, why: str) -> None:
        """Write that an outage began, or ended when ``why`` is empty; in the background."""
        if self._namespace:
            threading.Thread(target=self._write, args=(why,), name="event", daemon=True).start()

    def _write(self, why: str) -> None:
        path = f"/api/v1/namespaces/{self._namespace}/events"
        try:
            self._api.send("POST", path, Deadline.after(_SECONDS), self._event(why))
        except REQUEST_FAILURES as error:
            _log.warning("an Event cannot be written", extra={"namespace": self._namespace, "error": str(error)})

    def _event(self, why: str) -> dict[str, Any]:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        said = f"Nodes are not scored by their load: {why}" if why else "Nodes are scored by their load again"
        about = {"apiVersion": "v1", "kind": "Namespace", "name": self._namespace, "namespace": self._namespace}
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"trimaran-extender.{time.time_ns():x}", "namespace": self._namespace},
            "involvedObject": about,
            "reason": "LoadUnknown" if why else "LoadKnown",
            "message": said[:_LONGEST_NOTE],
            "type": "Warning" if why else "Normal",
            "source": {"component": "trimaran-extender", "host": socket.gethostname()},
            "reportingComponent": "trimaran-extender",
            "reportingInstance": socket.gethostname(),
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
