"""Assertion that the watcher cannot serve metrics."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from watcher.errors import NotServed
from watcher.wire import MetricsCode


@contextmanager
def not_served(code: MetricsCode, match: str = ".") -> Iterator[pytest.ExceptionInfo[NotServed]]:
    """Expect NotServed with this code; the message must contain the pattern ``match``."""
    with pytest.raises(NotServed, match=match) as caught:
        yield caught
    assert caught.value.code is code
