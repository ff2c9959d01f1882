"""Waiting in tests: by polling, with one limit that is generous on a busy machine; and loops with an end in time."""

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import pytest
import requests

#: A wait ends as soon as its condition is true, so only a failure takes this long.
LIMIT_SECONDS = 60.0
#: Pauses between two polls grow to this, as many tests that wait at once would keep the machine busy.
_LONGEST_PAUSE_SECONDS = 0.1
Item = TypeVar("Item")


def wait_until(condition: Callable[[], Any], expectation: str, seconds: float = LIMIT_SECONDS) -> Any:
    """Return the first true result of a condition; fail the test at the timeout."""
    end, pause = time.monotonic() + seconds, 0.01
    while time.monotonic() < end:
        try:
            result = condition()
        except (requests.ConnectionError, requests.Timeout):  # it still starts, or the machine is busy: do not press
            result, pause = None, max(pause, 0.04)
        if result:
            return result
        time.sleep(pause)
        pause = min(1.1 * pause, _LONGEST_PAUSE_SECONDS)
    pytest.fail(f"not within {seconds:g} s: {expectation}")


def within(seconds: float, items: Iterable[Item]) -> Iterator[Item]:
    """Yield items until the time is over, but at least one."""
    end = time.monotonic() + seconds
    for item in items:
        yield item
        if time.monotonic() >= end:
            return
