"""Expected benefit of load-aware placement in a cluster, from its nodes, pods and load at one moment.

The figures say whether a scheduler has a choice, whether the load leaves anything to gain, and how much of the load
kube-scheduler, which balances requests, cannot foresee. The thresholds come from replays: docs/adopt.md has the table.
One moment of one cluster is little: the verdict says in which class of replayed worlds the cluster is, and no more.
"""

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from runtime.kubernetes.objects import CPU, MEMORY
from scoring import NodeTable
from scoring.arrays import Bools, Float64s, Int64s
from watcher.model import MetricType, WatcherMetrics, averages

HOT_PERCENT = 80.0
COOL_PERCENT = 50.0
FULL = 0.9
"""Share of full nodes from which hot minutes can rise in replays with load-aware placement."""
HALF_FULL = 0.5
"""Share of full nodes from which the difference in replays is within chance."""
REACH_DEVIATIONS = 3
"""Standard deviations above the mean load within which nearly all loads of replays lie."""
LEAST_MEASURED = 0.8
_TYPES = {CPU: MetricType.CPU, MEMORY: MetricType.MEMORY}


class BenefitVerdict(StrEnum):
    """Verdict about load-aware placement in a cluster."""

    GAIN = "gain likely"
    NONE = "none"
    HARM = "harm, stay in shadow"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class ResourceFigures:
    """Requests, limits and use of one resource in a cluster.

    Attributes:
        requested: requests of the pods as a share of allocatable, of all nodes.
        limits: limits of the pods as a share of capacity, of all nodes; a pod without a limit counts with its request.
        use: use as a share of capacity, of the measured nodes; None if no node is measured.
        over_use: requests divided by use, of the measured nodes; None if no use is measured.
    """

    requested: float
    limits: float
    use: float | None
    over_use: float | None


@dataclass(frozen=True, slots=True)
class ClusterFigures:
    """Figures of a cluster at one moment, on which the verdict is based. Cordoned nodes are left out.

    Attributes:
        nodes: number of nodes that accept pods.
        measured: share of these nodes with a measured CPU load.
        cpu, memory: requests, limits and use of the nodes.
        full: share of the nodes without room for a pod of average requests.
        hot: share of the measured nodes with a CPU load of 80 percent or more.
        cool: share of the measured nodes with a CPU load below 50 percent.
        spread: standard deviation of the CPU load of the measured nodes, percentage points.
    """

    nodes: int
    measured: float
    cpu: ResourceFigures
    memory: ResourceFigures
    full: float
    hot: float
    cool: float
    spread: float


@dataclass(frozen=True, slots=True)
class PlacementBenefit:
    """Verdict about load-aware placement in a cluster, with its reason and the figures.

    Attributes:
        verdict: the verdict.
        reason: explanation of the verdict.
        figures: figures that the verdict is based on.
    """

    verdict: BenefitVerdict
    reason: str
    figures: ClusterFigures

    def as_document(self) -> dict[str, Any]:
        """Return the benefit as a JSON object."""
        return asdict(self)


def placement_benefit(nodes: NodeTable, snapshot: WatcherMetrics | None) -> PlacementBenefit:
    """Return the expected benefit of load-aware placement.

    Args:
        nodes: nodes of the cluster, with their pods.
        snapshot: metrics of the nodes; None if there are none.
    """
    figures = cluster_figures(nodes, snapshot)
    verdict, reason = _judge(figures)
    return PlacementBenefit(verdict, reason, figures)


