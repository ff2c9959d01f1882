"""State of the learner as bytes: one part that changes with every round, and one for each past day, which does not.

When the state of another version is loaded, fields that it lacks start at 0, and fields that this version does not know
are left out.
"""

from collections import deque
from collections.abc import Collection, Mapping

import numpy as np
import orjson

from runtime.kubernetes.workloads import Workload
from watcher.usage.array_bytes import UNREADABLE, pack, unpack
from watcher.usage.learn.cpu_histograms import PackedDay
from watcher.usage.learn.learner import ROW, WorkloadLearner
from watcher.workload_table import ContainerKey

PRESENT = "present"


class UnreadableStateError(ValueError):
    """The bytes are not a state of the learner."""


def save_state(learner: WorkloadLearner, saved: Collection[str] = ()) -> dict[str, bytes | None]:
    """Return the parts of the learner's state by name; None for past days that are already saved.

    Args:
        learner: the learner.
        saved: names of the parts that were saved before.
    """
    workloads = [tuple(workload) for workload in learner.workloads]
    names = {"workloads": workloads, "containers": [key.container for key in learner.keys]}
    present = pack(
        rows=learner.rows,
        names=np.frombuffer(orjson.dumps(names), np.uint8),
        recent=np.array(learner.recent, np.float64).reshape(-1, 10),
        numbers=np.array([learner.day, learner.next_number, *(number for number, _ in learner.past)], np.int64),
        time=np.array([learner.time, learner.live_since, learner.calm_rounds, learner.refused_rounds]),
        unfilled=np.array(learner.unfilled, np.int64),
    )
    days = {_day_name(number): day for number, day in learner.past}
    return {
        PRESENT: present,
        **{name: None if name in saved else pack(**day._asdict()) for name, day in days.items()},
    }


def load_state(parts: Mapping[str, bytes], max_workloads: int) -> WorkloadLearner:
    """Return the learner whose state :func:`save_state` returned. Days that are missing or unreadable are empty.

    Args:
        parts: parts of the state by name.
        max_workloads: number of workloads above which the learner forgets the least recently seen.

    Raises:
        UnreadableStateError: the present part is missing or unreadable.
    """
    learner = WorkloadLearner(max_workloads)
    try:
        present = unpack(parts[PRESENT])
        stored, names = present["rows"], orjson.loads(present["names"].tobytes())
        rows = np.zeros(len(stored), ROW)
        for field in set(ROW.names or ()) & set(stored.dtype.names):
            rows[field] = stored[field]
        workloads = [Workload(*map(str, workload)) for workload in names["workloads"]]
        keys = [
            ContainerKey(workloads[number], str(container))
            for number, container in zip(rows["workload"].tolist(), names["containers"], strict=True)
        ]
        learner.recent = deque(present["recent"].reshape(-1, 10))
        learner.day, learner.next_number, *numbers = present["numbers"].tolist()
        learner.time, *since = present["time"].tolist()
        learner.live_since = since[0] if since else 0.0
        if len(since) > 1:
            learner.calm_rounds, learner.refused_rounds = map(int, since[1:3])
        learner.unfilled = present["unfilled"].tolist() if "unfilled" in present else []
        learner.restore(rows, keys, workloads)
    except UNREADABLE as error:
        raise UnreadableStateError(str(error) or repr(error)) from error
    for number in numbers:
        learner.past.append((number, _day(parts.get(_day_name(number)), len(rows))))
    return learner


def _day(body: bytes | None, size: int) -> PackedDay:
    """Return a past day; an empty one if its part is missing, unreadable, or has other containers."""
    try:
        if body is not None:
            day = PackedDay(**unpack(body))
            if day.is_valid(size):
                return day
    except UNREADABLE:
        pass
    return PackedDay.empty()


def _day_name(number: int) -> str:
    return f"day-{number}"
