"""Execution of decisions on a live cluster: Bindings, statuses, Events, metrics, and the outcome of each decision."""

import logging
import time
from collections import OrderedDict
from collections.abc import Collection

from runtime.kubernetes.objects import Pod
from trimaran.scheduler.framework.decisions import Bind, Decision, Prepare, Unschedulable, Waiting
from trimaran.scheduler.framework.scheduler import Scheduler
from trimaran.scheduler.service.binder import OUTDATED, Binder, BindOutcome
from trimaran.scheduler.service.event_queue import EventQueue
from trimaran.scheduler.service.pod_events import PodEvent, PodEventWriter
from trimaran.scheduler.service.pod_status_writer import StatusWriter
from trimaran.scheduler.service.telemetry import AttemptResult, SchedulerTelemetry

_MOST_WAITING = 200  # decisions that wait for a thread of the binder
_MOST_BOUND = 10_000  # last bound pods to remember: a kubelet rejects a pod within seconds after its Binding
_log = logging.getLogger(__name__)


class DecisionExecutor:
    """Handler of the scheduling loop's decisions that carries them out.

    Args:
        binder: sends Bindings.
        statuses: writes the statuses of pods without a node.
        events: writes Events.
        event_queue: passes the outcomes to the scheduling thread.
        telemetry: metrics.
        scheduler_names: names of the scheduler's profiles.
    """

    def __init__(
        self,
        binder: Binder,
        statuses: StatusWriter,
        events: PodEventWriter,
        event_queue: EventQueue,
        telemetry: SchedulerTelemetry,
        scheduler_names: Collection[str],
    ) -> None:
        self._binder, self._statuses, self._events = binder, statuses, events
        self._event_queue, self._telemetry, self._names = event_queue, telemetry, frozenset(scheduler_names)
        self._pending: dict[str, tuple[float, int]] = {}  # by uid: when the pod was first seen pending, attempts
        self._cycle_seconds: dict[str, float] = {}  # duration of the cycle by uid, for pods that are being bound
        self._bound: OrderedDict[str, str] = OrderedDict()  # node names by uid of the pods that were bound last

    def start(self) -> None:
        """Start the threads."""
        self._binder.start(self.report)
        self._statuses.start()
        self._events.start()

    def stop(self) -> bool:
        """Stop the threads; return whether their last requests have ended, so that another process may lead."""
        return all([self._binder.stop(), self._statuses.stop(), self._events.stop()])

    def is_alive(self) -> bool:
        """Return whether all threads run."""
        return self._binder.is_alive() and self._statuses.is_alive()

    def state(self) -> dict[str, float]:
        """Return the numbers of waiting and failed writes and of dropped Events, for the metrics."""
        return {
            "waiting_writes": self._binder.waiting + self._statuses.waiting,
            "dropped_events": self._events.dropped,
            "failed_writes": self._statuses.failures,
        }

    def is_busy(self) -> bool:
        """Return whether too many decisions wait for the binder."""
        return self._binder.waiting >= _MOST_WAITING

    def observe(self, uid: str, pod: Pod | None) -> None:
        """Record a changed pod; None if it was deleted. For the scheduling thread."""
        if pod is None or pod.node_name:
            self._pending.pop(uid, None)
            if pod is None:
                self._statuses.forget(uid)
        elif pod.scheduler_name in self._names and not pod.scheduling.gates:
            self._pending.setdefault(uid, (time.monotonic(), 0))

    def refuse(self, pod: Pod, reason: str) -> None:
        """Report a pending pod that cannot be read, so that nobody waits for it in vain. For the scheduling thread."""
        if pod.scheduler_name in self._names:
            message = f"the pod cannot be read: {reason}"
            self._statuses.report(Unschedulable(pod, message, needs_room=False))
            self._events.write(PodEvent(pod, "FailedScheduling", "Scheduling", message, "Warning"))

    def handle(self, decision: Decision, seconds: float) -> None:
        """Carry out a decision. For the scheduling thread."""
        pod = decision.pod
        self._telemetry.count_cycle(seconds)
        since, attempts = self._pending.get(pod.uid, (time.monotonic(), 0))
        if isinstance(decision, Unschedulable):
            self._pending[pod.uid] = since, attempts + 1
            result = AttemptResult.ERROR if decision.is_error else AttemptResult.UNSCHEDULABLE
            self._telemetry.count_attempt(result, pod.scheduler_name, seconds)
            if decision.preemption is not None:
                self._telemetry.count_preemption(len(decision.preemption.victims))
            self._statuses.report(decision)
            self._events.write(PodEvent(pod, "FailedScheduling", "Scheduling", decision.message, "Warning"))
        elif isinstance(decision, Waiting):
            self._statuses.hold(pod, decision.node_name)
        else:
            if isinstance(decision, Bind):
                self._pending[pod.uid] = since, attempts + 1
                self._cycle_seconds[pod.uid] = seconds
                self._statuses.forget(pod.uid)
                self._bound[pod.uid] = decision.node_name
                if len(self._bound) > _MOST_BOUND:
                    self._bound.popitem(last=False)
            self._binder.carry_out(decision)

    def has_bound(self, uid: str, node_name: str) -> bool:
        """Return whether a Binding of this pod to this node is among the last 10,000. Thread-safe."""
        return self._bound.get(uid) == node_name

    def report_rejection(self, node_name: str, reason: str) -> None:
        """Count a pod that the kubelet of a node rejected, and let the node get no pods for a while. Thread-safe."""
        self._telemetry.count_rejection(reason)
        extra = {"node": node_name, "error": reason}
        _log.warning("a kubelet has rejected a pod; its node gets no pods for a while", extra=extra)
        self._event_queue.post(lambda scheduler, now: scheduler.reject_pod(node_name, now))

    def report(self, outcome: BindOutcome) -> None:
        """Pass an outcome to the scheduling thread. Thread-safe."""
        self._event_queue.post(lambda scheduler, now: self._settle(scheduler, outcome, now))

    def _settle(self, scheduler: Scheduler, outcome: BindOutcome, now: float) -> None:
        decision, pod = outcome.decision, outcome.decision.pod
        seconds = self._cycle_seconds.pop(pod.uid, 0.0) + outcome.seconds
        if outcome.failure:
            scheduler.not_bound(pod.uid, now)
            if outcome.failure == OUTDATED:
                self._telemetry.count_outdated()
            self._telemetry.count_attempt(AttemptResult.ERROR, pod.scheduler_name, seconds)
            extra = {"pod": f"{pod.namespace}/{pod.name}", "node": decision.node_name, "error": outcome.failure}
            _log.warning("a pod could not be bound", extra=extra)
            note = f"binding to {decision.node_name} failed: {outcome.failure}"
            self._events.write(PodEvent(pod, "FailedScheduling", "Scheduling", note, "Warning"))
        elif isinstance(decision, Prepare):
            scheduler.prepared(pod.uid, now)
        else:
            scheduler.bound(pod.uid)
            since, attempts = self._pending.pop(pod.uid, (time.monotonic(), 1))
            self._telemetry.count_attempt(AttemptResult.SCHEDULED, pod.scheduler_name, seconds)
            self._telemetry.count_scheduled(time.monotonic() - since, max(1, attempts))
            note = f"Successfully assigned {pod.namespace}/{pod.name} to {decision.node_name}"
            self._events.write(PodEvent(pod, "Scheduled", "Binding", note))
