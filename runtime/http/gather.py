"""Calls side by side under one deadline: what is late is given up, what came in time counts."""

import contextvars
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Deadline:
    """A moment on the monotonic clock by which an answer is wanted."""

    at: float

    @classmethod
    def after(cls, seconds: float) -> "Deadline":
        """Return the deadline that many seconds from now."""
        return cls(time.monotonic() + seconds)

    def remaining_seconds(self) -> float:
        """Return the time left, never below 0."""
        return max(0.0, self.at - time.monotonic())


def gather(
    calls: Mapping[Key, Callable[[], Value]], deadline: Deadline, give_up: Callable[[], None] | None = None
) -> dict[Key, Value | Exception]:
    """Run calls in threads of their own and return each one's result or exception, in the order of the calls.

    They run in the caller's context, so that what is asked counts against its budget.

    A call that misses the deadline has a TimeoutError as its result. Its thread is left behind, a daemon that
    ends when its call does.

    Args:
        calls: what to run, by the key to report it under.
        deadline: when to stop waiting.
        give_up: run once when the deadline is missed; it should make the late calls end, by closing their connections.
    """
    done: queue.SimpleQueue[tuple[Key, Value | Exception]] = queue.SimpleQueue()

    def run(key: Key, call: Callable[[], Value]) -> None:
        try:
            done.put((key, call()))
        except Exception as error:  # noqa: BLE001  every failure is the caller's to judge
            done.put((key, error))

    for key, call in calls.items():
        context = contextvars.copy_context()  # has the budget; one can be entered by one thread only
        threading.Thread(target=context.run, args=(run, key, call), name=f"gather-{key}", daemon=True).start()
    results: dict[Key, Value | Exception] = {}
    while len(results) < len(calls):
        try:
            key, result = done.get(timeout=deadline.remaining_seconds() or 0.001)
        except queue.Empty:
            if give_up is not None:
                give_up()
            for key in calls:
                results.setdefault(key, TimeoutError("no answer before the deadline"))
            break
        results[key] = result
    return {key: results[key] for key in calls}


def within(call: Callable[[], Value], deadline: Deadline, give_up: Callable[[], None] | None = None) -> Value:
    """Run one call as :func:`gather` does; return what it returns, and raise what it raises."""
    result = gather({"alone": call}, deadline, give_up)["alone"]
    if isinstance(result, Exception):
        raise result
    return result


class BulkheadFull(TimeoutError):
    """Earlier calls have no answer yet, so that this one was not made."""


class Bulkhead:
    """Keeps a call that hangs from being made again and again: each would leave a thread behind.

    Args:
        allowed: how many calls of one kind may be without an answer.
    """

    def __init__(self, allowed: int = 3) -> None:
        self._allowed = allowed
        self._under_way: Counter[Hashable] = Counter()
        self._lock = threading.Lock()

    def run(self, kind: Hashable, call: Callable[[], Value]) -> Value:
        """Run a call; return what it returns, and raise what it raises.

        Raises:
            BulkheadFull: too many earlier calls of its kind have no answer yet.
        """
        with self._lock:
            if self._under_way[kind] >= self._allowed:
                raise BulkheadFull(f"has not answered {self._allowed} earlier calls yet")
            self._under_way[kind] += 1
        try:
            return call()
        finally:
            with self._lock:
                self._under_way[kind] -= 1