def cluster_figures(nodes: NodeTable, snapshot: WatcherMetrics | None) -> ClusterFigures:
    """Return the figures of a cluster; see :func:`placement_benefit` for the arguments."""
    open_rows = np.array([not node.unschedulable for node in nodes.nodes], np.bool_)
    loads = {resource: _loads(nodes, snapshot, type_) for resource, type_ in _TYPES.items()}
    cpu = loads[CPU][open_rows & np.isfinite(loads[CPU])]
    count = int(open_rows.sum())
    return ClusterFigures(
        nodes=count,
        measured=len(cpu) / max(count, 1),
        cpu=_resource_figures(nodes, CPU, loads[CPU], open_rows),
        memory=_resource_figures(nodes, MEMORY, loads[MEMORY], open_rows),
        full=_full_share(nodes, open_rows),
        hot=float((cpu >= HOT_PERCENT).mean()) if len(cpu) else 0.0,
        cool=float((cpu < COOL_PERCENT).mean()) if len(cpu) else 0.0,
        spread=float(cpu.std()) if len(cpu) else 0.0,
    )


def _judge(figures: ClusterFigures) -> tuple[BenefitVerdict, str]:
    """Return the verdict and its reason. Harm comes first: without a choice of nodes the load does not matter."""
    use = 100 * (figures.cpu.use or 0)
    reach = use + REACH_DEVIATIONS * figures.spread
    full = f"{figures.full:.0%} of the nodes have no room for a pod of average requests"
    if figures.nodes < 2 or figures.measured < LEAST_MEASURED:
        verdict = BenefitVerdict.UNKNOWN
        reason = f"{figures.measured:.0%} of {figures.nodes} nodes have a measured load; 80 % of two or more are needed"
    elif figures.full >= FULL:
        verdict = BenefitVerdict.HARM
        reason = (
            f"{full}, so there is hardly a choice; in replayed worlds like this load-aware placement changed the hot "
            "minutes little, and in some they rose; lower requests (overcommit) or more nodes would change that"
        )
    elif figures.hot == 0 and reach < HOT_PERCENT:
        verdict = BenefitVerdict.NONE
        reason = f"no node is hot: the mean CPU load is {use:.0f} %, and {reach:.0f} % with three standard deviations"
    elif figures.full >= HALF_FULL:
        verdict = BenefitVerdict.NONE
        reason = f"{full}; in replayed worlds like this the difference is within chance"
    else:
        verdict = BenefitVerdict.GAIN
        room = f"{1 - figures.full:.0%} have room for a pod of average requests"
        reason = f"{figures.hot:.0%} of the nodes are hot, {figures.cool:.0%} are cool, and {room}"
    return verdict, reason


def _loads(nodes: NodeTable, snapshot: WatcherMetrics | None, type_: MetricType) -> Float64s:
    """Return the average load of each node, percent of capacity, shape (nodes,); NaN if it is not measured."""
    data = {} if snapshot is None else snapshot.data
    return np.array(
        [averages(data[name]).get(type_, np.nan) if name in data else np.nan for name in nodes.names], np.float64
    )


def _resource_figures(nodes: NodeTable, resource: str, loads: Float64s, rows: Bools) -> ResourceFigures:
    requests, capacity = nodes.in_tree_requests(resource), nodes.capacity(resource)
    measured = rows & np.isfinite(loads)
    used = float((loads[measured] / 100 * capacity[measured]).sum())
    return ResourceFigures(
        _ratio(_sum(requests[rows]), _sum(nodes.allocatable(resource)[rows])),
        _ratio(_sum(nodes.limits(resource)[rows]), _sum(capacity[rows])),
        _ratio(used, _sum(capacity[measured])) if measured.any() else None,
        _ratio(_sum(requests[measured]), used) if used else None,
    )


def _full_share(nodes: NodeTable, rows: Bools) -> float:
    """Return the share of some nodes without room for a pod that requests the average of all pods."""
    pods, is_full = max(int(nodes.pod_counts[rows].sum()), 1), np.zeros(len(nodes), np.bool_)
    for resource in _TYPES:
        requests = nodes.in_tree_requests(resource)
        is_full |= nodes.allocatable(resource) - requests < _sum(requests[rows]) / pods
    return float(is_full[rows].mean()) if rows.any() else 0.0


def _sum(amounts: Int64s) -> float:
    return float(amounts.sum(dtype=np.float64))  # 64-bit integers could wrap


def _ratio(part: float, whole: float) -> float:
    return part / max(whole, 1.0)
