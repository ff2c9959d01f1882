"""Commands in processes that are forked from a server process with all imports done.

The start of an interpreter takes most of a second, and tests start a hundred services. After the imports there is no
difference: the process has its own session, environment, files and signals, and exits with its command's status.
"""

import multiprocessing
import os
import resource
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

_FORKING = multiprocessing.get_context("forkserver")
_FORKING.set_forkserver_preload([
    "trimaran.cli.main", "watcher.commands", "watcher.api.service", "watcher.api.app", "watcher.pipeline.factory",
    "watcher.providers.fake", "watcher.providers.host", "watcher.providers.prometheus.provider",
    "trimaran.cli.dashboard",
    "trimaran.dashboard.embedded",
])  # fmt: skip


def _run(arguments: tuple[str, ...], log: Path, environment: Mapping[str, str], open_files: int | None) -> None:
    """Run the command in this process, as ``python -m trimaran`` with these arguments would."""
    os.setsid()
    os.environ.clear()
    os.environ.update(environment)
    if open_files is not None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (open_files, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    output = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    from trimaran.cli.main import main

    main(arguments, prog_name="trimaran")


class WarmProcess:
    """A running command, with the methods of ``subprocess.Popen`` that tests use."""

    def __init__(
        self, arguments: tuple[str, ...], log: Path, environment: Mapping[str, str], open_files: int | None = None
    ) -> None:
        self._process = _FORKING.Process(target=_run, args=(arguments, log, dict(environment), open_files), daemon=True)
        self._process.start()
        self.pid = self._process.pid

    def poll(self) -> int | None:
        """Return the exit status, or None while the command runs."""
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the command to end; return its exit status."""
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired("trimaran", timeout)
        return self._process.exitcode

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
