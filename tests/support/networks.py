"""Network namespaces of threads, on Linux. The threads and processes that a thread starts have its network, too."""

import contextlib
import ctypes
import os
import threading
from collections.abc import Iterator
from pathlib import Path

_NETWORK = 0x40000000  # CLONE_NEWNET
_OWN = Path("/proc/thread-self/ns/net")


def network() -> tuple[str, str]:
    """Return the name of this thread's network namespace, and a path by which others can join it; empty elsewhere."""
    with contextlib.suppress(OSError):
        return str(_OWN.readlink()), f"/proc/{os.getpid()}/task/{threading.get_native_id()}/ns/net"
    return "", ""


def join_network(name: str, path: str) -> None:
    """Move this thread to a network namespace, unless it is there."""
    if network()[0] != name:
        with open_network(Path(path)) as file:
            enter_network(file)


@contextlib.contextmanager
def open_network(path: Path = _OWN) -> Iterator[int]:
    """Yield a descriptor that keeps a network namespace; by default this thread's."""
    file = os.open(path, os.O_RDONLY)
    try:
        yield file
    finally:
        os.close(file)


def enter_network(file: int) -> None:
    """Move this thread to an open network namespace."""
    _check(ctypes.CDLL(None, use_errno=True).setns(file, _NETWORK))


def enter_new_network() -> None:
    """Move this thread to a new network namespace, whose loopback interface is down."""
    _check(ctypes.CDLL(None, use_errno=True).unshare(_NETWORK))


def _check(status: int) -> None:
    if status:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
