"""Requests to services from outside of the nodes, at intended times that do not depend on the answers."""

import subprocess
import threading
import time
from collections.abc import Sequence
from typing import Self

import numpy as np
from numpy.typing import NDArray
from real_nodes.images import generator

Floats = NDArray[np.float64]
SLOW_MILLISECONDS = 50.0
#: Latency of a request without an answer: the time for which the generator waits.
TIMEOUT_MILLISECONDS = 10_000.0
_START_SECONDS = 0.5
_OK = 200


class Generator:
    """Process that sends requests at random times. Use it as a context manager, which ends the process.

    It has a session of its own, so that a kernel with autogroups gives it a part of the processors, and else a higher
    priority than other processes: it stands for clients on other machines.

    Args:
        phases: begin and end in seconds, requests a second, and the URL of each phase.
        seed: seed of the times.

    Attributes:
        begin: time from which the phases count, Unix seconds; it is in the near future.
    """

    def __init__(self, phases: Sequence[tuple[float, float, float, str]], seed: int) -> None:
        program = generator()
        self.begin = time.time() + _START_SECONDS
        self._process = subprocess.Popen(
            ["nice", "-n", "-10", program, "-seed", str(seed), "-begin", f"{self.begin:.6f}"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip
        self._lines: list[str] = []
        # The pipe of the answers would fill up, and the generator be late.
        self._reader = threading.Thread(target=self._read, name="answers")
        self._reader.start()
        assert self._process.stdin is not None
        with self._process.stdin as lines:
            lines.writelines(f"{begin} {end} {rate} {url}\n" for begin, end, rate, url in phases)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()

    @property
    def pid(self) -> int:
        """ID of the process."""
        return self._process.pid

    def result(self) -> Floats:
        """Wait for the last answer; return a row for each request.

        Its columns are the phase, the intended time in seconds after the begin, lateness and latency in milliseconds,
        and the status, 0 without an answer.
        """
        self._reader.join()
        status = self._process.wait()
        assert status == 0, f"the generator ended with status {status}"
        return np.array([line.split(",") for line in self._lines], np.float64).reshape(-1, 5)

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            self._lines.extend(lines)


def latencies(requests: Floats) -> tuple[float, float, float]:
    """Return median and 99th percentile of the latency in milliseconds, and the percentage of slow requests.

    A request without an answer, or with an error, took :data:`TIMEOUT_MILLISECONDS`, even if it failed at once.
    """
    took = np.where(requests[:, 4] == _OK, requests[:, 3], TIMEOUT_MILLISECONDS)
    p50, p99 = np.percentile(took, [50, 99])
    return float(p50), float(p99), float(100 * np.mean(took > SLOW_MILLISECONDS))


def failures(requests: Floats) -> int:
    """Return the number of requests without an answer, or with an error."""
    return int((requests[:, 4] != _OK).sum())


def lateness(requests: Floats) -> float:
    """Return the 99th percentile of the generator's own lateness, milliseconds."""
    return float(np.percentile(requests[:, 2], 99))
