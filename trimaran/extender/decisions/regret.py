"""Regret of a placement: load of the chosen node minus the load that our best node would have with the pod.

    load(node)   the higher of its CPU and memory, percent of capacity, averaged over the first window that began after
                 the pod was bound, without the pods that came to the node after the decision
    regret       load(chosen) - load(best, with the pod added)                 in points; above 0 our node was better

The chosen node is the node that the pod was bound to; its load includes the pod. Our best node is the candidate that
the extender expected kube-scheduler to choose. If the pod was bound to our best node, the regret is 0.

The regret is an estimate, because the use of single pods is not known: a pod is expected to use as large a share of its
requests as all pods of the cluster together (:attr:`MeasuredWindow.levels`), and at most its requests. Two rules keep
the estimate free of bias, so that it is 0 on average if both nodes come from the same policy:

- Later pods are taken out of both loads. The chosen node has the pod, so later pods prefer the best node, which lacks
  it; with them the best node would seem hotter than it was at the decision.
- A pod that ended before its window is not counted: it would be missing in the load of the chosen node, but not in
  that of the best node.

Both loads are measured after the decision. The load that the policy chose by would not do: a node that is chosen
because it looks cool is on average warmer than it looks.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from runtime.kubernetes.objects import CPU, MEMORY
from runtime.kubernetes.pod_demand import in_tree_requests
from scoring import NodeTable, Pod
from scoring.arrays import Float64s
from scoring.load.recent_pods import reported_share
from watcher.model import MetricType, WatcherMetrics, averages

RESOURCES = {CPU: MetricType.CPU, MEMORY: MetricType.MEMORY}
Use = Mapping[str, float]
"""Use of a node by resource, percent of the node's capacity."""


@dataclass(frozen=True, slots=True)
class PlacementRegret:
    """CPU and memory use of the chosen node and of our best node after one placement, without later pods.

    Attributes:
        scheduler: scheduler name of the pod.
        active: whether kube-scheduler got our scores; False in shadow mode.
        same: whether the chosen node was our best node.
        chosen: use of the chosen node, percent by resource.
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
            "estimate": True,
            "chosen_percent": dict(self.chosen),
            "best_percent": dict(self.best),
            "regret": round(self.regret, 3),
        }


def requests(pod: Pod) -> Mapping[str, int]:
    """Return the CPU and memory requests of a pod, in millicores and bytes."""
    return {resource: in_tree_requests(pod, resource) for resource in RESOURCES}


def load(use: Use) -> float:
    """Return the load of a node: the highest use of any of its resources, percent."""
    return max(use.values())


class MeasuredWindow:
    """Measured use of the nodes in one window, and the pods that were on them.

    Args:
        snapshot: metrics of the window.
        nodes: the cluster after the window, with the pods that left during it; a table that no other thread changes.
    """

    def __init__(self, snapshot: WatcherMetrics, nodes: NodeTable) -> None:
        self._snapshot, self._nodes = snapshot, nodes
        self.bounds = snapshot.window.start, snapshot.window.end

    def covers(self, uid: str, node_name: str) -> bool:
        """Return whether a pod that was bound before the window was on a node until the end of the window."""
        placement = self._nodes.find(Pod(uid=uid))
        if placement is not None:
            return placement[0] == node_name
        if node_name not in self._nodes:
            return False
        left = self._nodes.left_since(self._times(self.bounds[1]), self._nodes.rows_of([node_name]))
        return any(departed.pod.uid == uid for _, departed in left)

    def use(self, node_name: str, since: float, own_uid: str) -> Use | None:
        """Return the CPU and memory use of a node without later pods, percent of capacity; None if it is not measured.

        Args:
            node_name: name of the node.
            since: time of the decision; the expected use of pods placed then or later is subtracted.
            own_uid: uid of the decision's pod, whose use is not subtracted.
        """
        if node_name not in self._snapshot.data or node_name not in self._nodes:
            return None
        percents = averages(self._snapshot.data[node_name])
        use = {resource: percents[type_] for resource, type_ in RESOURCES.items() if type_ in percents}
        for pod, share in self._pods_since(node_name, since):
            if pod.uid != own_uid:
                expected = self.expected_percent(requests(pod), node_name)
                use = {resource: percent - share * expected[resource] for resource, percent in use.items()}
        return use or None

    def expected_percent(self, requests: Mapping[str, int], node_name: str) -> Use:
        """Return the expected use of a pod with these requests on a node, percent of capacity by resource."""
        row = self._nodes.row(node_name)
        return {
            resource: 100 * level * requests[resource] / max(self._nodes.capacity(resource).item(row), 1)
            for resource, level in self.levels.items()
        }

    @cached_property
    def levels(self) -> Mapping[str, float]:
        """Use of all measured nodes as a share of the requests of their pods, by resource, at most 1.

        The limit matters in clusters where pods without requests and system processes use most.
        """
        used, requested = dict.fromkeys(RESOURCES, 0.0), dict.fromkeys(RESOURCES, 0)
        for row, name in enumerate(self._nodes.names):
            percents = averages(self._snapshot.data[name]) if name in self._snapshot.data else {}
            for resource, type_ in RESOURCES.items():
                if type_ in percents:
                    used[resource] += percents[type_] / 100 * self._nodes.capacity(resource).item(row)
                    requested[resource] += self._nodes.in_tree_requests(resource).item(row)
        return {resource: min(used[resource] / max(requested[resource], 1), 1.0) for resource in RESOURCES}

    def _pods_since(self, node_name: str, since: float) -> Iterable[tuple[Pod, float]]:
        """Yield the pods placed on a node at or after a time, with the share of the window that they ran."""
        nodes, rows = self._nodes, self._nodes.rows_of([node_name])
        for _, placed in nodes.placed_since(self._times(since), rows):
            yield placed.pod, reported_share(placed.placed_at, *self.bounds)
        for _, departed in nodes.left_since(self._times(self.bounds[0]), rows):
            if departed.placed_at >= since:
                since_placed, since_left = (
                    reported_share(at, *self.bounds) for at in (departed.placed_at, departed.left_at)
                )
                yield departed.pod, since_placed - since_left

    def _times(self, at: float) -> Float64s:
        return np.broadcast_to(np.float64(at), len(self._nodes))


def regret_table(regrets: Iterable[PlacementRegret], hot_percent: float) -> list[dict[str, Any]]:
    """Return the regret table: a row for each scheduler and mode (active or shadow), as JSON objects.

    Each row has the number of pods, the mean loads of the chosen nodes and of our best nodes, mean and 95th percentile
    of the regret, and the numbers of hot chosen nodes and of hot best nodes.

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
