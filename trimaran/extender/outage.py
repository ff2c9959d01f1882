"""Kubernetes Events about field trials and about outages, in which the extender cannot score nodes by their load."""

import threading

from runtime.http.gather import Deadline
from runtime.kubernetes.api import Sender
from runtime.kubernetes.events import EventWriter

_SECONDS = 10.0
_ALTERNATIVE = ", or set extender.events_namespace to another namespace, or empty"


class EventRecorder:
    """Background writer of Events about the extender's namespace; see :class:`~runtime.kubernetes.events.EventWriter`.

    Args:
        api: Kubernetes API.
        namespace: namespace of the Events, and the object that they are about; "" writes no Events.
    """

    def __init__(self, api: Sender, namespace: str) -> None:
        self._writer = EventWriter(api, "trimaran-extender", namespace, _ALTERNATIVE)
        self._namespace = namespace

    def record(self, why: str) -> None:
        """Write an Event in the background about the begin of an outage, or about its end if the reason is empty."""
        message = f"Nodes are not scored by their load: {why}" if why else "Nodes are scored by their load again"
        self.announce("LoadUnknown" if why else "LoadKnown", message, is_warning=bool(why))

    def announce(self, reason: str, message: str, is_warning: bool) -> None:
        """Write an Event in the background.

        Args:
            reason: kind of the Event, one word.
            message: text for people.
            is_warning: whether somebody should act.
        """
        if self._namespace:
            name = self._namespace
            subject = {"apiVersion": "v1", "kind": "Namespace", "name": name, "namespace": name}
            kind = "Warning" if is_warning else "Normal"
            arguments = (subject, reason, message, Deadline.after(_SECONDS), kind)
            threading.Thread(target=self._writer.write, args=arguments, name="event", daemon=True).start()
