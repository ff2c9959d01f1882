"""Time-to-live cache of the dashboard's data, such as responses of the watcher and the extender."""

import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


class TTLCache:
    """Thread-safe time-to-live cache with single flight: concurrent callers share one load of a value, or its error.

    Args:
        clock: monotonic time in seconds; tests inject their own.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Start empty."""
        self._clock = clock
        self._values: dict[Any, tuple[Any, float, Any]] = {}
        self._failed: dict[Any, tuple[int, Exception | None]] = {}
        self._lock = threading.RLock()

    def get(self, key: Any, ttl_seconds: float, load: Callable[[], T]) -> T:
        """Return the value cached for a key; load it if it is missing or older than ``ttl_seconds``.

        Raises:
            Exception: any error of ``load``. Callers that were waiting for this load get the same error: if each of
                them retried in turn, the last caller would wait for all retries.
        """
        failures_before, _ = self._failed.get(key, (0, None))
        with self._lock:
            _, loaded_at, value = self._values.get(key, ((), 0.0, None))
            if value is None or self._clock() - loaded_at >= ttl_seconds:
                # The count is higher than before the lock: the load that this caller waited for has failed.
                failures, error = self._failed.get(key, (0, None))
                if error is not None and failures > failures_before:
                    raise error
                try:
                    value = load()
                except Exception as failure:
                    self._failed[key] = failures + 1, failure
                    raise
                self._values[key] = (), self._clock(), value
            cached: T = value
            return cached

    def memoize(self, key: Any, inputs: tuple[Any, ...], compute: Callable[[], T]) -> T:
        """Return the value computed from ``inputs``; compute it again only if another object replaces an input."""
        with self._lock:
            previous, _, value = self._values.get(key, ((), 0.0, None))
            if len(previous) != len(inputs) or any(old is not new for old, new in zip(previous, inputs, strict=True)):
                value = compute()
                self._values[key] = inputs, self._clock(), value
            memoized: T = value
            return memoized
