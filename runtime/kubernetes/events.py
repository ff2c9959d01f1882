"""Kubernetes Events about objects of the whole cluster, such as nodes; ``kubectl describe`` shows them."""

import logging
import socket
import time
from datetime import UTC, datetime
from typing import Any

import requests

from runtime.http.failures import describe
from runtime.http.gather import Deadline
from runtime.kubernetes.api import REQUEST_FAILURES, Sender
from runtime.kubernetes.rbac import needed_rule

#: The API server takes Events about objects without a namespace in this namespace only.
NAMESPACE = "default"
_PATH = f"/api/v1/namespaces/{NAMESPACE}/events"
_LONGEST_NAME = 200  # of the node's part in an Event's name, which has at most 253 characters
_LONGEST_MESSAGE = 1000  # the API server takes 1024
_log = logging.getLogger(__name__)


class NodeEventWriter:
    """Best-effort writer of Events about nodes: a failed write is only logged, and after a 403 no more are tried.

    Args:
        api: Kubernetes API.
        component: name of the program that reports.
    """

    def __init__(self, api: Sender, component: str) -> None:
        self._api, self._component = api, component
        self._is_allowed = True

    def write(self, node: str, uid: str, reason: str, message: str, deadline: Deadline) -> None:
        """Write an Event.

        Args:
            node: name of the node.
            uid: UID of the node.
            reason: kind of the Event, one word.
            message: text for people.
            deadline: time limit of the request.
        """
        if not self._is_allowed:
            return
        try:
            self._api.send("POST", _PATH, deadline, self._event(node, uid, reason, message))
        except REQUEST_FAILURES as error:
            failure = describe(error)
            if failure.status == requests.codes.forbidden:
                self._is_allowed = False
                remedy = needed_rule(_PATH, "create")
                _log.warning("no Events are written", extra={"error": failure.reason, "remedy": remedy})
            else:
                _log.warning("an Event could not be written", extra={"node": node, "error": failure.reason})

    def _event(self, node: str, uid: str, reason: str, message: str) -> dict[str, Any]:
        name = f"{node[:_LONGEST_NAME].rstrip('-.')}.{time.time_ns():x}"
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid},
            "reason": reason,
            "message": message[:_LONGEST_MESSAGE],
            "type": "Normal",
            "source": {"component": self._component, "host": socket.gethostname()},
            "reportingComponent": self._component,
            "reportingInstance": socket.gethostname(),
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
