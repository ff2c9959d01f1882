"""Leadership of one process at a time by a Lease: acquire it, keep it, and end the process when it is lost.

A Lease cannot fence: the API server accepts writes of a process that no longer holds it. So every write is preceded by
:meth:`Leadership.may_write`, whose clocks also run while the process or the machine is suspended. A request that was
sent just before the Lease expired can still arrive: a new leader waits for a whole duration of the Lease before it
reads the cluster and writes. A process that has lost the Lease must not act on what it knows, so it ends.

A controller whose writes end within a third of the Lease's duration needs neither to wait nor to end: it checks
:attr:`Lease.term` before each write, and starts over with each new term.
"""

import logging
import threading
import time
from collections.abc import Callable

from runtime.kubernetes.api import REQUEST_FAILURES
from runtime.kubernetes.leader_election import Lease, uptime
from runtime.threads import TurnGuard, join_all

_STUCK_SECONDS = 60.0
_JOIN_SECONDS = 3.0
_log = logging.getLogger(__name__)


class Leadership:
    """Thread that acquires a Lease and renews it.

    Args:
        lease: the Lease; :meth:`stop` releases it.
        seconds: duration of the Lease.
        on_lost: called in the thread when the Lease is lost; it should end the process at once. None for a controller
            that may acquire the Lease again.
        clock: seconds of a clock that also runs while the machine is suspended.
    """

    def __init__(
        self,
        lease: Lease,
        seconds: float,
        on_lost: Callable[[], None] | None = None,
        clock: Callable[[], float] = uptime,
    ) -> None:
        self._lease, self._seconds, self._on_lost, self._clock = lease, seconds, on_lost, clock
        self._term: int | None = None
        self._leads_at = 0.0
        self._stop = threading.Event()
        self._ticked_at = time.monotonic()
        self._turns = TurnGuard(_log, "the Lease could not be renewed", "the Lease is renewed again")
        self._thread = threading.Thread(target=self._run, name="lease", daemon=True)

    def start(self) -> None:
        """Start to acquire the Lease in the background."""
        self._ticked_at = time.monotonic()
        self._thread.start()

    def stop(self, *, release: bool = True) -> None:
        """Stop, and release the Lease, so that another process leads at once.

        Args:
            release: False if a write may still arrive late: the Lease then expires.
        """
        self._stop.set()
        join_all([self._thread], _JOIN_SECONDS)
        if release and self.has_lease:
            self._lease.release()
        self._term = None

    @property
    def has_lease(self) -> bool:
        """Return whether this process has held the Lease without interruption since it acquired it."""
        return self._term is not None and self._lease.term == self._term

    @property
    def holder(self) -> str:
        """Identity of the process that held the Lease at the last request; empty if none is known."""
        return self._lease.holder

    @property
    def problem(self) -> str:
        """Reason why the last renewal failed, with its remedy; empty if it succeeded.

        While this process still holds the Lease, only unexpected errors are reported.
        """
        return self._turns.failure or self._lease.problem

    def may_write(self) -> bool:
        """Return whether this process is the leader now, and may send a request that changes the cluster."""
        return self.has_lease and self._clock() >= self._leads_at

    def is_alive(self) -> bool:
        """Return whether the thread runs and makes progress."""
        return self._thread.is_alive() and time.monotonic() - self._ticked_at < _STUCK_SECONDS + self._seconds

    def run_once(self) -> float:
        """Acquire or renew the Lease; return the seconds until the next renewal. The thread calls it."""
        pause = self._seconds / 3
        try:
            self._lease.acquire()
        except REQUEST_FAILURES:  # the Lease logs it
            pause = self._seconds / 15  # several more attempts before the Lease expires
        term = self._lease.term
        if self._on_lost is None:
            self._term = term
        elif self._term is not None and term != self._term:
            self._on_lost()
        elif self._term is None and term is not None:
            # A process that stopped by itself has released the Lease after its last write: nothing can arrive late.
            wait = self._seconds if self._lease.is_taken_over else 0.0
            self._leads_at = self._clock() + wait
            self._term = term
            if wait:
                _log.info("waiting for late writes of the last leader", extra={"seconds": wait})
        return pause

    def _run(self) -> None:
        while not self._stop.is_set():
            self._ticked_at = time.monotonic()
            self._stop.wait(self._turns.run(self.run_once, self._seconds / 15))  # retry soon: the Lease may expire
