"""Time for which the tasks of nodes wait for a processor, by ``schedstat``."""

import os
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Self

import numpy as np
from real_nodes import cgroups

_SECONDS = 1.0


class QueueWaits:
    """Thread that adds up, by node, for how long tasks have waited, once a second. Use it as a context manager.

    The kernel counts for each task the time in which it could have run and did not: other tasks ran, or the quota was
    used up. What a task has waited in its last second is lost with it.

    Args:
        groups: control group of each node.
    """

    def __init__(self, groups: Mapping[str, Path]) -> None:
        self._groups = groups
        self._sums: dict[str, list[tuple[float, float]]] = {name: [] for name in groups}
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="queue-waits")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def rate(self, node: str, begin: float, end: float) -> float:
        """Return for how many seconds a second the tasks of a node waited between two times, all together."""
        times, sums = zip(*list(self._sums[node]), strict=True)
        assert times[0] <= begin, f"waiting on {node} is recorded since {times[0]}"
        assert end <= times[-1] + 2 * _SECONDS, f"waiting on {node} is recorded until {times[-1]}"
        first, last = np.interp([begin, end], times, sums)
        return float(last - first) / (end - begin)

    def _run(self) -> None:
        before: dict[str, dict[str, int]] = {}
        while not self._end.wait(_SECONDS):
            for name, folder in self._groups.items():
                now, sums = dict(waits(folder)), self._sums[name]
                grown = growth(before[name], now) if name in before else 0
                sums.append((time.time(), (sums[-1][1] if sums else 0.0) + grown / 1e9))
                before[name] = now


def growth(before: Mapping[str, int], now: Mapping[str, int]) -> int:
    """Return for how long tasks have waited since an earlier reading; new ones since they began."""
    # A number that is used again has a smaller count than the task before.
    return sum(wait - (before.get(task, 0) if before.get(task, 0) <= wait else 0) for task, wait in now.items())


def waits(folder: Path) -> Iterator[tuple[str, int]]:
    """Yield each task of a group and those below it, with the nanoseconds for which it has waited."""
    for group, _, _ in os.walk(folder):
        for pid in cgroups.members(Path(group)):
            try:
                tasks = list(Path(f"/proc/{pid}/task").iterdir())
            except OSError:  # the process has ended
                continue
            for task in tasks:
                try:
                    yield task.name, int((task / "schedstat").read_text().split()[1])
                except (OSError, IndexError):  # the task has ended
                    continue
