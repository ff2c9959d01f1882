"""A Dask scheduler and its workers as processes: in the tests' own process they would leave threads and settings."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from support.servers import wait_until

_ROOT = Path(__file__).parents[2]


class DaskCluster:
    """A running scheduler; ``address`` is what clients and workers connect to."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder, self._stack = folder, stack
        file = folder / "scheduler.json"
        self._run("dask_scheduler", "--host", "127.0.0.1", "--port", "0", "--scheduler-file", str(file))
        self.address: str = wait_until(lambda: _address(file), "the Dask scheduler has written its address")

    def add_worker(self) -> None:
        """Start one more worker, with one thread."""
        folder = str(self._folder / "workers")
        self._run("dask_worker", self.address, "--nthreads", "1", "--no-nanny", "--local-directory", folder)

    def _run(self, program: str, *arguments: str) -> None:
        command = [sys.executable, "-m", f"distributed.cli.{program}", "--no-dashboard", *arguments]
        output = self._stack.enter_context((self._folder / f"{program}.log").open("ab"))
        environment = {**os.environ, "DASK_TEMPORARY_DIRECTORY": str(self._folder)}
        process = self._stack.enter_context(
            subprocess.Popen(command, stdout=output, stderr=output, cwd=_ROOT, env=environment)
        )
        self._stack.callback(process.kill)


@contextmanager
def dask_cluster(folder: Path, workers: int = 0) -> Iterator[DaskCluster]:
    """Run a scheduler with some workers until the block ends."""
    with ExitStack() as stack:
        cluster = DaskCluster(folder, stack)
        for _ in range(workers):
            cluster.add_worker()
        yield cluster


def _address(file: Path) -> str:
    try:
        return str(json.loads(file.read_text())["address"])
    except (FileNotFoundError, ValueError):  # not yet there, or not whole
        return ""
