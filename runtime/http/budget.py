"""Memory budget of a fetch, for all of its responses together, in all of its threads.

The current budget is a context variable; :func:`~runtime.http.gather.gather` passes it on to its threads.
"""

import contextlib
import math
import threading
from collections.abc import Callable, Hashable, Iterator
from contextvars import ContextVar
from typing import TypeVar

Value = TypeVar("Value")
_MEBI = 1024 * 1024


class Budget:
    """Limit on the memory that responses take once they are unpacked and parsed. Thread-safe.

    Args:
        max_bytes: size of the budget.
        about: subject of the error message, such as "the answer is".
        setting: setting to raise, for the error message.
        parent: budget that is charged as well; None for no parent.
    """

    def __init__(
        self, max_bytes: float, about: str = "the answer is", setting: str = "", parent: "Budget | None" = None
    ) -> None:
        self._max_bytes = max_bytes
        self._about, self._setting = about, setting
        self._charged = 0
        self._shares: dict[Hashable, Budget] = {}
        self._parent = parent
        self._lock = threading.Lock()

    def charge(self, part: bytes) -> None:
        """Charge the memory that a part of a response will take.

        Raises:
            TooLarge: the budget is exceeded. All later charges fail, too.
        """
        self.charge_bytes(estimate_memory_bytes(part))

    def charge_bytes(self, count: int) -> None:
        """Charge a number of bytes; raises as :meth:`charge` does."""
        with self._lock:
            self._charged += count  # before the check, so that release() also returns the bytes above the limit
            is_exceeded = self._charged > self._max_bytes
        if self._parent is not None:
            self._parent.charge_bytes(count)
        if is_exceeded:
            from runtime.http.errors import TooLarge  # imports requests, which most users of budgets do not need

            hint = f" ({self._setting})" if self._setting else ""
            raise TooLarge(f"{self._about} larger than {self._max_bytes / _MEBI:g} MiB{hint}")

    def share(self, key: Hashable) -> "Budget":
        """Return a separate budget of the same size; always the same one for the same key."""
        with self._lock:
            if key not in self._shares:
                self._shares[key] = Budget(self._max_bytes, self._about, self._setting)
            return self._shares[key]

    def child(self) -> "Budget":
        """Return an unlimited budget that also charges this budget, and can release the charged bytes."""
        return Budget(math.inf, parent=self)

    def release(self, keep_bytes: int) -> None:
        """Subtract the charged bytes from the parent, except for ``keep_bytes``, which stay in memory."""
        if self._parent is not None:
            self._parent.charge_bytes(min(0, keep_bytes - self._charged))


_current: ContextVar[Budget | None] = ContextVar("budget", default=None)


def current() -> Budget | None:
    """Return the budget of the current fetch; None outside of a fetch."""
    return _current.get()


@contextlib.contextmanager
def use_budget(budget: Budget | None) -> Iterator[None]:
    """Charge a budget for all responses in this block, also for those in the threads of ``gather``."""
    token = _current.set(budget)
    try:
        yield
    finally:
        _current.reset(token)


@contextlib.contextmanager
def released() -> Iterator[None]:
    """Charge the responses in this block to the current budget only until the block ends."""
    charged = (_current.get() or Budget(math.inf)).child()
    try:
        with use_budget(charged):
            yield
    finally:
        charged.release(keep_bytes=0)


def call_with_own_budget(key: Hashable, call: Callable[[], Value]) -> Value:
    """Run a call that charges its own budget, one per key and fetch; return the call's result.

    So a provider whose response is endless does not spend the budget of the other providers.
    """
    whole = current()
    with use_budget(whole and whole.share(key)):
        return call()


def estimate_memory_bytes(part: bytes) -> int:
    """Return roughly how many bytes a part of JSON or CSV takes in memory, as text and as Python objects.

    Sizes in CPython: about 160 bytes for a dict, 64 for a list, 48 for a text or number and its place in a list. A
    text takes its own length again, and four times its length if it has a character beyond the first plane.
    """
    texts = 2 if part.isascii() and b"\\u" not in part else 5
    return texts * len(part) + 160 * part.count(b"{") + 64 * part.count(b"[") + 48 * part.count(b",")
