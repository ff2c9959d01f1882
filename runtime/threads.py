"""Waiting for threads to end."""

import threading
import time
from collections.abc import Sequence


def join_all(threads: Sequence[threading.Thread], seconds: float) -> bool:
    """Wait until threads have ended, for at most some seconds together; return whether all have.

    Args:
        threads: threads that were asked to stop; those that never started count as ended.
        seconds: longest time to wait.
    """
    until = time.monotonic() + seconds
    for thread in threads:
        if thread.ident is not None:
            thread.join(max(0.0, until - time.monotonic()))
    return not any(thread.is_alive() for thread in threads)
