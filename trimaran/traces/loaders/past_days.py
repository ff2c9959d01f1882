"""Use of a trace's owners on the days before it, in the same data set: sums by owner, day and step, and no samples."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from math import ceil, floor

import numpy as np

from scoring.arrays import Float64s
from trimaran.traces.history import STEP_SECONDS, STEPS_A_DAY, Owner, TraceHistory, trace_history
from trimaran.traces.loaders.dataset import DatasetTask, TaskUse
from trimaran.traces.loaders.rows import LoadError

_DAY = STEP_SECONDS * STEPS_A_DAY
_UNITS = np.array([[1000.0], [1.0]])  # uses are in millicores and bytes, histories in cores and bytes


class PastDays:
    """Mean use of owners' tasks on the days before a trace.

    Args:
        begin: minute 0 of the trace, in seconds from the start of the data set.
        days: number of days before it.

    Attributes:
        requests: requests of the tasks whose use is wanted, by key, millicores and bytes.
    """

    def __init__(self, begin: float, days: int) -> None:
        self._begin, self._days = begin, days
        self.requests: dict[str, tuple[float, float]] = {}
        self._owners: dict[str, Owner] = {}
        # Of each owner on each day: the sums of amount and time, and of the time, of both resources in each step.
        self._sums: dict[tuple[Owner, int], Float64s] = defaultdict(lambda: np.zeros((2, 2, STEPS_A_DAY)))

    def select(self, tasks: Iterable[DatasetTask], owners: Collection[Owner]) -> None:
        """Select the tasks of some owners that may have run on the days."""
        for task in tasks:
            owner = task.owner_kind, task.owner
            start = 0.0 if task.start is None else task.start
            if owner in owners and start < self._begin and task.end > self._begin - self._days * _DAY:
                self.requests[task.key], self._owners[task.key] = (task.cpu_milli, task.memory_bytes), owner

    def add(self, use: TaskUse) -> None:
        """Add a task's use if the task is selected; in each step it counts by the seconds that it lasts there.

        A mean that ends after minute 0 has samples of the replayed time, which no learner could have at its start.
        """
        owner = self._owners.get(use.key)
        if owner is None or use.end > self._begin:
            return
        start, end = max(use.start - self._begin, -self._days * _DAY), use.end - self._begin
        for step in range(floor(start / STEP_SECONDS), ceil(end / STEP_SECONDS)):  # -1 is the step before minute 0
            day, of_day = divmod(step, STEPS_A_DAY)
            seconds = min(end, (step + 1) * STEP_SECONDS) - max(start, step * STEP_SECONDS)
            for resource, amount in enumerate((use.cpu, use.memory)):
                if amount >= 0:  # not NaN
                    self._sums[owner, day][:, resource, of_day] += amount * seconds, seconds

    def history(self, requests: Mapping[Owner, Float64s]) -> TraceHistory | None:
        """Return the history of owners with their mean request in the trace; None without any days.

        Raises:
            LoadError: the data set has fewer days.
        """
        with np.errstate(invalid="ignore"):  # 0 / 0 where unknown
            means = [(*row, sums / seconds / _UNITS) for row, (sums, seconds) in sorted(self._sums.items())]
        history = trace_history(means, requests)
        days = 0 if history is None else -int(history.days.min())
        if days < self._days:
            raise LoadError(
                f"--history-days {self._days}: the use of the trace's owners begins {days} days before hour "
                f"{self._begin / 3600:g}; choose {days}, or begin the trace later"
            )
        return history
