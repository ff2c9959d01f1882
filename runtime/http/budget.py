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
        lender: what is taken is taken of that one, too.
    """

    def __init__(
        self, max_bytes: float, about: str = "the answer is", setting: str = "", lender: "Budget | None" = None
    ) -> None:
        self._max_bytes = max_bytes
        self._about, self._setting = about, setting
        self._spent = 0
        self._parts: dict[Hashable, Budget] = {}
        self._lender = lender
        self._lock = threading.Lock()

    def spend(self, part: bytes) -> None:
        """Take what a part of an answer takes.

        Raises:
            TooLarge: there is not so much left; nor is there for any other answer.
        """
        self.take(weight(part))

    def take(self, count: int) -> None:
        """Take so many bytes; raises as :meth:`spend` does."""
        if self._lender is not None:
            self._lender.take(count)
        with self._lock:
            self._spent += count
            if self._spent > self._max_bytes:
                from runtime.http.errors import TooLarge  # requests is behind it

                hint = f" ({self._setting})" if self._setting else ""
                raise TooLarge(f"{self._about} larger than {self._max_bytes / _MEBI:g} MiB{hint}")

    def part(self, key: Hashable) -> "Budget":
        """Return another budget, as large as this one; the same for the same key."""
        with self._lock:
            if key not in self._parts:
                self._parts[key] = Budget(self._max_bytes, self._about, self._setting)
            return self._parts[key]

    def loan(self) -> "Budget":
        """Return a budget out of this one, of what can be given back."""
        return Budget(math.inf, lender=self)

    def give_back(self, keep_bytes: int) -> None:
        """Give back what was taken of a loan but for what is kept of the answers."""
        if self._lender is not None:
            self._lender.take(min(0, keep_bytes - self._spent))


_current: ContextVar[Budget | None] = ContextVar("budget", default=None)


def current() -> Budget | None:
    """Return the budget of the fetch that this thread works for, if there is one."""
    return _current.get()


@contextlib.contextmanager
def spending(budget: Budget | None) -> Iterator[None]:
    """Have all answers counted by a budget, also those that ``gather`` asks for from here."""
    token = _current.set(budget)
    try:
        yield
    finally:
        _current.reset(token)


def apart(key: Hashable, call: Callable[[], Value]) -> Value:
    """Return what a call returns that spends a budget of its own, the same for the same key in one fetch.

    That of one provider: others' answers must not be lost to one whose body has no end.
    """
    whole = current()
    with spending(whole and whole.part(key)):
        return call()


def weight(part: bytes) -> int:
    """Return about how many bytes a part of JSON or CSV takes in memory, as it is and read into objects.

    The numbers are CPython's: a dict takes some 160 bytes, a list 64, a text or number with its place in a list 48.
    Texts take as much again as they have bytes, and four times that where a character is beyond the first plane.
    """
    texts = 2 if part.isascii() and b"\\u" not in part else 5
    return texts * len(part) + 160 * part.count(b"{") + 64 * part.count(b"[") + 48 * part.count(b",")
