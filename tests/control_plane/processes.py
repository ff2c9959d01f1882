"""One program of the control plane as a process, with its output in a file."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from support.servers import wait_until


class Process:
    """A program that runs until it is killed. None of the cluster's is stopped gently: an apiserver without etcd waits.

    Args:
        command: the program and its arguments.
        log: where its output goes; what is there is kept.
        environment: more variables than there are.

    Attributes:
        log: the same.
    """

    def __init__(self, command: Sequence[str | Path], log: Path, environment: Mapping[str, str] | None = None) -> None:
        self.log = log
        self._environment = {**os.environ, **(environment or {})}
        self._command = [str(part) for part in command]
        self._process = self._start()

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def tree(self) -> list[int]:
        """The ids of the process and of its children."""
        return [self.pid, *children(self.pid)]

    def wait_until(self, condition: Callable[[], Any], what: str, seconds: float = 20) -> Any:
        """Return the first true result of a condition; fail with the end of the log when there is none in time."""

        def ended_or_true() -> Any:
            return "ended" if self._process.poll() is not None else condition()

        try:
            result = wait_until(ended_or_true, what, seconds)
        except pytest.fail.Exception as failure:
            pytest.fail(f"{failure}; {self.log} ends with:\n{self._last_lines()}")
        if result == "ended":
            pytest.fail(f"{self._command[0]} ended with {self._process.returncode}:\n{self._last_lines()}")
        return result

    def pause(self) -> None:
        """Let it stand still, as an overloaded machine would, with its children; see :meth:`resume`."""
        self._send(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        self._send(signal.SIGCONT)

    def kill(self) -> None:
        """Kill it with its children, if it still runs."""
        if self._process.poll() is None:
            self._send(signal.SIGKILL)
            self._process.wait(10)

    def terminate(self) -> None:
        """Ask it to end, if it still runs: for programs of ours, which end their own children."""
        if self._process.poll() is None:
            self._process.terminate()
            self._process.wait(20)

    def restart(self) -> None:
        """Kill it and start it anew with the same arguments."""
        self.kill()
        self._process = self._start()

    def _send(self, number: signal.Signals) -> None:
        for pid in self.tree:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def _start(self) -> "subprocess.Popen[bytes]":
        with self.log.open("ab") as output:
            return subprocess.Popen(
                self._command, stdout=output, stderr=output, stdin=subprocess.DEVNULL, env=self._environment
            )

    def _last_lines(self) -> str:
        return "\n".join(self.log.read_text(errors="replace")[-4000:].splitlines()[-25:])


def children(pid: int) -> list[int]:
    """Return the ids of a process's children."""
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
