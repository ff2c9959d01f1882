"""Learned use of workloads, as arrays: the result of the learner, from which scores and requests are computed.

All amounts are absolute, cores and bytes of one pod or container, so that a changed request changes none of them.
Arrays with a first axis of two have CPU first and memory second.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from runtime.kubernetes.workloads import Workload

if TYPE_CHECKING:
    import pandas as pd

Float64s = npt.NDArray[np.float64]
Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Texts = npt.NDArray[np.str_]


class ContainerKey(NamedTuple):
    """Identity of a container in all pods of a workload.

    Attributes:
        workload: the workload.
        container: name of the container.
    """

    workload: Workload
    container: str


@dataclass(frozen=True, slots=True, eq=False)
class WorkloadTable:
    """Expected use of a pod of each workload.

    Attributes:
        timestamp: end of the newest round of measurements, Unix seconds.
        workloads: the workloads. New ones are appended; the order changes only when workloads are removed.
        use: expected CPU and memory use of a pod, cores and bytes, shape (2, workloads).
        deviations: standard deviations of this use, in the same units and shape.
        level: use of all pods as a share of their requests, for pods of unknown workloads, shape (2,).
        level_deviation: standard deviation of this share, shape (2,).
        first_seen: time when each workload was first measured, Unix seconds, shape (workloads,).
        last_seen: time of each workload's newest measurement, Unix seconds, shape (workloads,).
        pods: number of each workload's pods in its newest measurement, shape (workloads,).
        pod_minutes: minutes of all its pods that were measured, shape (workloads,).
    """

    timestamp: float
    workloads: tuple[Workload, ...]
    use: Float64s
    deviations: Float64s
    level: Float64s
    level_deviation: Float64s
    first_seen: Float64s
    last_seen: Float64s
    pods: Float64s
    pod_minutes: Float64s

    def __len__(self) -> int:
        return len(self.workloads)

    def to_frame(self) -> "pd.DataFrame":
        """Return a data frame with one row for each workload: use, deviation, first and last measurement, pods.

        Raises:
            ImportError: pandas is not installed (``pip install pandas``).
        """
        import pandas as pd  # optional dependency

        index = pd.MultiIndex.from_tuples(self.workloads, names=Workload._fields)
        times = {name: pd.to_datetime(getattr(self, name), unit="s", utc=True) for name in ("first_seen", "last_seen")}
        columns = {
            "cpu_cores": self.use[0], "cpu_deviation": self.deviations[0],
            "memory_bytes": self.use[1], "memory_deviation": self.deviations[1],
            **times, "pods": self.pods, "pod_minutes": self.pod_minutes,
        }  # fmt: skip
        return pd.DataFrame(columns, index=index)


@dataclass(frozen=True, slots=True, eq=False)
class ContainerTable:
    """Learned use of each container of each workload.

    Attributes:
        keys: workload and name of each container.
        requests: request that most pods of the newest revision have, cores and bytes, shape (2, containers); 0 without
            requests.
        use: expected use, cores and bytes, shape (2, containers).
        deviations: standard deviations of this use, in the same units and shape.
        quantiles: the quantiles, 0 to 1.
        cpu_percentiles: quantiles of CPU use, cores, shape (quantiles, containers).
        highest_memory: highest memory use of the last 14 days, bytes, shape (containers,).
        by_hour: mean use in each hour of the day (UTC), cores and bytes, shape (2, containers, 24); NaN if not known.
        first_seen: time when each container was first measured, Unix seconds, shape (containers,).
        last_seen: time of each container's newest measurement, Unix seconds, shape (containers,).
        revision_since: time when the present revision was first measured, Unix seconds, shape (containers,).
        pods: number of pods with the container in its newest measurement, shape (containers,).
        pod_minutes: minutes of all pods that were measured, shape (containers,).
        runs: number of pods that started while the container was known, shape (containers,).
        limits: limits in the newest template, cores and bytes, shape (2, containers); 0 without one.
        roles: part of the pod that each container is, by :class:`runtime.kubernetes.workloads.ContainerRole`.
        is_guaranteed: whether the pods have the QoS class Guaranteed, shape (containers,).
        restarted_at: time of the newest restart in a pod, Unix seconds, shape (containers,); 0 if none is known.
        killed_at: time of the newest kill for lack of memory, Unix seconds, shape (containers,); 0 if none is known.
        killed_memory: memory that the container needs after such kills, bytes, shape (containers,).
        strain: CPU contention: share of the CPU periods of the last day in which the container was throttled, and share
            of the time for which it waited for CPU, shape (2, containers); NaN if unknown.
        has_pod_requests: whether the pods request CPU and memory as a whole, shape (2, containers).
    """

    keys: Sequence[ContainerKey]
    requests: Float64s
    use: Float64s
    deviations: Float64s
    quantiles: tuple[float, ...]
    cpu_percentiles: Float64s
    highest_memory: Float64s
    by_hour: Float64s
    first_seen: Float64s
    last_seen: Float64s
    revision_since: Float64s
    pods: Float64s
    pod_minutes: Float64s
    runs: Float64s
    limits: Float64s
    roles: npt.NDArray[np.uint8]
    is_guaranteed: Bools
    restarted_at: Float64s
    killed_at: Float64s
    killed_memory: Float64s
    strain: Float64s
    has_pod_requests: Bools

    def __len__(self) -> int:
        return len(self.keys)


@dataclass(frozen=True, slots=True, eq=False)
class Recommendations:
    """Recommended requests of the containers of a table; CPU first and memory second.

    Attributes:
        requests: recommended requests, cores and bytes, shape (2, containers); NaN if unknown. The present request if
            the rule gives less and a reason forbids to lower it.
        verdicts: changes that the requests need: lower, raise, keep, or "" if unknown, shape (2, containers).
        reasons: reasons why a request is not lowered or not known, shape (2, containers); "" without one.
        limits: limits that fit the recommended requests, cores and bytes, shape (2, containers); NaN without a limit.
        wasted: requests minus use, at least 0, times the pods that run now, cores and bytes, shape (2, containers);
            NaN if the use is unknown.
    """

    requests: Float64s
    verdicts: Texts
    reasons: Texts
    limits: Float64s
    wasted: Float64s


@dataclass(frozen=True, slots=True, eq=False)
class DailyUse:
    """Use of the containers of a workload by day (UTC): the present day first, then the measured days before it.

    Attributes:
        keys: workload and name of each container.
        quantiles: the quantiles, 0 to 1.
        cpu: quantiles of CPU use, cores, shape (quantiles, containers, 14); NaN for a day without measurements.
        highest_memory: highest memory use, bytes, shape (containers, 14); NaN if unknown.
    """

    keys: Sequence[ContainerKey]
    quantiles: tuple[float, ...]
    cpu: Float64s
    highest_memory: Float64s


@dataclass(frozen=True, slots=True, eq=False)
class ClusterTotals:
    """Capacity, requests and use of all pods together, for each round of measurements of the last day.

    Arrays of amounts are in cores and bytes, shape (2, rounds); NaN where unknown.

    Attributes:
        times: ends of the rounds, ascending, Unix seconds, shape (rounds,).
        capacity: amounts that pods may request on all nodes together (allocatable).
        requested: requests of the containers of all running pods.
        used: use of all measured containers.
    """

    times: Float64s
    capacity: Float64s
    requested: Float64s
    used: Float64s

    def __len__(self) -> int:
        return len(self.times)
