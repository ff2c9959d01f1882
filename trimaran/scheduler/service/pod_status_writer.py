"""Background writer of the newest status of each pod that is not bound, and of preemptions.

Cluster autoscalers add a node for each pod whose condition ``PodScheduled`` is False with the reason ``Unschedulable``.
A pod that no node would help, such as one of an incomplete gang, gets the reason ``Held`` instead.

A preemption first writes the nominated node into the pod's status, so that no other pod takes the node if this process
is killed. Then pods of lower priority lose their nomination to the node, and each victim gets the condition
``DisruptionTarget`` and is deleted. The deletion has the victim's UID, so that no other pod of its name is deleted.
Source: k8s.io/kubernetes/pkg/scheduler/framework/preemption.
"""

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import requests

from runtime.http.failures import describe
from runtime.http.gather import Deadline
from runtime.kubernetes import object_requests
from runtime.kubernetes.api import REQUEST_FAILURES, Sender
from runtime.kubernetes.object_requests import pod_path
from runtime.kubernetes.objects import Pod
from runtime.threads import join_all
from trimaran.scheduler.framework.decisions import Unschedulable
from trimaran.scheduler.framework.extension_points import Preemption
from trimaran.scheduler.service.pod_events import PodEvent

UNSCHEDULABLE: Final = "Unschedulable"
HELD: Final = "Held"
FAILED: Final = "SchedulerError"
_STATUS_PATCH = "application/strategic-merge-patch+json"
_LONGEST_MESSAGE = 4096
_WRITE_SECONDS = 10.0
_JOIN_SECONDS = 3.0
_MOST_REMEMBERED = 50_000
_GONE = {requests.codes.not_found, requests.codes.conflict}
_log = logging.getLogger(__name__)

_Status = tuple[str, str, str]  # reason, message and nominated node


