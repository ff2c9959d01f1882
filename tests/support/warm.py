"""Commands in processes of their own that are forked from one which has imported what they need.

A start by the interpreter takes most of a second, and tests start a hundred services. What comes after the imports is
the same: the process has a session, an environment, files and signals of its own, and ends with its command's status.
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
    """Become what ``python -m trimaran`` with these arguments would be."""
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
    """A command that runs, with what tests use of ``subprocess.Popen``."""

    def __init__(
        self, arguments: tuple[str, ...], log: Path, environment: Mapping[str, str], open_files: int | None = None
    ) -> None:
        self._process = _FORKING.Process(target=_run, args=(arguments, log, dict(environment), open_files), daemon=True)
        self._process.start()
        self.pid = self._process.pid

    def poll(self) -> int | None:
        """Return its status, None while it runs."""
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """Return its status once it has ended."""
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired("trimaran", timeout)
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        """Send it a signal, if it runs."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it."""
        self.send_signal(signal.SIGKILL)
