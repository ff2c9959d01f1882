"""How much memory the answers of one fetch may take, all of them together, whichever threads ask for them.

The budget goes with the context: :func:`~runtime.http.gather.gather` hands it on to its threads.
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
    """Counts what answers take once they are unpacked and read. Safe to use from several threads.

    Args:
        max_bytes: how much that may be.
        about: what is too large then, in errors.
        setting: what mends it, in errors.
        parent: what is taken is taken of that one, too.
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
        """Take what a part of an answer takes.

        Raises:
            TooLarge: there is not so much left; nor is there for any other answer.
        """
        self.charge_bytes(estimate_memory_bytes(part))

    def charge_bytes(self, count: int) -> None:
        """Take so many bytes; raises as :meth:`charge` does."""
        if self._parent is not None:
            self._parent.charge_bytes(count)
        with self._lock:
            self._charged += count
            if self._charged > self._max_bytes:
                from runtime.http.errors import TooLarge  # requests is behind it

                hint = f" ({self._setting})" if self._setting else ""
                raise TooLarge(f"{self._about} larger than {self._max_bytes / _MEBI:g} MiB{hint}")

    def share(self, key: Hashable) -> "Budget":
        """Return another budget, as large as this one; the same for the same key."""
        with self._lock:
            if key not in self._shares:
                self._shares[key] = Budget(self._max_bytes, self._about, self._setting)
            return self._shares[key]

    def child(self) -> "Budget":
        """Return a budget out of this one, of what can be given back."""
        return Budget(math.inf, parent=self)

    def release(self, keep_bytes: int) -> None:
        """Give back what was taken of a loan but for what is kept of the answers."""
        if self._parent is not None:
            self._parent.charge_bytes(min(0, keep_bytes - self._charged))


_current: ContextVar[Budget | None] = ContextVar("budget", default=None)


def current() -> Budget | None:
    """Return the budget of the fetch that this thread works for, if there is one."""
    return _current.get()


@contextlib.contextmanager
def use_budget(budget: Budget | None) -> Iterator[None]:
    """Have all answers counted by a budget, also those that ``gather`` asks for from here."""
    token = _current.set(budget)
    try:
        yield
    finally:
        _current.reset(token)


def call_with_own_budget(key: Hashable, call: Callable[[], Value]) -> Value:
    """Return what a call returns that spends a budget of its own, the same for the same key in one fetch.

    That of one provider: others' answers must not be lost to one whose body has no end.
    """
    whole = current()
    with use_budget(whole and whole.share(key)):
        return call()


def estimate_memory_bytes(part: bytes) -> int:
    """Return about how many bytes a part of JSON or CSV takes in memory, as it is and read into objects.

    The numbers are CPython's: a dict takes some 160 bytes, a list 64, a text or number with its place in a list 48.
    Texts take as much again as they have bytes, and four times that where a character is beyond the first plane.
    """
    texts = 2 if part.isascii() and b"\\u" not in part else 5
    return texts * len(part) + 160 * part.count(b"{") + 64 * part.count(b"[") + 48 * part.count(b",")
