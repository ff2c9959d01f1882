"""The last day of every running pod: mean CPU use of each five minutes, highest memory of each quarter of an hour.

A plan of moves needs the use of every pod over time, not only of its workload: bursts of some minutes make nodes hot.
CPU in cores and memory in GiB are kept as float16, whose error is at most 0.05 percent: 768 bytes for a pod, 77 MB for
a hundred thousand.

Time is counted in steps of five minutes: step = Unix seconds / 300, rounded down.
"""

from collections.abc import Hashable, Iterable, Sequence
from typing import Final, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from watcher.pod_use_table import PERIOD_STEPS, PERIODS, STEPS, Float16s, Float64s

_Key = TypeVar("_Key", bound=Hashable)

HOUR_STEPS: Final = STEPS // 24
HOUR_PERIODS: Final = PERIODS // 24

_FIRST_ROWS = 256
_MOST_NEW_ROWS = 4096  # at once, 3 MB: so the buffers take little more than their pods
_UNKNOWN = np.float16(np.nan)


class PodHistory(Generic[_Key]):
    """Ring buffers of the pods' use; not thread-safe.

    Attributes:
        newest: newest observed step, -1 before the first.
        oldest: first observed step; no step before it is known.
    """

    def __init__(self) -> None:
        self.newest = self.oldest = -1
        self._row: dict[_Key, int] = {}
        self._free: list[int] = []
        self._cpu = np.full((_FIRST_ROWS, STEPS), _UNKNOWN)
        self._memory = np.full((_FIRST_ROWS, PERIODS), _UNKNOWN)

    def __len__(self) -> int:
        return len(self._row)

    def __contains__(self, pod: _Key) -> bool:
        return pod in self._row

    @property
    def size(self) -> int:
        """Size of the buffers in bytes."""
        return self._cpu.nbytes + self._memory.nbytes

    def observe(self, step: int, pods: Sequence[_Key], cpu_cores: Float64s, memory_gib: Float64s) -> None:
        """Store the use in one step. A second value of a step replaces the first; steps of the past are ignored.

        Args:
            step: the step, not before the newest one.
            pods: the pods, each once; new pods are added.
            cpu_cores: mean CPU use of each pod in the step, shape (pods,); NaN if unknown.
            memory_gib: highest memory of each pod in the step, shape (pods,); NaN if unknown.
        """
        if step < self.newest:
            return
        self._begin(step)
        rows = self._rows(pods)
        column, period = step % STEPS, step // PERIOD_STEPS % PERIODS
        cpu, memory = (np.minimum(use, np.finfo(np.float16).max).astype(np.float16) for use in (cpu_cores, memory_gib))
        known = ~np.isnan(cpu)
        self._cpu[rows[known], column] = cpu[known]
        self._memory[rows, period] = np.fmax(self._memory[rows, period], memory)

    def keep_only(self, pods: Sequence[_Key]) -> None:
        """Forget all pods but the given ones."""
        kept = set(pods)
        self.forget([pod for pod in self._row if pod not in kept])

    def forget(self, pods: Iterable[_Key]) -> None:
        """Forget the given pods."""
        for pod in pods:
            self._clear(pod)

    def hour(self, hour: int) -> tuple[list[_Key], Float16s, Float16s]:
        """Return the pods with known use in an hour of the last day, with their use in this hour.

        Args:
            hour: the hour, in hours of Unix time.

        Returns:
            The pods; CPU in cores, shape (pods, 12), and memory in GiB, shape (pods, 4).
        """
        pods, rows = list(self._row), np.array(list(self._row.values()), np.int64)
        steps = np.arange(hour * HOUR_STEPS, (hour + 1) * HOUR_STEPS)
        periods = np.arange(hour * HOUR_PERIODS, (hour + 1) * HOUR_PERIODS)
        cpu, memory = self._cpu[rows[:, None], steps % STEPS], self._memory[rows[:, None], periods % PERIODS]
        cpu[:, (steps > self.newest) | (steps <= self.newest - STEPS)] = _UNKNOWN
        newest_period = self.newest // PERIOD_STEPS
        memory[:, (periods > newest_period) | (periods <= newest_period - PERIODS)] = _UNKNOWN
        known = np.flatnonzero(~np.isnan(cpu).all(axis=1) | ~np.isnan(memory).all(axis=1))
        return [pods[place] for place in known.tolist()], cpu[known], memory[known]

    def restore(self, hour: int, newest: int, pods: Sequence[_Key], cpu: Float16s, memory: Float16s) -> None:
        """Restore the use in an hour that :meth:`hour` returned; hours must be restored in order.

        Args:
            hour: the hour, in hours of Unix time.
            newest: newest step of the hour.
            pods: the pods.
            cpu: CPU in cores, shape (pods, 12).
            memory: memory in GiB, shape (pods, 4).
        """
        if cpu.shape != (len(pods), HOUR_STEPS) or memory.shape != (len(pods), HOUR_PERIODS):
            raise ValueError(f"the use of {len(pods)} pods has wrong shapes: CPU {cpu.shape}, memory {memory.shape}")
        self._begin(max(newest, self.newest))
        rows, first = self._rows(pods), hour * HOUR_STEPS
        self.oldest = min(self.oldest, first)
        count, periods = newest - first + 1, newest // PERIOD_STEPS - hour * HOUR_PERIODS + 1
        self._cpu[rows[:, None], np.arange(first, newest + 1) % STEPS] = cpu[:, :count]
        of_hour = np.arange(hour * HOUR_PERIODS, hour * HOUR_PERIODS + periods)
        self._memory[rows[:, None], of_hour % PERIODS] = memory[:, :periods]

    def past(self, pods: Sequence[_Key], steps: int) -> tuple[Float16s, Float16s]:
        """Return the known past of the given pods, the oldest step first; NaN where unknown, also for unknown pods.

        Args:
            pods: the pods.
            steps: number of steps, a multiple of three, at most 288. The newest step is the last one.

        Returns:
            CPU in cores, shape (pods, steps), and memory in GiB by quarters of an hour, shape (pods, steps / 3). The
            last quarter is the one with the newest step, so it may have begun a moment ago.
        """
        rows = np.array([self._row.get(pod, -1) for pod in pods], np.int64)
        columns = np.arange(self.newest - steps + 1, self.newest + 1) % STEPS
        last = self.newest // PERIOD_STEPS
        periods = np.arange(last - steps // PERIOD_STEPS + 1, last + 1) % PERIODS
        cpu, memory = self._cpu[rows[:, None], columns], self._memory[rows[:, None], periods]
        cpu[rows < 0], memory[rows < 0] = _UNKNOWN, _UNKNOWN
        return cpu, memory

    def _begin(self, step: int) -> None:
        """Clear the columns of the steps after the newest one, up to the given step."""
        if self.newest < 0:
            self.oldest = self.newest = step
            return
        passed = np.arange(max(self.newest + 1, step - STEPS + 1), step + 1)
        self._cpu[:, passed % STEPS] = _UNKNOWN
        begun = np.arange(max(self.newest // PERIOD_STEPS + 1, step // PERIOD_STEPS - PERIODS + 1),
                          step // PERIOD_STEPS + 1)  # fmt: skip
        self._memory[:, begun % PERIODS] = _UNKNOWN
        self.newest = step

    def _rows(self, pods: Sequence[_Key]) -> npt.NDArray[np.int64]:
        for pod in pods:
            if pod not in self._row:
                if not self._free:
                    self._grow()
                self._row[pod] = self._free.pop()
        return np.fromiter((self._row[pod] for pod in pods), np.int64, len(pods))

    def _grow(self) -> None:
        used = len(self._row)
        if used >= len(self._cpu):
            self._cpu, self._memory = (
                np.concatenate([part, np.full((min(len(part) // 2, _MOST_NEW_ROWS), part.shape[1]), _UNKNOWN)])
                for part in (self._cpu, self._memory)
            )
        self._free = list(range(len(self._cpu) - 1, used - 1, -1))

    def _clear(self, pod: _Key) -> None:
        row = self._row.pop(pod)
        self._cpu[row], self._memory[row] = _UNKNOWN, _UNKNOWN
        self._free.append(row)
