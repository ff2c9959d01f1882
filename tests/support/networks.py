"""Network namespaces of threads, on Linux."""

import contextlib
import ctypes
import os
import threading
from pathlib import Path

NEW_NETWORK = 0x40000000  # CLONE_NEWNET
_OWN = Path("/proc/thread-self/ns/net")


def network() -> tuple[str, str]:
    """Return the name of this thread's network namespace, and a path by which others can join it; empty elsewhere."""
    with contextlib.suppress(OSError):
        return str(_OWN.readlink()), f"/proc/{os.getpid()}/task/{threading.get_native_id()}/ns/net"
    return "", ""


def join_network(name: str, path: str) -> None:
    """Move this thread to a network namespace, unless it is there, with the threads that it starts."""
    if network()[0] != name:
        file = os.open(path, os.O_RDONLY)
        try:
            if ctypes.CDLL(None, use_errno=True).setns(file, NEW_NETWORK):
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        finally:
            os.close(file)
