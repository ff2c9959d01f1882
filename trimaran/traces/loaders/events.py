"""Google's tasks: from events on machines to when each task ran."""

from collections.abc import Iterator
from typing import NamedTuple

from trimaran.traces.loaders.dataset import JOB, LARGEST_BYTES, LARGEST_MILLI, SERVICE, Task

_LATENCY_SENSITIVE = 2  # of the classes 0 to 3, those of services


class Event(NamedTuple):
    """Something that happened to a task on its machine; requests are in parts of the largest machine."""

    seconds: float
    starts: bool
    cpu: float
    memory: float
    scheduling_class: int


def tasks(events: dict[tuple[str, str], list[Event]]) -> Iterator[Task]:
    """Yield each run of the tasks, by collection and index; their events may be in any order.

    One that ends without having begun was there from the start on; one without an end was there to the end.
    """
    for (collection, index), happened in events.items():
        running: Event | None = None
        for place, event in enumerate(sorted(happened, key=lambda event: (event.seconds, event.starts))):
            if event.starts:
                running = running or event
            elif running or place == 0:  # else it ended before: told twice
                yield _task(collection, index, running or event, running.seconds if running else 0.0, event.seconds)
                running = None
        if running is not None:
            yield _task(collection, index, running, running.seconds, float("inf"))


def _task(collection: str, index: str, event: Event, start: float, end: float) -> Task:
    kind = SERVICE if event.scheduling_class >= _LATENCY_SENSITIVE else JOB
    asked = event.cpu * LARGEST_MILLI, event.memory * LARGEST_BYTES
    return Task(f"{collection}-{index}", kind, collection, *asked, start, end)
