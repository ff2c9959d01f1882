"""Commands in processes that are forked from a server process with all imports done.

The start of an interpreter takes most of a second, and tests start a hundred services. After the imports there is no
difference: the process has its own session, environment, files and signals, the network of the thread that starts it,
and exits with its command's status.
"""

import atexit
import contextlib
import faulthandler
import multiprocessing
import os
import resource
import signal
import time
from collections.abc import Mapping
from functools import cache
from multiprocessing import forkserver
from pathlib import Path

import pytest
from support.leaks import kept_by_session
from support.networks import join_network, network
from support.waiting import LIMIT_SECONDS

_FORKING = multiprocessing.get_context("forkserver")
_FORKING.set_forkserver_preload([
    "trimaran.cli.main", "watcher.commands", "watcher.api.service", "watcher.api.app", "watcher.pipeline.factory",
    "watcher.providers.fake", "watcher.providers.host", "watcher.providers.prometheus.provider",
    "trimaran.cli.dashboard",
    "trimaran.dashboard.embedded",
    "trimaran.extender.service", "trimaran.extender.worker",
])  # fmt: skip


#: A process started here writes the stacks of all its threads to its log on this signal, as does its worker.
SHOW_STACKS = signal.SIGRTMIN + 1


@cache
def _start_server() -> None:
    """Start the server that forks the processes; it lives as long as this process."""
    with kept_by_session("forkserver"):
        forkserver.ensure_running()


def _run(
    arguments: tuple[str, ...],
    outputs: tuple[Path, Path],
    environment: Mapping[str, str],
    open_files: int | None,
    starters_network: tuple[str, str],
) -> None:
    """Run the command in this process, as ``python -m trimaran`` with these arguments would."""
    join_network(*starters_network)
    os.setsid()
    os.environ.clear()
    os.environ.update(environment)
    if open_files is not None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (open_files, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    for descriptor, path in zip((1, 2), outputs, strict=True):
        output = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.dup2(output, descriptor)
        os.close(output)
    from runtime.server import serving
    from trimaran.cli.main import main

    faulthandler.register(SHOW_STACKS)
    serving._END_SECONDS = int(2 * LIMIT_SECONDS)  # no test waits for it, so a worker that does not end is noticed
    try:
        main(arguments, prog_name="trimaran")
    finally:
        atexit._run_exitfuncs()  # multiprocessing leaves them out, among them the removal of temporary files


class WarmProcess:
    """A running command, with the methods of ``subprocess.Popen`` that tests use.

    Args:
        arguments: arguments of ``trimaran``.
        log: file to which both outputs are appended.
        environment: all environment variables.
        open_files: limit of open files.
        errors: file for standard error instead of the log.
    """

    def __init__(
        self,
        arguments: tuple[str, ...],
        log: Path,
        environment: Mapping[str, str],
        open_files: int | None = None,
        errors: Path | None = None,
    ) -> None:
        _start_server()
        self._log = errors or log
        self._status: int | None = None
        self._process = _FORKING.Process(
            target=_run, args=(arguments, (log, self._log), dict(environment), open_files, network()), daemon=True
        )
        self._process.start()
        self.pid = self._process.pid

    def poll(self) -> int | None:
        """Return the exit status, or None while the command runs."""
        if self._status is None and self._process.exitcode is not None:
            self._status = self._process.exitcode
            self._process.close()  # its pipes would stay open until the garbage collector runs
        return self._status

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the command to end; return its exit status. At the timeout fail the test with the stacks of all."""
        if self._status is None:
            self._process.join(timeout)
        status = self.poll()
        if status is None:
            pytest.fail(f"trimaran does not end within {timeout:g} s; its log:\n{self._end_with_stacks()}")
        return status

    def _end_with_stacks(self) -> str:
        """Let the command and its children write their stacks, and kill them; return the end of the log."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, SHOW_STACKS)
            time.sleep(1)
            os.killpg(self.pid, signal.SIGKILL)
        self._process.join(10)
        self.poll()
        return self._log.read_text(errors="replace")[-6000:]

    def send_signal(self, number: int) -> None:
        """Send a signal to the command if it runs."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Send SIGTERM to the command."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL to the command."""
        self.send_signal(signal.SIGKILL)
