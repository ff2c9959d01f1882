"""Waiting in tests: by polling, with one limit that is generous on a busy machine."""

import time
from collections.abc import Callable
from typing import Any

import pytest
import requests

#: A wait ends as soon as its condition is true, so only a failure takes this long.
LIMIT_SECONDS = 60.0


def wait_until(condition: Callable[[], Any], expectation: str, seconds: float = LIMIT_SECONDS) -> Any:
    """Return the first true result of a condition; fail the test at the timeout."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pause = 0.01
        try:
            result = condition()
        except (requests.ConnectionError, requests.Timeout):  # it still starts, or the machine is busy: do not press
            result, pause = None, 0.04
        if result:
            return result
        time.sleep(pause)
    pytest.fail(f"not within {seconds:g} s: {expectation}")