class StatusWriter:
    """Threads that write the statuses of unschedulable pods, and carry out preemptions.

    Args:
        connections: connections to the API server, one for each thread.
        may_write: returns whether this process leads; called before every request.
        write_event: writes an Event about a preempted pod.

    Attributes:
        failures: number of requests that failed.
    """

    def __init__(
        self, connections: Sequence[Sender], may_write: Callable[[], bool], write_event: Callable[[PodEvent], None]
    ) -> None:
        self._may_write, self._write_event = may_write, write_event
        self._changed = threading.Condition()
        self._due: OrderedDict[str, Unschedulable] = OrderedDict()  # newest decision by uid
        self._written: OrderedDict[str, _Status] = OrderedDict()
        self._stop = False
        self._threads = [
            threading.Thread(target=self._run, args=(connection,), name=f"status-{number}", daemon=True)
            for number, connection in enumerate(connections)
        ]
        self.failures = 0

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def report(self, decision: Unschedulable) -> None:
        """Write the status of a pod, and carry out its preemption, in the background."""
        uid = decision.pod.uid
        with self._changed:
            waiting = self._due.get(uid)
            if decision.preemption is None:
                status = _status(decision)
                if waiting is None and self._written.get(uid) == status:
                    return  # pods are tried again and again, mostly with the same result
                if waiting is not None and waiting.preemption is not None:
                    return  # its victims must be deleted; the next attempt corrects the status
            self._due[uid] = decision
            self._changed.notify()

    def hold(self, pod: Pod, node_name: str) -> None:
        """Replace the status of a pod that waits on a node, if the status would make an autoscaler add a node.

        Other waiting pods get no status: most of them are bound at once, and a later status would be wrong.
        """
        with self._changed:
            due, written = self._due.get(pod.uid), self._written.get(pod.uid)
        if due.needs_room if due is not None else written is not None and written[0] == UNSCHEDULABLE:
            message = f"the pod has node {node_name} and waits for approval, for example for the rest of its gang"
            self.report(Unschedulable(pod, message, needs_room=False))

    def forget(self, uid: str) -> None:
        """Forget a pod that was bound or deleted."""
        with self._changed:
            self._due.pop(uid, None)
            self._written.pop(uid, None)

    @property
    def waiting(self) -> int:
        """Number of statuses that are not written yet."""
        return len(self._due)

    def is_alive(self) -> bool:
        """Return whether all threads run."""
        return all(thread.is_alive() for thread in self._threads)

    def stop(self) -> bool:
        """Stop after the current requests; return whether all threads have ended in time."""
        with self._changed:
            self._stop = True
            self._changed.notify_all()
        return join_all(self._threads, _JOIN_SECONDS)

    def _run(self, connection: Sender) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._due or self._stop)
                if self._stop:
                    return
                _, decision = self._due.popitem(last=False)
            try:
                self._write(connection, decision)
            except Exception:  # noqa: BLE001  the next attempt of the pod writes its status again
                _log.exception("the status of a pod could not be written", extra={"pod": pod_path(decision.pod)})

    def _write(self, connection: Sender, decision: Unschedulable) -> None:
        pod, status = decision.pod, _status(decision)
        if self._patch(connection, pod, _patch(pod, status)):
            with self._changed:
                self._written[pod.uid] = status
                if len(self._written) > _MOST_REMEMBERED:
                    self._written.popitem(last=False)
        elif decision.preemption is not None:
            return  # without a nomination another pod could take the node; the pod's next attempt preempts again
        if decision.preemption is not None:
            self._preempt(connection, pod, decision.preemption)

    def _preempt(self, connection: Sender, pod: Pod, preemption: Preemption) -> None:
        for other in preemption.cleared:
            body = {"metadata": {"uid": other.uid}, "status": {"nominatedNodeName": None}}
            self._patch(connection, other, body)
            with self._changed:
                self._written.pop(other.uid, None)
        for victim in preemption.victims:
            if victim.terminating or not self._disrupt(connection, pod, victim):
                continue
            note = f"Preempted by pod {pod.uid} on node {preemption.node_name}"
            self._write_event(PodEvent(victim, "Preempted", "Preempting", note, related=pod))

    def _disrupt(self, connection: Sender, pod: Pod, victim: Pod) -> bool:
        """Delete a victim; return whether it was deleted."""
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "PreemptionByScheduler",
            "message": f"{pod.scheduler_name}: preempting to accommodate a higher priority pod",
            "lastTransitionTime": _now(),
        }
        body = {"metadata": {"uid": victim.uid}, "status": {"conditions": [condition]}}
        return self._patch(connection, victim, body) and self._send(
            victim, partial(object_requests.delete_pod, connection, victim)
        )

    def _patch(self, connection: Sender, pod: Pod, body: Mapping[str, Any]) -> bool:
        """Patch the status of a pod; return whether that succeeded."""
        path = f"{pod_path(pod)}/status"
        return self._send(pod, lambda until: object_requests.patch(connection, path, body, until, _STATUS_PATCH))

    def _send(self, pod: Pod, write: Callable[[Deadline], object]) -> bool:
        """Send a request; return whether it succeeded."""
        if not self._may_write():
            return False
        try:
            write(Deadline.after(_WRITE_SECONDS))
        except REQUEST_FAILURES as error:
            failure = describe(error)
            if failure.status not in _GONE:
                self.failures += 1
                _log.warning("a pod could not be updated", extra={"path": pod_path(pod), "error": failure.reason})
            return False
        return True


def _status(decision: Unschedulable) -> _Status:
    reason = FAILED if decision.is_error else UNSCHEDULABLE if decision.needs_room else HELD
    node_name = "" if decision.ends_nomination else decision.pod.nominated_node_name
    if decision.preemption is not None:
        node_name = decision.preemption.node_name
    return reason, decision.message[:_LONGEST_MESSAGE], node_name


def _patch(pod: Pod, status: _Status) -> dict[str, Any]:
    """Return the patch of a status; the API server refuses the patch if the pod has another UID."""
    reason, message, node_name = status
    condition = {
        "type": "PodScheduled", "status": "False", "reason": reason, "message": message, "lastTransitionTime": _now(),
    }  # fmt: skip
    body: dict[str, Any] = {"conditions": [condition]}
    if node_name != pod.nominated_node_name:
        body["nominatedNodeName"] = node_name
    return {"metadata": {"uid": pod.uid}, "status": body}


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
