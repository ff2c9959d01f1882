"""Threads of a controller: one renews the Lease, the other runs cycles. Both survive every error of their turns."""

import logging
import threading
import time
from collections.abc import Callable

from runtime.kubernetes.leader_election import Lease
from runtime.threads import TurnGuard

_STUCK_SECONDS = 300.0
_FIRST_SECONDS = 0.5  # between attempts until the first cycle has run
_JOIN_SECONDS = 3.0
_log = logging.getLogger(__name__)


class LeaderThreads:
    """Threads of a controller of which one replica acts.

    Args:
        lease: Lease of the leader election; None for a controller that writes nothing.
        lease_seconds: duration of the Lease.
        cycle: runs a cycle; returns whether it ran, or has to wait for its inputs.
        interval_seconds: time between two cycles.
    """

    def __init__(
        self, lease: Lease | None, lease_seconds: float, cycle: Callable[[], bool], interval_seconds: float
    ) -> None:
        self._lease, self._lease_seconds, self._cycle, self._interval = lease, lease_seconds, cycle, interval_seconds
        self._stop = threading.Event()
        self._cycles = TurnGuard(_log, "a cycle failed", "cycles succeed again")
        self._renewals = TurnGuard(_log, "the Lease could not be renewed", "the Lease is renewed again")
        self._ticked_at: dict[str, float] = {}  # by thread, the begin of its last turn
        self._threads = [threading.Thread(target=self._run_cycles, name="cycle", daemon=True)]
        if lease is not None:
            self._threads.append(threading.Thread(target=self._hold, args=(lease,), name="lease", daemon=True))

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            self._tick(thread.name)
            thread.start()

    def is_alive(self) -> bool:
        """Return whether all threads run, and make progress or wait for their next turn."""
        oldest = time.monotonic() - _STUCK_SECONDS - max(self._interval, self._lease_seconds)
        return all(thread.is_alive() and self._ticked_at[thread.name] > oldest for thread in self._threads)

    @property
    def failure(self) -> str:
        """Reason why nothing is done, for the readiness probe; empty if there is none.

        The last cycle or renewal failed unexpectedly, or the Lease cannot be acquired by any process.
        """
        unexpected = self._cycles.failure or self._renewals.failure
        return unexpected or ("" if self._lease is None else self._lease.problem)

    def stop(self) -> None:
        """Stop the threads, and release the Lease."""
        self._stop.set()
        for thread in self._threads:
            thread.join(_JOIN_SECONDS)
        if self._lease is not None:
            self._lease.release()

    def _hold(self, lease: Lease) -> None:
        while not self._stop.is_set():
            self._tick("lease")
            self._renewals.run(lease.renew, None)  # after a failure the Lease may expire
            self._stop.wait(self._lease_seconds / 3)

    def _run_cycles(self) -> None:
        has_run = False
        while not self._stop.is_set():
            self._tick("cycle")
            has_run |= self._cycles.run(self._cycle, otherwise=False)
            self._stop.wait(self._interval if has_run else min(_FIRST_SECONDS, self._interval))

    def _tick(self, name: str) -> None:
        self._ticked_at[name] = time.monotonic()
