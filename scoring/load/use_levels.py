"""Expected CPU and memory use of pods, learned from other pods of the same workload (or owner, if that is unknown).

The expected use of a pod has two parts: an absolute use, which is known for learned workloads, and a level, a share of
the pod's request. A learned workload has no level, so a changed request changes nothing; pods of other workloads have
only the level of all pods. Both parts may come from any source: the watcher's learner (:meth:`UseLevels.of_workloads`),
the recommendations of VerticalPodAutoscaler, or levels by owner (:meth:`UseLevels.of`). Deviations are standard
deviations of the same two parts.

The use of pods of the same owner is assumed to rise and fall together, and the use of pods of different owners to be
independent. So the deviations of an owner's pods on a node are added up, and the squares of the owners' sums add up to
the variance of the node's use.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self, TypeVar

import numpy as np

from runtime.kubernetes import pod_demand
from runtime.kubernetes.objects import CPU, MEMORY, Kin, Pod
from scoring.arguments import ArgumentError
from scoring.arrays import Float64s, Int64s, by_row
from scoring.load.owner_index import ALL_OTHERS, OwnerIndex
from scoring.table.node_table import NodeTable
from watcher.workload_table import WorkloadTable

_NONE: Mapping[Kin, Mapping[str, float]] = {}
_MILLICORES = 1000.0
_Amounts = TypeVar("_Amounts", float, Float64s)
_ARRAYS = ("levels", "deviations", "uses", "use_deviations")


@dataclass(frozen=True, eq=False)
class UseLevels:
    """Expected use of pods by workload or owner, and its standard deviation.

    A pod's expected use is ``use + level * request``, its deviation ``use deviation + deviation * request``. The last
    element of each array stands for all other owners.

    Attributes:
        owners: index of each workload or owner in the arrays.
        levels: levels by resource, shape (owners + 1,). The pods' use of a resource that is left out is expected to
            equal their requests.
        deviations: deviations of the levels by resource, shape (owners + 1,); a resource without deviations is left
            out.
        uses: absolute use of a pod by resource, in millicores for cpu, otherwise bytes or pieces, shape (owners + 1,);
            0 for a resource that is left out.
        use_deviations: deviations of the absolute use by resource, in the same unit and shape.
        timestamp: end of the newest measurements that the levels come from, Unix seconds; None if unknown.
    """

    owners: OwnerIndex = field(default_factory=OwnerIndex)
    levels: Mapping[str, Float64s] = field(default_factory=dict)
    deviations: Mapping[str, Float64s] = field(default_factory=dict)
    uses: Mapping[str, Float64s] = field(default_factory=dict)
    use_deviations: Mapping[str, Float64s] = field(default_factory=dict)
    timestamp: float | None = None

    def __post_init__(self) -> None:
        for name in _ARRAYS:
            for resource, values in getattr(self, name).items():
                if not (np.isfinite(values) & (values >= 0)).all():
                    raise ArgumentError("UseLevels", f"{name}.{resource}", "must be finite numbers of at least 0")

    @classmethod
    def of(
        cls,
        by_owner: Mapping[Kin, Mapping[str, float]] = _NONE,
        default: Mapping[str, float] | None = None,
        deviation_by_owner: Mapping[Kin, Mapping[str, float]] = _NONE,
        default_deviation: Mapping[str, float] | None = None,
    ) -> Self:
        """Build levels from mappings.

        Args:
            by_owner: known levels, by workload or owner, and by resource.
            default: level of all other owners, by resource; 1 for a resource that is left out.
            deviation_by_owner: known deviations, by workload or owner, and by resource.
            default_deviation: deviation of all other owners, by resource. A resource that is left out has no
                deviations, even if ``deviation_by_owner`` names it.
        """
        default, default_deviation = default or {}, default_deviation or {}
        owners = list(dict.fromkeys([*by_owner, *deviation_by_owner]))
        named = {name for levels in (default, *by_owner.values()) for name in levels}

        def column(known: Mapping[Kin, Mapping[str, float]], name: str, other: float) -> Float64s:
            return np.array([*(known.get(owner, {}).get(name, other) for owner in owners), other], np.float64)

        return cls(
            OwnerIndex(owners),
            {name: column(by_owner, name, default.get(name, 1.0)) for name in named},
            {name: column(deviation_by_owner, name, other) for name, other in default_deviation.items()},
        )

    @classmethod
    def of_workloads(cls, table: WorkloadTable, previous: "UseLevels | None" = None) -> Self:
        """Return the expected use of pods: absolute for learned workloads, by the level of all pods for the others.

        Args:
            table: the learner's result.
            previous: earlier levels, whose cached sums of the pods on each node are used again.
        """
        index = None if previous is None else previous.owners
        if index is None or not index.extend(table.workloads):
            index = OwnerIndex(table.workloads)
        units, none = ((CPU, _MILLICORES), (MEMORY, 1.0)), np.zeros(len(table))
        return cls(
            index,
            {name: np.append(none, level) for (name, _), level in zip(units, table.level, strict=True)},
            {name: np.append(none, each) for (name, _), each in zip(units, table.level_deviation, strict=True)},
            {name: np.append(unit * use, 0.0) for (name, unit), use in zip(units, table.use, strict=True)},
            {name: np.append(unit * each, 0.0) for (name, unit), each in zip(units, table.deviations, strict=True)},
            table.timestamp,
        )

    def has_deviations(self, resource: str) -> bool:
        """Return whether deviations of the use of a resource are known."""
        return resource in self.deviations

    def knows(self, pod: Pod) -> bool:
        """Return whether the use of the pod's workload or owner is known."""
        return self.owners.of(pod.kin) != ALL_OTHERS

    def expected_use(self, pod: Pod, resource: str) -> float:
        """Return the expected use of a pod, in millicores for cpu, otherwise in bytes or pieces."""
        return float(self.expected_uses([pod], [resource])[0, 0])

    def expected_uses(self, pods: Sequence[Pod], resources: Sequence[str]) -> Float64s:
        """Return the expected use of several pods, shape (resources, pods), in the units of :meth:`expected_use`."""
        requests = [[pod_demand.requests(pod, resource) for pod in pods] for resource in resources]
        places = np.array([self.owners.of(pod.kin) for pod in pods], np.int64)
        use = np.array(requests, np.float64)
        for row, resource in enumerate(resources):
            use[row] = self._use(resource, places, 1.0, use[row])
        return use

    def deviation(self, owner: Kin | None, resource: str, counts: _Amounts, requests: _Amounts) -> _Amounts:
        """Return the standard deviation of the total use of a workload's or owner's pods; 0 if it is not known.

        Args:
            owner: the workload or owner.
            resource: name of the resource.
            counts: number of pods, or an array of numbers.
            requests: sum of the requests of the pods, or an array of the same shape.
        """
        deviations, uses = self.deviations.get(resource), self.use_deviations.get(resource)
        place = self.owners.of(owner)
        result = requests * (0.0 if deviations is None else deviations.item(min(place, len(deviations) - 1)))
        return result if uses is None else result + counts * uses.item(min(place, len(uses) - 1))

    def expected_on(self, nodes: NodeTable, rows: Int64s, resource: str) -> tuple[Float64s, Float64s]:
        """Return the expected use of the pods on each node, and its variance.

        Args:
            nodes: node table.
            rows: rows of the nodes, shape (k,).
            resource: name of the resource.

        Returns:
            The expected use of each node's pods, in millicores for cpu, otherwise in bytes or pieces, and the variance
            of the use, in the square of that unit; both of shape (k,).
        """
        expected, variance = self.expected_uses_on(nodes, rows, (resource,))
        return expected[0], variance[0]

    def expected_uses_on(self, nodes: NodeTable, rows: Int64s, resources: tuple[str, ...]) -> tuple[Float64s, Float64s]:
        """Return expected use and variance as :meth:`expected_on`, for several resources; shapes (resources, k)."""
        order, places, counts, requests = self.owners.on_rows(nodes, rows, resources)
        expected, variance = np.zeros((2, len(resources), len(rows)))
        for place, (resource, requested) in enumerate(zip(resources, requests, strict=True)):
            expected[place] = by_row(order, self._use(resource, places, counts, requested), len(rows))
            deviations, use_deviations = self.deviations.get(resource), self.use_deviations.get(resource)
            deviation = np.zeros_like(requested)
            if deviations is not None:
                deviation += requested * deviations.take(places, mode="clip")
            if use_deviations is not None:
                deviation += counts * use_deviations.take(places, mode="clip")
            variance[place] = by_row(order, deviation * deviation, len(rows))
        return expected, variance

    def _use(self, resource: str, places: Int64s, counts: Float64s | float, requests: Float64s) -> Float64s:
        """Return the expected use of pods whose workloads or owners have the indexes ``places`` in the arrays."""
        levels, uses = self.levels.get(resource), self.uses.get(resource)
        use = requests if levels is None else requests * levels.take(places, mode="clip")
        return use if uses is None else use + counts * uses.take(places, mode="clip")


NO_LEVELS = UseLevels()
