"""Learned use of workloads, read from the watcher in the background; plugins expect the same use of new pods."""

import logging
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from client import ClientError, WatcherClient
from runtime.outage_log import OutageLog
from runtime.threads import TurnGuard
from scoring import UseLevels

if TYPE_CHECKING:
    from watcher.workload_table import WorkloadTable

_log = logging.getLogger(__name__)
MAX_AGE_SECONDS = 3600.0
"""Age from which the learned use counts as unknown: twelve rounds of measurements."""


class WorkloadUse:
    """Background reader of the use of workloads. Safe to use from any thread.

    Args:
        client: client of the watcher; this reader does not close it.
        interval_seconds: interval between two reads.
        clock: Unix time.
    """

    def __init__(self, client: WatcherClient, interval_seconds: float, clock: Callable[[], float] = time.time) -> None:
        self._client, self._interval_seconds, self._clock = client, interval_seconds, clock
        self._known: tuple[WorkloadTable | None, UseLevels | None] = (None, None)
        self._failure = ""
        self._outage = OutageLog(_log, "the use of workloads is not known", "the use of workloads is known again")
        self._stop = threading.Event()
        self._turns = TurnGuard(_log, "the use of workloads could not be read", "the use of workloads is read again")
        self._thread = threading.Thread(target=self._run, name="workloads", daemon=True)

    def start(self) -> None:
        """Start to read in the background."""
        self._thread.start()

    def close(self) -> None:
        """Stop reading."""
        self._stop.set()

    def levels(self) -> UseLevels | None:
        """Return the expected use of pods; None without a table, or if it is too old: pods then count by requests."""
        table, levels = self._known
        if table is None or self._clock() - table.timestamp > MAX_AGE_SECONDS:
            return None
        return levels

    @property
    def why_unknown(self) -> str:
        """Reason why pods count by requests; "" if the use of workloads is known."""
        if self.levels() is not None:
            return ""
        if self._known[0] is None:
            return self._failure or "the use of workloads has not been read yet"
        return f"the newest round of measurements is {self.age_seconds:.0f} s old"

    @property
    def workloads(self) -> int:
        """Number of workloads whose use counts now."""
        table, _ = self._known
        return 0 if table is None or self.levels() is None else len(table)

    @property
    def age_seconds(self) -> float:
        """Age of the newest table; infinite if there is none."""
        table, _ = self._known
        return float("inf") if table is None else self._clock() - table.timestamp

    def read_once(self) -> None:
        """Read the table. The background thread calls it; tests may call it directly."""
        try:
            table = self._client.workloads()
        except ClientError as error:
            self._failure = str(error)
            self._outage.failed(self._failure)
            return
        known, levels = self._known
        if table is not known:
            self._known = table, UseLevels.of_workloads(table, levels)
        if self.levels() is None:
            self._outage.failed(self.why_unknown)
        else:
            self._outage.worked()

    def _run(self) -> None:
        while True:
            self._turns.run(self.read_once, None)  # after a bug here pods count by requests; placement goes on
            if self._stop.wait(self._interval_seconds):
                return
