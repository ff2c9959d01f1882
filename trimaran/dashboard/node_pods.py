"""Pods of nodes by workload, with their newest measured use."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from runtime.kubernetes.workloads import Workload
from watcher.pod_use_table import PodUseTable

_NEWEST_STEPS = 3  # a quarter of an hour


class WorkloadOnNode(NamedTuple):
    """Pods of one workload on one node.

    Attributes:
        workload: the workload.
        pods: number of its pods on the node.
        cores: mean CPU use of all these pods in the last quarter of an hour, cores; pods of unknown use count as 0.
        gib: memory use of all these pods in the newest step, GiB; pods of unknown use count as 0.
    """

    workload: Workload
    pods: int
    cores: float
    gib: float


def workloads_by_node(table: PodUseTable) -> Mapping[str, Sequence[WorkloadOnNode]]:
    """Return the workloads of the pods on each node, those with the largest CPU use first."""
    with np.errstate(invalid="ignore"):
        cores = _mean(np.asarray(table.cpu_cores[:, -_NEWEST_STEPS:], np.float64))
    gib = np.nan_to_num(np.asarray(table.memory_gib[:, -1:], np.float64)).sum(axis=1).tolist()
    sums: dict[str, dict[Workload, list[float]]] = {}
    for row, (node, workload) in enumerate(zip(table.nodes, table.workloads, strict=True)):
        of = sums.setdefault(node, {}).setdefault(workload, [0.0, 0.0, 0.0])
        for place, amount in enumerate((1.0, cores[row], gib[row])):
            of[place] += amount
    return {
        node: sorted(
            (WorkloadOnNode(workload, int(pods), use, memory) for workload, (pods, use, memory) in of.items()),
            key=lambda each: (-each.cores, each.workload),
        )
        for node, of in sums.items()
    }


def _mean(values: np.ndarray[tuple[int, int], np.dtype[np.float64]]) -> list[float]:
    """Return the mean of the known values of each row; 0 for a row without any."""
    known = np.isfinite(values)
    counts = known.sum(axis=1)
    sums = np.where(known, values, 0.0).sum(axis=1)
    means: list[float] = np.divide(sums, counts, out=np.zeros(len(values)), where=counts > 0).tolist()
    return means
