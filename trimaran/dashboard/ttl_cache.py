"""Time-to-live cache of the dashboard's data, such as responses of the watcher and the extender."""

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")
_log = logging.getLogger(__name__)


class TTLCache:
    """Thread-safe time-to-live cache with single flight: concurrent callers share one load of a value, or its error.

    Each key has a lock of its own, so that the load of one value does not delay the others.

    Args:
        clock: monotonic time in seconds; tests inject their own.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Create an empty cache."""
        self._clock = clock
        self._values: dict[Any, tuple[Any, float, Any]] = {}
        self._failed: dict[Any, tuple[int, Exception | None]] = {}
        self._locks: defaultdict[Any, threading.Lock] = defaultdict(threading.Lock)
        self._refreshing: set[Any] = set()

    def get(self, key: Any, ttl_seconds: float, load: Callable[[], T], stale_seconds: float = 0.0) -> T:
        """Return the value cached for a key; load it if it is missing or older than ``ttl_seconds``.

        Args:
            key: key of the value.
            ttl_seconds: time for which the value is returned without a new load.
            load: returns the value.
            stale_seconds: further time in which the old value is returned while a thread loads the new one.

        Raises:
            Exception: any error of ``load``. Callers that were waiting for this load get the same error: if each of
                them retried in turn, the last caller would wait for all retries.
        """
        failures_before, _ = self._failed.get(key, (0, None))
        with self._locks[key]:
            _, loaded_at, value = self._values.get(key, ((), 0.0, None))
            age = self._clock() - loaded_at
            if value is not None and ttl_seconds <= age < ttl_seconds + stale_seconds:
                self._refresh(key, load)
            elif value is None or age >= ttl_seconds:
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

    def _refresh(self, key: Any, load: Callable[[], Any]) -> None:
        """Load a value in a thread, without the lock; if that fails, the first caller after the stale time loads it."""
        if key in self._refreshing:
            return
        self._refreshing.add(key)

        def run() -> None:
            try:
                value = load()
                with self._locks[key]:
                    self._values[key] = (), self._clock(), value
            except Exception as error:  # noqa: BLE001  this caller gets the old value; a later caller gets the error
                _log.warning("cannot refresh %s", key, extra={"reason": str(error)})
            finally:
                self._refreshing.discard(key)

        threading.Thread(target=run, name="refresh", daemon=True).start()

    def memoize(self, key: Any, inputs: tuple[Any, ...], compute: Callable[[], T]) -> T:
        """Return the value computed from ``inputs``; compute it again only if another object replaces an input."""
        with self._locks[key]:
            previous, _, value = self._values.get(key, ((), 0.0, None))
            if len(previous) != len(inputs) or any(old is not new for old, new in zip(previous, inputs, strict=True)):
                value = compute()
                self._values[key] = inputs, self._clock(), value
            memoized: T = value
            return memoized
