"""Kubernetes Events: short reports about an object, which ``kubectl describe`` and ``kubectl get events`` show."""

import logging
import socket
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import requests

from runtime.http.failures import describe
from runtime.http.gather import Deadline
from runtime.kubernetes.api import REQUEST_FAILURES, Sender
from runtime.kubernetes.object_requests import create
from runtime.kubernetes.paths import list_path
from runtime.kubernetes.rbac import needed_rule

#: The API server takes Events about objects without a namespace, such as nodes, in this namespace only.
CLUSTER_NAMESPACE = "default"
_LONGEST_NAME = 200  # characters of the object's name in that of an Event, which has at most 253
_LONGEST_NOTE = 1024  # bytes of UTF-8: the API server refuses an Event with a longer note
# Version of the API, field of the object, and field of the note, by the kind in runtime.kubernetes.paths.
_FORMS = {
    "Event": ("v1", "involvedObject", "message"),
    "Event.events.k8s.io": ("events.k8s.io/v1", "regarding", "note"),
}
_log = logging.getLogger(__name__)


def create_event(
    api: Sender,
    kind: str,
    subject: Mapping[str, str],
    note: str,
    fields: Mapping[str, Any],
    deadline: Deadline,
    *,
    namespace: str,
) -> None:
    """Create an Event with a unique name, and cut its note to a valid length. All Events are created here.

    Args:
        api: Kubernetes API.
        kind: form of the Event, ``Event`` or ``Event.events.k8s.io``.
        subject: reference to the object that the Event is about.
        note: text for people, which is cut if it is too long.
        fields: further fields of the Event.
        deadline: time limit of the request.
        namespace: namespace of the Event.
    """
    version, subject_field, note_field = _FORMS[kind]
    event = {
        "apiVersion": version,
        "kind": "Event",
        "metadata": {
            "name": f"{subject['name'][:_LONGEST_NAME].rstrip('-.')}.{time.time_ns():x}",
            "namespace": namespace,
        },
        subject_field: dict(subject),
        # A character of several bytes at the end is cut as a whole.
        note_field: note.encode(errors="replace")[:_LONGEST_NOTE].decode(errors="ignore"),
        **fields,
    }
    create(api, list_path(kind, namespace), event, deadline)


class EventWriter:
    """Best-effort writer of Events: a failed write is only logged, and after a 403 the writer stops writing.

    Args:
        api: Kubernetes API.
        component: name of the program that reports.
        namespace: namespace of the Events about objects that have no namespace, such as nodes.
        alternative: what a user may do instead of granting a missing right, for the log.
    """

    def __init__(self, api: Sender, component: str, namespace: str = CLUSTER_NAMESPACE, alternative: str = "") -> None:
        self._api, self._component, self._namespace = api, component, namespace
        self._alternative = alternative
        self._is_allowed = True

    def write(
        self, subject: Mapping[str, str], reason: str, message: str, deadline: Deadline, kind: str = "Normal"
    ) -> None:
        """Write an Event.

        Args:
            subject: reference to the object that the Event is about.
            reason: kind of the Event, one word.
            message: text for people.
            deadline: time limit of the request.
            kind: ``Normal``, or ``Warning`` if somebody should act.
        """
        if not self._is_allowed:
            return
        namespace = subject.get("namespace") or self._namespace
        try:
            fields = self._fields(reason, kind)
            create_event(self._api, "Event", subject, message, fields, deadline, namespace=namespace)
        except REQUEST_FAILURES as error:
            failure = describe(error)
            extra = {"namespace": namespace, "object": subject["name"], "error": failure.reason}
            if failure.status == requests.codes.forbidden:
                self._is_allowed = False
                remedy = needed_rule(list_path("Event", namespace), "create") + self._alternative
                _log.warning("no Events are written", extra={**extra, "remedy": remedy})
            else:
                _log.warning("an Event could not be written", extra=extra)

    def _fields(self, reason: str, kind: str) -> dict[str, Any]:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return {
            "reason": reason,
            "type": kind,
            "source": {"component": self._component, "host": socket.gethostname()},
            "reportingComponent": self._component,
            "reportingInstance": socket.gethostname(),
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
