"""What was read or made a moment ago, kept, as several people may look at once."""

import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


class Kept:
    """Values by key. One caller reads or makes a value, the others wait for it, or for its failure.

    Safe to use from several threads.

    Args:
        clock: seconds that only grow; tests inject their own.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Keep nothing yet."""
        self._clock = clock
        self._values: dict[Any, tuple[Any, float, Any]] = {}
        self._failed: dict[Any, tuple[int, Exception | None]] = {}
        self._lock = threading.RLock()

    def read(self, key: Any, seconds: float, read: Callable[[], T]) -> T:
        """Return a value that is not older than so many seconds.

        Raises:
            Exception: what ``read`` raises; also to those who waited for it, as each would wait as long once more.
        """
        before, _ = self._failed.get(key, (0, None))
        with self._lock:
            _, read_at, value = self._values.get(key, ((), 0.0, None))
            if value is None or self._clock() - read_at >= seconds:
                failures, error = self._failed.get(key, (0, None))
                if error is not None and failures > before:
                    raise error
                try:
                    value = read()
                except Exception as failure:
                    self._failed[key] = failures + 1, failure
                    raise
                self._values[key] = (), self._clock(), value
            found: T = value
            return found

    def made(self, key: Any, of: tuple[Any, ...], make: Callable[[], T]) -> T:
        """Return what is made of some objects, anew when one of them is another object."""
        with self._lock:
            before, _, value = self._values.get(key, ((), 0.0, None))
            if len(before) != len(of) or any(one is not other for one, other in zip(before, of, strict=True)):
                value = make()
                self._values[key] = of, self._clock(), value
            found: T = value
            return found
