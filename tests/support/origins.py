"""Places in the code where threads, child processes, sockets and files of this process were started."""

import os
import subprocess
import sys
import sysconfig
import tempfile
import threading
from pathlib import Path
from socket import socket as Socket  # noqa: N812
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = str(Path(__file__).parents[2]) + os.sep
_HERE = {str(Path(__file__).with_name(f"{name}.py")) for name in ("origins", "inventory", "leaks", "leak_guard")}
_LIBRARIES = ("<", *(sysconfig.get_path(name) + os.sep for name in ("stdlib", "purelib", "platlib")))
#: Parts of paths of caches, which may outlive a test.
_CACHES = ("__pycache__", ".hypothesis", ".pytest_cache", "/dev/", "/proc/", "/sys/")
UNKNOWN = "an unknown place"


class Origins:
    """Places where resources were started, and the threads that started them.

    Args:
        allowed: folders in which tests may leave files.

    Attributes:
        files: files outside the allowed folders that were created since :meth:`forget`, with the place in the code.
    """

    def __init__(self, *allowed: Path) -> None:
        self.files: dict[str, str] = {}
        self._allowed = tuple(f"{folder}{os.sep}" for folder in allowed)
        self._starts: WeakKeyDictionary[Any, tuple[str, threading.Thread]] = WeakKeyDictionary()
        self._children: dict[int, tuple[str, threading.Thread]] = {}
        self._opened: dict[str, str] = {}
        self._events: dict[str, Callable[..., None]] = {
            "socket.__new__": self._socket, "open": self._open, "sqlite3.connect": self._database,
            "os.mkdir": self._folder, "os.rename": self._target, "os.link": self._target, "os.symlink": self._target,
        }  # fmt: skip

    def install(self) -> None:
        """Record starts from now on; it cannot be undone, as an audit hook stays until the interpreter ends."""
        events = self._events

        def hook(event: str, arguments: tuple[Any, ...]) -> None:
            handler = events.get(event)
            if handler is not None:
                handler(*arguments)

        sys.addaudithook(hook)
        # No audit event has the process ID or, on all versions of Python, the thread.
        start_process, start_thread = subprocess.Popen.__init__, threading.Thread.start
        end_process = subprocess.Popen._handle_exitstatus  # type: ignore[attr-defined]

        def __init__(popen: Any, *args: Any, **options: Any) -> None:  # noqa: N807  it replaces the method of this name
            start_process(popen, *args, **options)
            self._children[popen.pid] = _where(), threading.current_thread()

        def _handle_exitstatus(popen: Any, *args: Any, **options: Any) -> None:
            # It was waited for, and its ID may be given to a process that another one leaves.
            self._children.pop(popen.pid, None)
            end_process(popen, *args, **options)

        def start(thread: threading.Thread) -> None:
            self._starts[thread] = _where(), threading.current_thread()
            start_thread(thread)

        subprocess.Popen.__init__, threading.Thread.start = __init__, start  # type: ignore[method-assign]
        subprocess.Popen._handle_exitstatus = _handle_exitstatus  # type: ignore[attr-defined]

    def forget(self) -> None:
        """Forget files, which the last inventory has listed."""
        self.files.clear()
        self._opened.clear()

    def of(self, it: Any) -> str:
        """Return where a thread or socket was started."""
        return self._starts[it][0] if it in self._starts else UNKNOWN

    def of_child(self, pid: int) -> str:
        """Return where a child process was started."""
        return self._children[pid][0] if pid in self._children else "a fork, or by a child that has ended"

    def of_file(self, path: str) -> str:
        """Return where a file was opened."""
        return self._opened.get(path, UNKNOWN)

    def has_created(self, name: str) -> bool:
        """Return whether this process has opened or created a file of this name in the temporary folder."""
        return os.path.join(tempfile.gettempdir(), name) in self._opened  # noqa: PTH118  the key is a text

    def starter(self, kind: str, it: Any) -> threading.Thread | None:
        """Return the thread that started a thread, a child process or the socket of a descriptor."""
        if kind == "child":
            return self._children.get(it, (UNKNOWN, None))[1]
        found = self.socket(it[0]) if kind == "descriptor" else it if kind == "thread" else None
        return self._starts[found][1] if found in self._starts else None

    def socket(self, number: int) -> Socket | None:
        """Return the socket with this descriptor."""
        # In one step, as another thread may open a socket meanwhile.
        known = [reference() for reference in self._starts.keyrefs()]
        return next((it for it in known if isinstance(it, Socket) and it.fileno() == number), None)

    def is_own(self, pid: int) -> bool:
        """Return whether this process started the child; others were left by a child that has ended."""
        return pid in self._children

    # -- audit events ---------------------------------------------------------------------------------------------

    def _socket(self, it: Socket, *_: Any) -> None:
        if type(it).__weakrefoffset__:
            self._starts[it] = _where(), threading.current_thread()

    def _open(self, path: Any, _mode: Any, flags: int) -> None:
        if isinstance(path, int):
            return
        where = _where()
        self._opened[os.fsdecode(path)] = where
        if flags & os.O_CREAT:
            self._create(path)

    def _database(self, path: Any) -> None:
        if path != ":memory:":
            for suffix in ("", "-wal", "-shm"):
                self._create(os.fsdecode(path) + suffix)

    def _target(self, _source: Any, target: Any, *_: Any) -> None:
        self._create(target)

    def _folder(self, path: Any, *_: Any) -> None:
        self._opened[os.fsdecode(path)] = _where()
        self._create(path)

    def _create(self, path: Any, *_: Any) -> None:
        text = os.path.abspath(os.fsdecode(path))  # noqa: PTH100  Path would raise a second event
        if text in self.files or text.startswith(self._allowed) or any(part in text for part in _CACHES):
            return
        if not os.path.lexists(text):
            self.files[text] = _where()


def _where() -> str:
    """Return file and line of the innermost frame outside of libraries, and of the test that led to it."""
    frame: Any = sys._getframe(1)
    places: list[str] = []
    while frame is not None and len(places) < 2:
        name = frame.f_code.co_filename
        ours = not name.startswith(_LIBRARIES) and name not in _HERE
        if ours and (not places or Path(name).name.startswith(("test_", "conftest"))):
            places.append(f"{name.removeprefix(ROOT)}:{frame.f_lineno}")
        frame = frame.f_back
    return ", called from ".join(places) or UNKNOWN
