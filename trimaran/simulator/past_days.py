"""Days of a trace's history as the watcher's backfill reads them: calendar days, which end at midnight UTC."""

from collections.abc import Callable, Mapping

import numpy as np

from runtime.kubernetes.workloads import Workload
from scoring.arrays import Float64s
from trimaran.simulator.windows import BEGIN_SECONDS
from trimaran.traces.history import STEP_SECONDS, STEPS_A_DAY, TraceHistory
from trimaran.traces.trace import Trace
from watcher.usage.learn.learner import WorkloadLearner
from watcher.usage.learn.past_days import DayCollector, FilledDay
from watcher.usage.sources.pods import DAYS
from watcher.windows.past_container_use import PastContainerUse

_DAY = STEP_SECONDS * STEPS_A_DAY
CONTAINER = "main"  # simulated pods have one container


def fill_past_days(learner: WorkloadLearner, trace: Trace, workload_of: Callable[[str, str], Workload]) -> None:
    """Fill a learner that has seen nothing with the trace's history, the newest day first.

    Args:
        learner: the learner.
        trace: the trace.
        workload_of: returns the workload of an owner by kind and name.
    """
    if trace.history is None:
        return
    learner.day, learner.time = BEGIN_SECONDS // _DAY, float(BEGIN_SECONDS)
    learner.unfilled = [learner.day - age for age in range(DAYS)]
    requests = trace.mean_requests()
    for day in list(learner.unfilled):
        learner.fill(_past_day(trace.history, requests, day, workload_of))


def _past_day(
    history: TraceHistory,
    requests: Mapping[tuple[str, str], Float64s],
    day: int,
    workload_of: Callable[[str, str], Workload],
) -> FilledDay:
    """Return the use on a calendar day: the end of one day of the history, and the start of the next one.

    Args:
        history: the history.
        requests: mean request of each owner's pods; other owners of the history have no pods in the trace.
        day: number of the day since 1970.
        workload_of: returns the workload of an owner by kind and name.
    """
    collector, owners = DayCollector(day, STEP_SECONDS), list(zip(history.owner_kinds, history.owners, strict=True))
    for of_history in np.unique(history.days).tolist():
        begin = BEGIN_SECONDS + of_history * _DAY
        midnights = ((number * _DAY - begin) // STEP_SECONDS for number in (day, day + 1))
        first, last = (min(max(step, 0), STEPS_A_DAY) for step in midnights)
        rows = [row for row in np.flatnonzero(history.days == of_history).tolist() if owners[row] in requests]
        if first == last or not rows:
            continue
        amounts = np.array([requests[owners[row]] for row in rows])
        cpu = history.cpu[rows, first:last] * amounts[:, :1]
        memory = history.memory[rows, first:last] * amounts[:, 1:]
        known = np.isfinite(memory)
        mean = np.where(known, memory, 0).sum(axis=1) / np.maximum(known.sum(axis=1), 1)
        memory_bytes = np.where(known.any(axis=1), [mean, np.where(known, memory, 0).max(axis=1)], np.nan)
        ends = range(begin + (first + 1) * STEP_SECONDS, begin + last * STEP_SECONDS + 1, STEP_SECONDS)
        # The kind stands for the namespace and the owner for the pod: a row is a workload's mean pod.
        kinds, names = zip(*(owners[row] for row in rows), strict=True)
        use = PastContainerUse(ends, kinds, names, [CONTAINER] * len(rows), cpu.astype(np.float32), memory_bytes)
        present = frozenset(owners[row] for row in rows if not history.revisions[row])
        collector.add(use, workload_of, present)
    return collector.result()
