"""Threads that the present test has started: what an earlier test has left must not fail a later one."""

import threading

_before: set[threading.Thread] = set()


def begin_test() -> None:
    """Take note of the threads that run before a test."""
    _before.clear()
    _before.update(threading.enumerate())


def started(prefix: str) -> list[threading.Thread]:
    """Return the running threads of this test whose names begin with a prefix."""
    return [each for each in threading.enumerate() if each not in _before and each.name.startswith(prefix)]
