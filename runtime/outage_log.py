"""Log of an outage: its begin, new causes, reminders at growing intervals, and its end."""

import logging
import re
import time
from collections.abc import Callable

_FIRST_REMINDER_SECONDS = 60.0
_MAX_REMINDER_SECONDS = 3600.0
_MAX_CAUSES = 20  # further causes of one outage are only in the reminders
_NUMBERS = re.compile(r"\d[\d.]*")


class OutageLog:
    """Log of a repeated action that may fail for a long time. Not thread-safe.

    A failure is logged when the outage begins, or when its cause is new in this outage. Texts that differ only in
    numbers, such as the age of the metrics, are the same cause. Reminders follow after one minute, and then after twice
    the previous time, up to one hour.

    Args:
        log: logger of the action.
        failing: message of a failure.
        working: message of the first success after a failure.
        clock: monotonic time in seconds.
    """

    def __init__(
        self, log: logging.Logger, failing: str, working: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._log, self._failing, self._working, self._clock = log, failing, working, clock
        self._causes: set[str] = set()
        self._began_at = self._next_at = self._interval = 0.0

    def failed(self, error: str, exception: BaseException | None = None, **fields: str) -> None:
        """Record a failure, and log it if it is new or a reminder is due.

        Args:
            error: the cause.
            exception: unexpected exception, whose traceback is logged; None for an expected failure.
            fields: further fields of the log line.
        """
        now, cause = self._clock(), _NUMBERS.sub("#", error)
        if not self._causes:
            self._began_at, self._interval = now, _FIRST_REMINDER_SECONDS / 2
            self._next_at = now
        is_new = cause not in self._causes and len(self._causes) < _MAX_CAUSES
        if is_new:
            self._causes.add(cause)
        if now >= self._next_at:
            self._interval = min(2 * self._interval, _MAX_REMINDER_SECONDS)
            self._next_at = now + self._interval
        elif not is_new:
            return
        seconds = round(now - self._began_at)
        extra = {**fields, "error": error, **({"failing_seconds": seconds} if seconds else {})}
        self._log.warning(self._failing, exc_info=exception, extra=extra)

    def worked(self) -> None:
        """Record a success, and log it if the outage ends with it."""
        if self._causes:
            self._causes.clear()
            self._log.info(self._working, extra={"failed_seconds": round(self._clock() - self._began_at)})
