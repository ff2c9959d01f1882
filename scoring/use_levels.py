"""What pods are known to use, learnt from others of their owner: a frozen value, given to what prepares scores.

A level is use in parts of the request. Where it is learnt from is not scoring's matter: a metrics server's history of
containers, VerticalPodAutoscaler's recommendations, a replay's past.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from scoring import pod_demand
from scoring.node_table import NodeTable
from scoring.objects import Owner, Pod
from scoring.occupancy import PlacedPod

_MOST_SUMS = 1 << 16


@dataclass(frozen=True, eq=False)
class UseLevels:
    """Levels by owner.

    Attributes:
        by_owner: owner to resource to level, where it is known.
        default: resource to the level of everybody else; 1 where nothing is said: pods use what they request.
    """

    by_owner: Mapping[Owner, Mapping[str, float]] = field(default_factory=dict)
    default: Mapping[str, float] = field(default_factory=dict)
    _sums: dict[tuple[int, str], tuple[Mapping[str, PlacedPod], float]] = field(
        default_factory=dict, init=False, repr=False
    )

    def level(self, pod: Pod, resource: str) -> float:
        """Return the level to expect of a pod."""
        default = self.default.get(resource, 1.0)
        known = None if pod.owner is None else self.by_owner.get(pod.owner)
        return default if known is None else known.get(resource, default)

    def expected_use(self, pod: Pod, resource: str) -> float:
        """Return the use to expect of a pod: its request times its level; millicores for cpu, else bytes or pieces."""
        return pod_demand.requests(pod, resource) * self.level(pod, resource)

    def expected_on(self, nodes: NodeTable, row: int, resource: str) -> float:
        """Return the use to expect of the pods in a row, added up; in the units of :meth:`expected_use`."""
        pods = nodes.occupancy.pods[row]  # replaced with every change, so its sum is good for as long as it is there
        key = id(pods), resource
        known = self._sums.get(key)
        if known is None or known[0] is not pods:
            if len(self._sums) >= _MOST_SUMS:
                self._sums.clear()
            total = sum([self.expected_use(placed.pod, resource) for placed in pods.values()])
            known = self._sums[key] = pods, total
        return known[1]


NOTHING_LEARNT = UseLevels()
