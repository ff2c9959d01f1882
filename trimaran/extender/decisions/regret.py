"""What a placement was worth: what the node that was chosen used afterwards, and what ours would have used.

    load(node)   the higher of its CPU and memory, percent of capacity, averaged over the first window that began after
                 the pod was bound
    regret       load(chosen) - load(ours, with the pod's requests added)      in points; above 0 ours was better

The pod runs on the chosen node, so what that one used has the pod in it; on ours it is added as what it requests, which
is the best that is known of it without having run there. Where both are the same node the regret is 0.
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
class Worth:
    """What came of one placement.

    Attributes:
        scheduler: the profile.
        acted: whether our scores were answered.
        same: whether the chosen node was ours.
        chosen: what the chosen node used.
        ours: what ours would have used with the pod.
        window: start and end of the measurement, unix seconds.
    """

    scheduler: str
    acted: bool
    same: bool
    chosen: Use
    ours: Use
    window: tuple[int, int]

    @property
    def regret(self) -> float:
        """The points that the chosen node was worse by."""
        return load(self.chosen) - load(self.ours)

    def as_document(self) -> dict[str, Any]:
        """Return the same as what JSON has."""
        return {
            "window": {"start": self.window[0], "end": self.window[1]},
            "chosen_percent": dict(self.chosen),
            "best_percent": dict(self.ours),
            "regret": round(self.regret, 3),
        }


def load(use: Use) -> float:
    """Return the highest use of any resource."""
    return max(use.values())


def requested(pod: Pod, node: Node) -> Use:
    """Return what a pod requests, in percent of a node's capacity."""
    return {
        resource: 100 * in_tree_requests(pod, resource) / max(node.capacity.amount(resource), 1)
        for resource in RESOURCES
    }


def used(snapshot: WatcherMetrics, node_name: str) -> Use | None:
    """Return what a node used, for the resources that were measured; None where nothing was."""
    if node_name not in snapshot.data:
        return None
    found = averages(snapshot.data[node_name])
    return {resource: found[type_] for resource, type_ in RESOURCES.items() if type_ in found} or None


def table(worths: Iterable[Worth], hot_percent: float) -> list[dict[str, Any]]:
    """Return a row for each scheduler, apart for pods that were acted for and pods in shadow.

    Args:
        worths: of single placements.
        hot_percent: a node at this load, or above, is hot.
    """
    groups: dict[tuple[str, bool], list[Worth]] = {}
    for each in worths:
        groups.setdefault((each.scheduler, each.acted), []).append(each)
    return [
        {"scheduler": scheduler, "mode": "active" if acted else "shadow", **_row(group, hot_percent)}
        for (scheduler, acted), group in sorted(groups.items())
    ]


def _row(group: list[Worth], hot_percent: float) -> dict[str, Any]:
    regrets = np.array([each.regret for each in group])
    chosen, ours = (np.array([load(getattr(each, which)) for each in group]) for which in ("chosen", "ours"))
    return {
        "pods": len(group),
        "same_node": sum(each.same for each in group),
        "chosen_percent": round(float(chosen.mean()), 3),
        "best_percent": round(float(ours.mean()), 3),
        "regret": round(float(regrets.mean()), 3),
        "regret_p95": round(float(np.percentile(regrets, 95)), 3),
        "chosen_hot": int((chosen >= hot_percent).sum()),
        "best_hot": int((ours >= hot_percent).sum()),
    }
