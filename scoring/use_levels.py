"""What pods are known to use, learnt from others of their owner: a frozen value, given to what prepares scores.

A level is use in parts of the request, a deviation how far use strays from it, in the same unit. Where they are learnt
from is not scoring's matter: a metrics server's history of containers, VerticalPodAutoscaler's recommendations, a
replay's past.

Pods of one owner are taken to rise and fall together, and pods of different owners to know nothing of each other: the
deviations of an owner's pods on a node add up, and the squares of these sums are the variance of the node's use.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from scoring import pod_demand
from scoring.node_table import NodeTable
from scoring.objects import Owner, Pod
from scoring.occupancy import PlacedPod

_MOST_SUMS = 1 << 16


@dataclass(frozen=True, slots=True)
class ExpectedUse:
    """What the pods on a node should use, all in one unit: millicores for cpu, else bytes or pieces.

    Attributes:
        mean: of all of them.
        variance: of their sum, in that unit squared.
        together: owner to the deviation of its pods, added up; owners without any are left out.
    """

    mean: float
    variance: float
    together: Mapping[Owner, float]


@dataclass(frozen=True, eq=False)
class UseLevels:
    """Levels by owner.

    Attributes:
        by_owner: owner to resource to level, where it is known.
        default: resource to the level of everybody else; 1 where nothing is said: pods use what they request.
        deviation_by_owner: owner to resource to deviation, where it is known.
        default_deviation: resource to the deviation of everybody else; a resource that is not named has none at all.
    """

    by_owner: Mapping[Owner, Mapping[str, float]] = field(default_factory=dict)
    default: Mapping[str, float] = field(default_factory=dict)
    deviation_by_owner: Mapping[Owner, Mapping[str, float]] = field(default_factory=dict)
    default_deviation: Mapping[str, float] = field(default_factory=dict)
    _sums: dict[tuple[int, str], tuple[Mapping[str, PlacedPod], ExpectedUse]] = field(
        default_factory=dict, init=False, repr=False
    )
    _known: dict[tuple[str, str], tuple[dict[Owner | None, float], float]] = field(
        default_factory=dict, init=False, repr=False
    )
    _pairs: dict[str, tuple[Mapping[Owner | None, tuple[float, float]], tuple[float, float]]] = field(
        default_factory=dict, init=False, repr=False
    )

    def strays(self, resource: str) -> bool:
        """Say whether deviations are told of a resource."""
        return resource in self.default_deviation

    def level(self, pod: Pod, resource: str) -> float:
        """Return the level to expect of a pod."""
        by_owner, default = self._levels(resource)
        return by_owner.get(pod.owner, default)

    def expected_use(self, pod: Pod, resource: str) -> float:
        """Return the use to expect of a pod: its request times its level; millicores for cpu, else bytes or pieces."""
        return pod_demand.requests(pod, resource) * self.level(pod, resource)

    def expecting(self, resource: str) -> Callable[[Pod], float]:
        """Return :meth:`expected_use` for a resource, which it is looked up for once: it is asked for many pods."""
        by_owner, default = self._levels(resource)
        return lambda pod: pod_demand.requests(pod, resource) * by_owner.get(pod.owner, default)

    def deviation(self, pod: Pod, resource: str) -> float:
        """Return how far a pod's use strays from what is expected, in the units of :meth:`expected_use`."""
        by_owner, default = self._deviations(resource)
        return pod_demand.requests(pod, resource) * by_owner.get(pod.owner, default)

    def expected_on(self, nodes: NodeTable, row: int, resource: str) -> ExpectedUse:
        """Return the use to expect of the pods in a row, added up."""
        pods = nodes.occupancy.pods[row]  # replaced with every change, so its sum is good for as long as it is there
        key = id(pods), resource
        known = self._sums.get(key)
        if known is None or known[0] is not pods:
            if len(self._sums) >= _MOST_SUMS:
                self._sums.clear()
            known = self._sums[key] = pods, self._added_up([placed.pod for placed in pods.values()], resource)
        return known[1]

    def _added_up(self, pods: list[Pod], resource: str) -> ExpectedUse:
        if not self.strays(resource):
            return ExpectedUse(sum(map(self.expecting(resource), pods)), 0.0, {})
        of_owner, of_others = self._both(resource)
        together: dict[Owner, float] = {}
        mean = variance = 0.0
        for pod in pods:
            request, owner = pod_demand.requests(pod, resource), pod.owner
            level, deviation = of_owner.get(owner, of_others)
            mean += request * level
            strays = request * deviation
            if owner is None:
                variance += strays**2
            elif strays:
                together[owner] = together.get(owner, 0.0) + strays
        return ExpectedUse(mean, variance + sum([each**2 for each in together.values()]), together)

    def _levels(self, resource: str) -> tuple[dict[Owner | None, float], float]:
        """Return the level of each owner, and that of everybody else."""
        return self._of("level", resource, self.by_owner, self.default.get(resource, 1.0))

    def _deviations(self, resource: str) -> tuple[dict[Owner | None, float], float]:
        """Return the deviation of each owner, and that of everybody else."""
        return self._of("deviation", resource, self.deviation_by_owner, self.default_deviation.get(resource, 0.0))

    def _both(self, resource: str) -> tuple[Mapping[Owner | None, tuple[float, float]], tuple[float, float]]:
        """Return the level and deviation of each owner, and those of everybody else: looked up at once."""
        known = self._pairs.get(resource)
        if known is None:
            (levels, level), (deviations, deviation) = self._levels(resource), self._deviations(resource)
            each = {
                owner: (levels.get(owner, level), deviations.get(owner, deviation)) for owner in levels | deviations
            }
            known = self._pairs[resource] = each, (level, deviation)
        return known

    def _of(
        self, what: str, resource: str, by_owner: Mapping[Owner, Mapping[str, float]], default: float
    ) -> tuple[dict[Owner | None, float], float]:
        known = self._known.get((what, resource))
        if known is None:
            each: dict[Owner | None, float] = {
                owner: values[resource] for owner, values in by_owner.items() if resource in values
            }
            known = self._known[what, resource] = each, default
        return known


NOTHING_LEARNT = UseLevels()
