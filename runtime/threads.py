"""Threads: start and join them, and guard a repeated function (a turn) so that no error ends its thread."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from runtime.errors import error_text
from runtime.outage_log import OutageLog

_Result = TypeVar("_Result")


class TurnGuard:
    """Guard of a thread that repeats a function: an unexpected error ends the current turn, not the thread.

    A failed turn must leave a state from which the next turn can continue. The traceback is logged when a cause is new,
    and as a reminder.

    Args:
        log: logger of the thread's work.
        failing: message of a failed turn.
        working: message of the first successful turn after a failure.

    Attributes:
        failure: reason why the last turn failed unexpectedly; empty if it succeeded.
    """

    def __init__(self, log: logging.Logger, failing: str, working: str) -> None:
        self._failing, self._outage = failing, OutageLog(log, failing, working)
        self.failure = ""

    def run(self, turn: Callable[[], _Result], otherwise: _Result) -> _Result:
        """Run a turn; return its result, or ``otherwise`` if the turn failed."""
        try:
            result = turn()
        except BaseException as error:  # the next turn tries again
            if not isinstance(error, Exception) and threading.current_thread() is threading.main_thread():
                raise  # the program is to end; in other threads only a plugin raises SystemExit and the like
            cause = error_text(error)
            self.failure = f"{self._failing}: {cause}"
            self._outage.failed(cause, error)
            return otherwise
        self.failure = ""
        self._outage.worked()
        return result


def start_thread(run: Callable[[], None], name: str) -> threading.Thread:
    """Start a daemon thread, and return the thread.

    Only a started thread can be joined. If a component stored its thread before the start, another thread might try to
    join it too early.
    """
    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    return thread


def join_all(threads: Sequence[threading.Thread], seconds: float) -> bool:
    """Wait until all threads have ended, or until ``seconds`` have passed; return whether all have ended.

    Args:
        threads: threads that were asked to stop; those that never started count as ended.
        seconds: longest time to wait.
    """
    until = time.monotonic() + seconds
    for thread in threads:
        if thread.ident is not None:
            thread.join(max(0.0, until - time.monotonic()))
    return not any(thread.is_alive() for thread in threads)
