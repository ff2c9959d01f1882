"""Inventory of what this process holds: threads, children, descriptors, files, and state of the whole interpreter.

:mod:`support.leak_guard` takes one after each test. Two are compared by their keys; texts are made only for what a
message names.
"""

import _signal
import contextlib
import logging
import os
import random
import signal
import socket
import stat
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from support.origins import Origins

_SIGNALS = [int(number) for number in signal.valid_signals()]
#: pytest and conftest.py write the first two variables for each test; joblib sets the third one at its import.
_OTHER_VARIABLES = (b"PYTEST_CURRENT_TEST", b"XDG_STATE_HOME", b"KMP_INIT_AT_FORK")
#: matplotlib keeps the files of fonts open.
_FONTS = "/mpl-data/fonts/"
#: Dash adds a handler with its first page, for all later ones.
_LOGGERS_OF_LIBRARIES = {"dash.dash"}
#: A handler that does nothing counts if it is added again and again, which only our packages could do.
_OUR_LOGGERS = ("client", "runtime", "scoring", "trimaran", "watcher")
#: A resource is a pair of its kind and an object that identifies it; a state is such a pair with a value.
Key = tuple[str, Any]


@dataclass(frozen=True)
class Difference:
    """Difference of an inventory and an earlier one.

    Attributes:
        resources: keys of threads, children, descriptors, handlers and files that are new.
        states: keys of states with another value, and their earlier value; None if there was none.
    """

    resources: frozenset[Key] = frozenset()
    states: dict[Key, Any] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.resources or self.states)


@dataclass
class Inventory:
    """Resources and states of the process at one time."""

    resources: set[Key]
    states: dict[Key, Any]

    def since(self, earlier: "Inventory") -> Difference:
        """Return what is new or changed since an earlier inventory."""
        states = {
            key: earlier.states.get(key)
            for key in self.states.keys() | earlier.states.keys()
            if self.states.get(key) != earlier.states.get(key)
        } if self.states != earlier.states else {}  # fmt: skip
        return Difference(frozenset(self.resources - earlier.resources), states)


def take(origins: Origins) -> Inventory:
    """Take the inventory of this process; about 0.2 ms.

    Args:
        origins: files that were created since the last inventory.
    """
    resources: set[Key] = {("thread", thread) for thread in threading.enumerate()}
    resources.update(("child", pid) for pid in _children(origins))
    resources.update(("descriptor", pair) for pair in _descriptors())
    resources.update(("logging handler", pair) for pair in _handlers())
    resources.update(("file", path) for path in list(origins.files) if os.path.lexists(path))
    resources.update(("temporary file", name) for name in _names(tempfile.gettempdir()))
    # The undecoded variables and the C function: those of os and signal would double the time of an inventory.
    states: dict[Key, Any] = {("environment variable", name): value for name, value in os.environ._data.items()}
    states.update((("signal handler", number), _signal.getsignal(number)) for number in _SIGNALS)
    states["random generator", "random"] = hash(random.getstate())
    states["random generator", "numpy.random"] = _numpy_state()
    for name in _OTHER_VARIABLES:
        states.pop(("environment variable", name), None)
    return Inventory(resources, states)


def describe(key: Key, origins: Origins) -> str:
    """Return a line that names a resource or a changed state, and where it was started."""
    kind, it = key
    match kind:
        case "thread":
            return f"thread {it.name!r}, started at {origins.of(it)}"
        case "child":
            return f"child process {it} ({_command(it)}), started at {origins.of_child(it)}"
        case "descriptor":
            return _describe_descriptor(*it, origins)
        case "logging handler":
            return f"logging handler {it[1]!r} of logger {it[0] or 'root'!r}"
        case "file":
            return f"file {it}, created at {origins.files.get(it, 'an unknown place')}"
        case "temporary file":
            return f"temporary file {Path(tempfile.gettempdir()) / it}"
        case "signal handler":
            return f"signal handler of {signal.Signals(it).name}: {_place(signal.getsignal(it))}"
        case "environment variable":
            return f"environment variable {os.fsdecode(it)}" + ("" if it in os.environb else ", which is no longer set")
        case _:
            return f"state of the global generator of {it}: use a generator of your own"


def _children(origins: Origins) -> Iterator[int]:
    """Yield the IDs of child processes; reap those that others left here, as nobody waits for them."""
    for thread in _names("/proc/self/task"):
        with contextlib.suppress(OSError):  # the thread has ended
            file = os.open(f"/proc/self/task/{thread}/children", os.O_RDONLY)
            try:
                pids = os.read(file, 65536).split()
            finally:
                os.close(file)
            for pid in map(int, pids):
                if not origins.is_own(pid):
                    with contextlib.suppress(ChildProcessError):
                        if os.waitpid(pid, os.WNOHANG)[0] == pid:
                            continue
                yield pid


def _descriptors() -> Iterator[tuple[int, str]]:
    """Yield number and target of each open file descriptor above the standard ones."""
    for name in _names("/proc/self/fd"):
        if len(name) > 1 or name > "2":
            with contextlib.suppress(OSError):  # that of the listing itself
                target = os.readlink(f"/proc/self/fd/{name}")  # noqa: PTH115  a Path costs ten times as much
                if _FONTS not in target:
                    yield int(name), target


def _handlers() -> Iterator[tuple[str, logging.Handler]]:
    """Yield each logger's name with each of its handlers."""
    for handler in logging.root.handlers:
        yield "", handler
    for name, logger in logging.root.manager.loggerDict.items():
        if name in _LOGGERS_OF_LIBRARIES:
            continue
        for handler in getattr(logger, "handlers", ()):  # a placeholder has none
            if not isinstance(handler, logging.NullHandler) or name.startswith(_OUR_LOGGERS):
                yield name, handler


def _numpy_state() -> Any:
    state = np.random.get_state(legacy=False)  # noqa: NPY002  tests must not change it
    return hash((state["state"]["key"].tobytes(), state["state"]["pos"]))


def _names(folder: str) -> list[str]:
    with contextlib.suppress(FileNotFoundError):
        return os.listdir(folder)  # noqa: PTH208  a Path costs ten times as much
    return []


def _describe_descriptor(number: int, target: str, origins: Origins) -> str:
    if not target.startswith("socket:"):
        return f"descriptor {number} ({target}), opened at {origins.of_file(target)}"
    found = origins.socket(number)
    kind = "socket"
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(number)) as duplicate:
        listens = stat.S_ISSOCK(os.fstat(number).st_mode) and duplicate.getsockopt(
            socket.SOL_SOCKET, socket.SO_ACCEPTCONN
        )
        kind = f"{'listening ' if listens else ''}socket {duplicate.getsockname()}"
    return f"{kind}, descriptor {number}, opened at {origins.of(found)}"


def _command(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        words = ""
    return words[:200] or "ended, but nobody waited for it"


def _place(handler: Any) -> str:
    code = getattr(handler, "__code__", None)
    return f"{code.co_qualname} at {code.co_filename}:{code.co_firstlineno}" if code else str(handler)
