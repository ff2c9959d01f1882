"""Binder: sends the Bindings of decided pods, and the writes before them, in a few threads; reports each outcome.

A Binding has the pod's UID, so that the API server refuses it if the name belongs to another pod; it also refuses a pod
that has a node. After a time-out or a lost connection it is unknown whether the Binding was executed. The pod is then
read until this succeeds, and counts on its node until then. Only if the pod has no node, the Binding is sent again.
"""

import http
import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import requests

from runtime.errors import error_text
from runtime.http.failures import describe
from runtime.http.gather import Deadline
from runtime.kubernetes.api import REQUEST_FAILURES, Sender
from runtime.kubernetes.object_requests import bind, binding, patch, pod_path, read
from runtime.kubernetes.objects import Pod
from runtime.threads import join_all
from trimaran.scheduler.framework.decisions import Bind, Prepare

NOT_LEADING = "this process does not hold the Lease"
OUTDATED = "the node has changed since the decision, and the pod no longer fits there"
_UNBOUND = "the pod has no node"
_MOST_BINDINGS = 3  # tries to send one decision's Binding; 30 s with the default time limit
_MAX_PAUSE_SECONDS = 5.0
_JOIN_SECONDS = 3.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BindOutcome:
    """Outcome of a decision that the binder has carried out.

    Attributes:
        decision: the decision.
        failure: reason why the pod is not bound, or why a write before its Binding failed; empty after a success.
        seconds: time from the decision to the outcome.
    """

    decision: Bind | Prepare
    failure: str
    seconds: float


class Binder:
    """Threads that carry out the decisions :class:`~trimaran.scheduler.framework.decisions.Bind` and ``Prepare``.

    Args:
        connections: connections to the API server, one for each thread.
        may_write: returns whether this process leads; called before every write.
        timeout_seconds: time limit of a request.
        is_outdated: returns whether a pod no longer fits on its node, by uid; called right before a decision is
            carried out.
    """

    def __init__(
        self,
        connections: Sequence[Sender],
        may_write: Callable[[], bool],
        timeout_seconds: float = 10.0,
        is_outdated: Callable[[str], bool] = lambda _uid: False,
    ) -> None:
        self._may_write, self._seconds, self._is_outdated = may_write, timeout_seconds, is_outdated
        self._queue: queue.SimpleQueue[tuple[Bind | Prepare, float] | None] = queue.SimpleQueue()
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(connection,), name=f"bind-{number}", daemon=True)
            for number, connection in enumerate(connections)
        ]

    def start(self, report: Callable[[BindOutcome], None]) -> None:
        """Start the threads; ``report`` is called with each outcome, from one of them."""
        self._report = report
        for thread in self._threads:
            thread.start()

    def carry_out(self, decision: Bind | Prepare) -> None:
        """Send the requests of a decision in the background."""
        self._queue.put((decision, time.monotonic()))

    @property
    def waiting(self) -> int:
        """Number of decisions that no thread has begun to carry out."""
        return self._queue.qsize()

    def is_alive(self) -> bool:
        """Return whether all threads run."""
        return all(thread.is_alive() for thread in self._threads)

    def stop(self) -> bool:
        """Stop after the current requests; return whether all threads have ended in time."""
        self._stop.set()
        for _ in self._threads:
            self._queue.put(None)
        return join_all(self._threads, _JOIN_SECONDS)

    def _run(self, connection: Sender) -> None:
        while not self._stop.is_set():
            queued = self._queue.get()
            if queued is None:
                return
            decision, at = queued
            failure: str | None
            try:
                if self._is_outdated(decision.pod.uid):
                    failure = OUTDATED
                elif isinstance(decision, Bind):
                    failure = self._bind(connection, decision)
                else:
                    failure = self._prepare(connection, decision)
            except Exception as error:  # noqa: BLE001  a defect must not leave the pod on its node forever
                _log.exception("a pod could not be bound", extra={"pod": _name(decision.pod)})
                failure = error_text(error)
            if failure is not None:
                self._report(BindOutcome(decision, failure, time.monotonic() - at))

    def _prepare(self, connection: Sender, decision: Prepare) -> str:
        """Send the writes before a Binding; return the failure of the first write that failed, empty if none did."""
        for write in decision.writes:
            if not self._may_write():
                return NOT_LEADING
            try:
                patch(connection, write.path, write.body, self._deadline(), write.form)
            except REQUEST_FAILURES as error:
                return f"{write.purpose or write.path}: {describe(error).reason}"
        return ""

    def _bind(self, connection: Sender, decision: Bind) -> str | None:
        """Bind a pod; return why it is not bound, empty if it is bound, None if the thread stops before this is known.

        A Binding without an answer may still be executed later, for example when a proxy holds it. It is therefore
        repeated for the same node: whichever request arrives first, the pod gets this node.
        """
        body, cause = binding(decision.pod, decision.node_name), ""
        for number in range(_MOST_BINDINGS):
            if not self._may_write():
                return NOT_LEADING
            try:
                bind(connection, body, self._deadline())
            except REQUEST_FAILURES as error:
                cause, is_refused = describe(error).reason, not _may_have_been_executed(error)
                if is_refused and not number:
                    return cause
                outcome = self._read_outcome(connection, decision, cause)
                if outcome != _UNBOUND:
                    return outcome
                if is_refused:
                    return cause
            else:
                return ""
        return f"the Binding got no answer: {cause}"

    def _read_outcome(self, connection: Sender, decision: Bind, cause: str) -> str | None:
        """Read a pod whose Binding may have been executed; return the result of :meth:`_bind`, or ``_UNBOUND``."""
        pod, pause = decision.pod, 0.1
        _log.info("reading a pod whose Binding got no answer", extra={"pod": _name(pod), "error": cause})
        while True:
            try:
                found = read(connection, pod_path(pod), self._deadline())
                break
            except REQUEST_FAILURES as error:
                failure = describe(error)
                if failure.status == requests.codes.not_found:
                    return "the pod has been deleted"
                if failure.status == requests.codes.forbidden:
                    return _UNBOUND  # the answer to another Binding shows the outcome
                _log.warning("the pod cannot be read", extra={"pod": _name(pod), "error": failure.reason})
            if self._stop.wait(pause):
                return None
            pause = min(2 * pause, _MAX_PAUSE_SECONDS)
        if found["metadata"].get("uid") != pod.uid:
            return "the pod has been deleted"
        node_name = found["spec"].get("nodeName") or ""
        if node_name == decision.node_name:
            return ""
        return f"the pod is bound to {node_name}" if node_name else _UNBOUND

    def _deadline(self) -> Deadline:
        return Deadline.after(self._seconds)


def _may_have_been_executed(error: Exception) -> bool:
    """Return whether a request may have been executed; a status below 500 is the API server's refusal."""
    if not isinstance(error, requests.HTTPError) or error.response is None:
        return True
    return error.response.status_code >= http.HTTPStatus.INTERNAL_SERVER_ERROR


def _name(pod: Pod) -> str:
    return f"{pod.namespace}/{pod.name}"
