"""Regret of a placement: load of the chosen node minus the load that our best node would have with the pod.

    load(node)   the higher of its CPU and memory, percent of capacity, averaged over the first window that began after
                 the pod was bound
    regret       load(chosen) - load(best, with the pod's requests added)      in points; above 0 our node was better

The chosen node is the node that the pod was bound to; its measured load includes the pod. Our best node is the
candidate that the extender expected kube-scheduler to choose; the pod's requests are added to its load, as the best
known estimate for a node that the pod did not run on. If the pod was bound to our best node, the regret is 0.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from runtime.kubernetes.objects import CPU, MEMORY
from runtime.kubernetes.pod_demand import in_tree_requests
from scoring import Node, Pod
from watcher.model import MetricType, WatcherMetrics, averages

RESOURCES = {CPU: MetricType.CPU, MEMORY: MetricType.MEMORY}
Use = Mapping[str, float]
"""Resource to percent of a node's capacity."""


@dataclass(frozen=True, slots=True)
class PlacementRegret:
    """Measured CPU and memory use of the chosen node and of our best node after one placement.

    Attributes:
        scheduler: scheduler name of the pod.
        active: whether kube-scheduler got our scores; False in shadow mode.
        same: whether the chosen node was our best node.
        chosen: measured use of the chosen node, percent by resource.
        best: expected use of our best node with the pod, percent by resource.
        window: start and end of the measurement, Unix seconds.
    """

    scheduler: str
    active: bool
    same: bool
    chosen: Use
    best: Use
    window: tuple[int, int]

    @property
    def regret(self) -> float:
        """Load of the chosen node minus load of our best node, points; above 0 our best node was better."""
        return load(self.chosen) - load(self.best)

    def as_document(self) -> dict[str, Any]:
        """Return the regret as a JSON object."""
        return {
            "window": {"start": self.window[0], "end": self.window[1]},
            "chosen_percent": dict(self.chosen),
            "best_percent": dict(self.best),
            "regret": round(self.regret, 3),
        }


def load(use: Use) -> float:
    """Return the load of a node: the highest use of any of its resources, percent."""
    return max(use.values())


def requested_percent(pod: Pod, node: Node) -> Use:
    """Return the CPU and memory requests of a pod in percent of a node's capacity."""
    return {
        resource: 100 * in_tree_requests(pod, resource) / max(node.capacity.amount(resource), 1)
        for resource in RESOURCES
    }


def used_percent(snapshot: WatcherMetrics, node_name: str) -> Use | None:
    """Return the average CPU and memory use of a node in a snapshot, percent; None if neither is measured."""
    if node_name not in snapshot.data:
        return None
    percents = averages(snapshot.data[node_name])
    return {resource: percents[type_] for resource, type_ in RESOURCES.items() if type_ in percents} or None


def regret_table(regrets: Iterable[PlacementRegret], hot_percent: float) -> list[dict[str, Any]]:
    """Return the regret table: a row for each scheduler and mode (active or shadow), as JSON objects.

    Each row has the number of pods, the mean loads of the chosen nodes and of our best nodes, mean and 95th percentile
    of the regret, and the number of hot nodes of both kinds.

    Args:
        regrets: regrets of single placements.
        hot_percent: load in percent from which a node counts as hot.
    """
    groups: dict[tuple[str, bool], list[PlacementRegret]] = {}
    for each in regrets:
        groups.setdefault((each.scheduler, each.active), []).append(each)
    return [
        {"scheduler": scheduler, "mode": "active" if active else "shadow", **_row(group, hot_percent)}
        for (scheduler, active), group in sorted(groups.items())
    ]


def _row(group: list[PlacementRegret], hot_percent: float) -> dict[str, Any]:
    regrets = np.array([each.regret for each in group])
    chosen, best = (np.array([load(getattr(each, which)) for each in group]) for which in ("chosen", "best"))
    return {
        "pods": len(group),
        "same_node": sum(each.same for each in group),
        "chosen_percent": round(float(chosen.mean()), 3),
        "best_percent": round(float(best.mean()), 3),
        "regret": round(float(regrets.mean()), 3),
        "regret_p95": round(float(np.percentile(regrets, 95)), 3),
        "chosen_hot": int((chosen >= hot_percent).sum()),
        "best_hot": int((best >= hot_percent).sum()),
    }
