"""Scheduling thread, the only thread that uses the scheduler's state: it applies changes, and passes decisions on.

The thread alternates between the event queue and scheduling cycles, so that each cycle sees all changes so far.
It sends no requests. While many decisions wait for the binder, for example because the API server is slow, it makes no
further ones: decisions that wait for long may be outdated when they are sent.
"""

import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from typing import Protocol

from runtime.outage_log import OutageLog
from runtime.threads import TurnGuard, join_all
from trimaran.scheduler.framework.decisions import Decision
from trimaran.scheduler.framework.scheduler import Scheduler
from trimaran.scheduler.service.event_queue import EventQueue

_IDLE_SECONDS = 0.5  # between two checks of the clock, the load and the Lease
_LOAD_SECONDS = 1.0
_STUCK_SECONDS = 120.0
_JOIN_SECONDS = 3.0
_MOST_CHANGES = 1000  # changes that are applied before a cycle
_log = logging.getLogger(__name__)


class DecisionHandler(Protocol):
    """Receiver of decisions, which carries them out or only records them."""

    def handle(self, decision: Decision, seconds: float) -> None:
        """Receive a decision; ``seconds`` is the duration of the cycle. Must return at once."""
        ...

    def is_busy(self) -> bool:
        """Return whether no further decisions should be made now."""
        ...


class SchedulingLoop:
    """Thread that runs a scheduler.

    Args:
        scheduler: the scheduler, which only this thread uses once it is started.
        event_queue: changes of the cluster.
        handler: takes the decisions.
        may_decide: returns whether the cluster is known and this process leads.
        update_load: called about once a second, to let the scheduler score by the newest metrics.
        decides_early: whether to decide after each change, not after all changes that have arrived. In shadow this
            is needed to decide before the other scheduler has bound the pod.
        clock: monotonic clock.

    Attributes:
        counts: the scheduler's counts, as of the last cycle.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        event_queue: EventQueue,
        handler: DecisionHandler,
        may_decide: Callable[[], bool],
        update_load: Callable[[], None],
        *,
        decides_early: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._scheduler, self._event_queue, self._handler = scheduler, event_queue, handler
        self._may_decide, self._update_load, self._clock = may_decide, update_load, clock
        self._batch = 1 if decides_early else _MOST_CHANGES
        self._load_at = float("-inf")
        self._stop = threading.Event()
        self._ticked_at = time.monotonic()
        self._turns = TurnGuard(_log, "a scheduling cycle failed", "scheduling cycles succeed again")
        self._outage = OutageLog(_log, "a plugin does not return", "scheduling goes on")
        self._thread = threading.Thread(target=self._run, name="scheduling", daemon=True)
        self.counts: Mapping[str, int] = {}

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop after the current cycle."""
        self._stop.set()
        self._event_queue.post(lambda _scheduler, _now: None)  # wakes the thread
        join_all([self._thread], _JOIN_SECONDS)

    def is_alive(self) -> bool:
        """Return whether the thread runs."""
        return self._thread.is_alive()

    @property
    def busy_seconds(self) -> float:
        """Time since the thread last began to apply changes or to decide, seconds."""
        return time.monotonic() - self._ticked_at

    def why_stuck(self) -> str:
        """Return the line of code at which the thread hangs, usually in a plugin; empty if it makes progress."""
        seconds = self.busy_seconds
        if seconds < _STUCK_SECONDS:
            self._outage.worked()
            return ""
        frame = sys._current_frames().get(self._thread.ident or 0)  # noqa: SLF001  the only way to another thread's stack
        where = traceback.extract_stack(frame)[-1] if frame is not None else None
        place = "" if where is None else f" in {where.name}, {where.filename}:{where.lineno}"
        reason = f"the scheduling thread has hung for {seconds:.0f} s{place}"
        self._outage.failed(reason)
        return reason

    def run_once(self, wait_seconds: float = 0.0) -> bool:
        """Apply changes, then run one cycle; return whether there was anything to do. The thread calls it.

        Args:
            wait_seconds: longest time to wait for a change, seconds.
        """
        self._ticked_at = time.monotonic()
        changed = self._apply(wait_seconds)
        now = self._clock()
        if now - self._load_at >= _LOAD_SECONDS:
            self._load_at = now
            self._update_load()
        if not self._may_decide() or self._handler.is_busy():
            return changed
        began = time.perf_counter()
        decision = self._scheduler.next(now)
        self.counts = self._scheduler.counts
        if decision is None:
            return changed
        try:
            self._handler.handle(decision, time.perf_counter() - began)
        except Exception:
            self._scheduler.not_bound(decision.pod.uid, now)  # a pod that nobody binds must not stay on its node
            raise
        return True

    def _apply(self, wait_seconds: float) -> bool:
        """Apply the changes that have arrived; return whether there were any."""
        change = self._event_queue.take(wait_seconds)
        applied = 0
        while change is not None:
            try:
                change(self._scheduler, self._clock())
            except Exception:  # noqa: BLE001  one object must not stop all others; it is left out
                _log.exception("a change of the cluster could not be applied")
            applied += 1
            change = self._event_queue.take() if applied < self._batch else None
        return applied > 0

    def _wait_seconds(self) -> float:
        if len(self._event_queue) or not self._may_decide():
            return 0.0 if len(self._event_queue) else _IDLE_SECONDS
        if self._handler.is_busy():
            return 0.01
        due_at = self._scheduler.next_at()
        return _IDLE_SECONDS if due_at is None else min(_IDLE_SECONDS, max(0.0, due_at - self._clock()))

    def _run(self) -> None:
        while not self._stop.is_set():
            self._turns.run(lambda: self.run_once(self._wait_seconds()), otherwise=False)
            if self._turns.failure:
                self._stop.wait(0.1)
