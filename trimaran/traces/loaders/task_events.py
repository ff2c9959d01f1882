"""Runs of tasks from the event tables of Google's data sets."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from trimaran.traces.loaders.dataset import JOB, LARGEST_BYTES, LARGEST_MILLI, SERVICE, DatasetTask

_LATENCY_SENSITIVE = 2  # scheduling classes are 0 to 3; from this one on, tasks are services


class TaskEvent(NamedTuple):
    """Event of a task on its machine; requests are relative to the largest machine."""

    seconds: float
    starts: bool
    cpu: float
    memory: float
    scheduling_class: int


def task_runs(events: Iterable[tuple[tuple[str, str], TaskEvent]]) -> Iterator[DatasetTask]:
    """Yield each run of the tasks; each event comes with the task's collection and index, in any order.

    A task whose first event is an end ran from the start of the data set; a task without an end never ends.
    """
    by_task: dict[tuple[str, str], list[TaskEvent]] = defaultdict(list)
    for task, event in events:
        by_task[task].append(event)
    for (collection, index), task_events in by_task.items():
        running: TaskEvent | None = None
        for position, event in enumerate(sorted(task_events, key=lambda event: (event.seconds, event.starts))):
            if event.starts:
                running = running or event
            elif running or position == 0:  # other ends without a start are duplicates
                yield _task(collection, index, running or event, running.seconds if running else 0.0, event.seconds)
                running = None
        if running is not None:
            yield _task(collection, index, running, running.seconds, float("inf"))


def _task(collection: str, index: str, event: TaskEvent, start: float, end: float) -> DatasetTask:
    kind = SERVICE if event.scheduling_class >= _LATENCY_SENSITIVE else JOB
    requests = event.cpu * LARGEST_MILLI, event.memory * LARGEST_BYTES
    return DatasetTask(f"{collection}-{index}", kind, collection, *requests, start, end)
