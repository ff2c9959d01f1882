"""A program as a process with its output in a file."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Self

import pytest
from support.leaks import replaced
from support.ports import served_url
from support.waiting import LIMIT_SECONDS, wait_until

if TYPE_CHECKING:
    from support.warm import WarmProcess

_NUMBERS = count(1)


class Process:
    """A program that runs until it is killed; an apiserver would wait on SIGTERM while etcd is gone.

    As a context manager it is terminated at the end of the block.

    Args:
        command: the program and its arguments.
        log: file to which the output is appended.
        environment: environment variables in addition to those of this process.

    Attributes:
        log: file with the output.
    """

    _url: str
    _begin: int  # size of the log at the start

    def __init__(self, command: Sequence[str | Path], log: Path, environment: Mapping[str, str] | None = None) -> None:
        self.log = log
        self._environment = {**os.environ, **(environment or {})}
        self._command = [str(part) for part in command]
        self._process = self._start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.terminate()

    @property
    def pid(self) -> int:
        """ID of the process."""
        return self._process.pid

    @property
    def tree(self) -> list[int]:
        """IDs of the process and of its children."""
        return [self.pid, *children(self.pid)]

    @property
    def url(self) -> str:
        """Address of a service of ours, from its log; known once it serves, also after its end."""
        if not self._url:
            self._url = served_url(self.log, lambda: self.status is not None, begin=self._begin)
        return self._url

    @property
    def status(self) -> int | None:
        """Exit status; None while the process runs."""
        return self._process.poll()

    @property
    def output(self) -> str:
        """Output since the last start."""
        return self.log.read_bytes()[self._begin :].decode(errors="replace")

    def wait_until(self, condition: Callable[[], Any], expectation: str, seconds: float = LIMIT_SECONDS) -> Any:
        """Return the first true result of a condition; at the timeout kill the process, and fail with its log's end."""

        def ended_or_true() -> Any:
            return "ended" if self._process.poll() is not None else condition()

        try:
            result = wait_until(ended_or_true, expectation, seconds)
        except pytest.fail.Exception as failure:
            self.kill()
            pytest.fail(f"{failure}; {self.log} ends with:\n{self._last_lines()}")
        if result == "ended":
            pytest.fail(f"{self._command[0]} ended with {self.status}:\n{self._last_lines()}")
        return result

    def pause(self) -> None:
        """Stop the process and its children with SIGSTOP, as on an overloaded machine; see :meth:`resume`."""
        self._send(signal.SIGSTOP)

    def resume(self) -> None:
        """Continue the process and its children after :meth:`pause`."""
        self._send(signal.SIGCONT)

    def kill(self) -> None:
        """Kill the process and its children if it runs."""
        if self._process.poll() is None:
            self._send(signal.SIGKILL)
            self._process.wait(10)

    def terminate(self) -> None:
        """Send SIGTERM if the process runs, and wait: for Trimaran's programs, which end their children."""
        if self._process.poll() is None:
            self._process.terminate()
            self._process.wait(LIMIT_SECONDS)

    def restart(self) -> None:
        """Kill the process and start it again with the same arguments; a port that it has selected stays the same."""
        for number, word in enumerate(self._command[:-1]):
            if (word, self._command[number + 1]) == ("--port", "0"):
                self._command[number + 1] = self.url.rpartition(":")[2]
        self.kill()
        with replaced(self.pid):
            self._process = self._start()

    def _send(self, number: signal.Signals) -> None:
        for pid in self.tree:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def _start(self) -> "subprocess.Popen[bytes] | WarmProcess":
        self._url = ""
        with self.log.open("ab") as output:
            self._begin = output.tell()
            return self._run(output)

    def _run(self, output: BinaryIO) -> "subprocess.Popen[bytes] | WarmProcess":
        return subprocess.Popen(
            self._command, stdout=output, stderr=output, stdin=subprocess.DEVNULL, env=self._environment
        )

    def _last_lines(self) -> str:
        return "\n".join(self.output[-4000:].splitlines()[-25:])


def numbered(folder: Path, name: str) -> Path:
    """Return the path of a file with a number of its own, for programs that run several times in one folder."""
    stem, _, suffix = name.rpartition(".")
    return folder / f"{stem}-{next(_NUMBERS)}.{suffix}"


def children(pid: int) -> list[int]:
    """Return the IDs of a process's children."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
