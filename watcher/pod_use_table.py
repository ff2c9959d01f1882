"""Use of single pods over the last day, as arrays, from which moves are planned.

Time is counted in steps of five minutes, and in periods of a quarter of an hour for memory. CPU in cores and memory in
GiB are kept as float16, whose error is at most 0.05 percent: 768 bytes for a pod.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
import numpy.typing as npt

from runtime.kubernetes.workloads import Workload

STEP_SECONDS: Final = 300
STEPS: Final = 288
PERIOD_STEPS: Final = 3
PERIODS: Final = STEPS // PERIOD_STEPS
HOURS: Final = 24

Float16s = npt.NDArray[np.float16]
Float64s = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class PodUseTable:
    """Use of pods over the last day, the oldest step first; NaN where it is unknown.

    A pod that is gone keeps its use for a day, so that its replacement can inherit it.

    Attributes:
        timestamp: end of the newest step, Unix seconds; 0 if nothing was measured.
        uids: uid of each pod; "" if the watcher does not know it.
        names: namespace and name of each pod, with a slash between them.
        nodes: name of each pod's node; "" if unknown.
        workloads: workload of each pod.
        revisions: hash of each pod's template; "" if unknown.
        since: begin of the first step with known use, Unix seconds, shape (pods,).
        last_seen: end of the newest step with a measurement of the pod, Unix seconds, shape (pods,).
        cpu_cores: mean CPU use in each step of five minutes, cores, shape (pods, 288).
        memory_gib: highest memory use in each quarter of an hour, GiB, shape (pods, 96). The last quarter is the one
            with the newest step, so it may have begun a moment ago.
        courses: mean use of a pod of the same workload in each hour of the day (UTC), cores and GiB, shape
            (2, pods, 24).
        waiting: share of time in which each pod waited for CPU (PSI) while its own limit did not throttle it, the
            highest of the last hour's measurements, shape (pods,); NaN if unknown. None if unknown for all pods.
    """

    timestamp: float
    uids: Sequence[str]
    names: Sequence[str]
    nodes: Sequence[str]
    workloads: Sequence[Workload]
    revisions: Sequence[str]
    since: Float64s
    last_seen: Float64s
    cpu_cores: Float16s
    memory_gib: Float16s
    courses: Float16s
    waiting: Float64s | None = None

    def __len__(self) -> int:
        return len(self.uids)

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """Join tables of the same time. A pod that is in two tables has two rows in the result."""
        times = {part.timestamp for part in parts}
        if len(times) != 1:
            raise ValueError("the tables have different timestamps, or there is no table")

        def texts(name: str) -> tuple[str, ...]:
            return tuple(text for part in parts for text in getattr(part, name))

        return cls(
            timestamp=times.pop(),
            uids=texts("uids"),
            names=texts("names"),
            nodes=texts("nodes"),
            workloads=tuple(workload for part in parts for workload in part.workloads),
            revisions=texts("revisions"),
            since=np.concatenate([part.since for part in parts]),
            last_seen=np.concatenate([part.last_seen for part in parts]),
            cpu_cores=np.concatenate([part.cpu_cores for part in parts]),
            memory_gib=np.concatenate([part.memory_gib for part in parts]),
            courses=np.concatenate([part.courses for part in parts], axis=1),
            waiting=np.concatenate([np.full(len(p), np.nan) if p.waiting is None else p.waiting for p in parts]),
        )
