"""Concurrent calls under one deadline: results that arrive in time are used, later ones are dropped."""

import contextvars
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from runtime.errors import error_text

Key = TypeVar("Key")
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Deadline:
    """Time limit on the monotonic clock."""

    at: float

    @classmethod
    def after(cls, seconds: float) -> "Deadline":
        """Return the deadline in a number of seconds from now."""
        return cls(time.monotonic() + seconds)

    def remaining_seconds(self) -> float:
        """Return the time left, never below 0."""
        return max(0.0, self.at - time.monotonic())


def gather(
    calls: Mapping[Key, Callable[[], Value]], deadline: Deadline, give_up: Callable[[], None] | None = None
) -> dict[Key, Value | Exception]:
    """Run calls concurrently, each in a thread; return their results or exceptions in the order of the calls.

    The threads run in the caller's context, so their responses are charged to the caller's budget.

    A call that misses the deadline has a TimeoutError as its result. Its daemon thread runs on until the call ends.

    Args:
        calls: the calls, each by the key of its result.
        deadline: time at which to stop waiting.
        give_up: called once if the deadline is missed. It should end the late calls by closing their connections.
    """
    done: queue.SimpleQueue[tuple[Key, Value | Exception]] = queue.SimpleQueue()

    def run(key: Key, call: Callable[[], Value]) -> None:
        try:
            done.put((key, call()))
        except Exception as error:  # noqa: BLE001  the caller judges every failure
            done.put((key, error))
        except BaseException as error:  # noqa: BLE001  such as SystemExit, for which the caller would wait in vain
            done.put((key, RuntimeError(f"raised {error_text(error)}")))

    for key, call in calls.items():
        context = contextvars.copy_context()  # holds the budget; a copy, as only one thread can enter a context
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
    """Run one call as :func:`gather` does; return its result or raise its exception."""
    result = gather({"alone": call}, deadline, give_up)["alone"]
    if isinstance(result, Exception):
        raise result
    return result


class BulkheadFull(TimeoutError):
    """The call was not made, because too many earlier calls have not returned yet."""


class Bulkhead:
    """Limit on calls of one kind that have not returned, since each hanging call occupies a thread.

    Args:
        allowed: maximum number of such calls per kind.
    """

    def __init__(self, allowed: int = 3) -> None:
        self._allowed = allowed
        self._under_way: Counter[Hashable] = Counter()
        self._lock = threading.Lock()

    def run(self, kind: Hashable, call: Callable[[], Value]) -> Value:
        """Run a call; return its result or raise its exception.

        Raises:
            BulkheadFull: too many earlier calls of this kind have not returned.
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
