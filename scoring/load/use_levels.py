"""Expected CPU and memory use of pods, learned from other pods of the same owner (controller, such as a ReplicaSet).

A level is the mean use of an owner's pods as a share of their requests. A deviation is the standard deviation of that
share. The levels may come from any source: the containers' history in a metrics server, the recommendations of
VerticalPodAutoscaler, or the earlier part of a trace that a simulation replays.

The use of pods of the same owner is assumed to rise and fall together, and the use of pods of different owners to be
independent. So the deviations of an owner's pods on a node are added up, and the squares of the owners' sums add up to
the variance of the node's use.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

import numpy as np

from runtime.kubernetes import pod_demand
from runtime.kubernetes.objects import Owner, Pod
from scoring.arguments import ArgumentError
from scoring.arrays import Float64s, Int64s, by_row
from scoring.table.node_table import NodeTable

_NONE: Mapping[Owner, Mapping[str, float]] = {}
_ALL_OTHERS = -1


class OwnerIndex:
    """Index of each owner in the arrays of levels; -1, the last index, stands for all other owners.

    The object also caches, for each row of a node table, the sum of the requests of each owner's pods until the row
    changes. So successive versions of the levels should share an index. Threads may share it.

    Args:
        owners: owners in the order of the arrays.
    """

    def __init__(self, owners: Iterable[Owner] = ()) -> None:
        self._place: dict[Owner | None, int] = {owner: place for place, owner in enumerate(owners)}
        self._on_row: dict[tuple[int, str], tuple[Mapping[str, object], Int64s, Float64s]] = {}

    def of(self, owner: Owner | None) -> int:
        """Return the index of an owner; -1 for an unknown owner and for None."""
        return self._place.get(owner, _ALL_OTHERS)

    def requested_on(self, nodes: NodeTable, row: int, resource: str) -> tuple[Int64s, Float64s]:
        """Return the requests of the pods in a row, summed up by owner; pods without an owner are listed one by one.

        Args:
            nodes: node table.
            row: number of the row.
            resource: name of the resource.

        Returns:
            The index of each owner, and the sum of the requests of its pods, both of shape (owners on the row,).
        """
        pods = nodes.occupancy.pods[row]  # replaced with every change, so its identity validates the cache
        cached = self._on_row.get((row, resource))
        if cached is None or cached[0] is not pods:
            cached = self._on_row[row, resource] = pods, *self._summed(nodes, row, resource)
        return cached[1:]

    def _summed(self, nodes: NodeTable, row: int, resource: str) -> tuple[Int64s, Float64s]:
        owned, pods = nodes.owners_on(row), nodes.placed_on(row)
        places = [self._place.get(owner, _ALL_OTHERS) for owner in owned]
        requests = [owner_pods.requests.get(resource, 0) for owner_pods in owned.values()]
        if sum([owner_pods.count for owner_pods in owned.values()]) < len(pods):
            ownerless = [pod_demand.requests(placed.pod, resource) for placed in pods if placed.pod.owner is None]
            places += [_ALL_OTHERS] * len(ownerless)
            requests += ownerless
        return np.array(places, np.int64), np.array(requests, np.float64)


@dataclass(frozen=True, eq=False)
class UseLevels:
    """Expected use of pods by owner: levels (mean use as a share of the request) and deviations of that share.

    Attributes:
        owners: index of each owner in the arrays.
        levels: levels by resource, shape (owners + 1,). The pods' use of a resource that is left out is expected to
            equal their requests.
        deviations: deviations by resource, shape (owners + 1,); a resource without deviations is left out.
    """

    owners: OwnerIndex = field(default_factory=OwnerIndex)
    levels: Mapping[str, Float64s] = field(default_factory=dict)
    deviations: Mapping[str, Float64s] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, by_resource in (("levels", self.levels), ("deviations", self.deviations)):
            for resource, values in by_resource.items():
                if not (np.isfinite(values) & (values >= 0)).all():
                    raise ArgumentError("UseLevels", f"{name}.{resource}", "must be finite numbers of at least 0")

    @classmethod
    def of(
        cls,
        by_owner: Mapping[Owner, Mapping[str, float]] = _NONE,
        default: Mapping[str, float] | None = None,
        deviation_by_owner: Mapping[Owner, Mapping[str, float]] = _NONE,
        default_deviation: Mapping[str, float] | None = None,
    ) -> Self:
        """Build levels from mappings.

        Args:
            by_owner: known levels, by owner and resource.
            default: level of all other owners, by resource; 1 for a resource that is left out.
            deviation_by_owner: known deviations, by owner and resource.
            default_deviation: deviation of all other owners, by resource. A resource that is left out has no
                deviations, even if ``deviation_by_owner`` names it.
        """
        default, default_deviation = default or {}, default_deviation or {}
        owners = list(dict.fromkeys([*by_owner, *deviation_by_owner]))
        named = {name for levels in (default, *by_owner.values()) for name in levels}

        def column(known: Mapping[Owner, Mapping[str, float]], name: str, other: float) -> Float64s:
            return np.array([*(known.get(owner, {}).get(name, other) for owner in owners), other], np.float64)

        return cls(
            OwnerIndex(owners),
            {name: column(by_owner, name, default.get(name, 1.0)) for name in named},
            {name: column(deviation_by_owner, name, other) for name, other in default_deviation.items()},
        )

    def has_deviations(self, resource: str) -> bool:
        """Return whether deviations of the use of a resource are known."""
        return resource in self.deviations

    def level(self, owner: Owner | None, resource: str) -> float:
        """Return the expected use of an owner's pods as a share of their requests; 1 if it is not known."""
        levels = self.levels.get(resource)
        return 1.0 if levels is None else levels.item(self.owners.of(owner))

    def expected_use(self, pod: Pod, resource: str) -> float:
        """Return the expected use of a pod: its request times its owner's level.

        The unit is millicores for cpu, otherwise bytes or pieces.
        """
        return pod_demand.requests(pod, resource) * self.level(pod.owner, resource)

    def expected_uses(self, pods: Sequence[Pod], resources: Sequence[str]) -> Float64s:
        """Return the expected use of many pods, as :meth:`expected_use` for one, shape (resources, pods)."""
        requests = [[pod_demand.requests(pod, resource) for pod in pods] for resource in resources]
        places = np.array([self.owners.of(pod.owner) for pod in pods], np.int64)
        use = np.array(requests, np.float64)
        for row, resource in enumerate(resources):
            levels = self.levels.get(resource)
            if levels is not None:
                use[row] *= levels[places]
        return use

    def deviation(self, owner: Owner | None, resource: str) -> float:
        """Return the standard deviation of the use of an owner's pods, as a share of the request; 0 if not known."""
        deviations = self.deviations.get(resource)
        return 0.0 if deviations is None else deviations.item(self.owners.of(owner))

    def expected_on(self, nodes: NodeTable, rows: Int64s, resource: str) -> tuple[Float64s, Float64s]:
        """Return the expected use of the pods on some nodes, and its variance.

        Args:
            nodes: node table.
            rows: rows of the nodes, shape (k,).
            resource: name of the resource.

        Returns:
            The expected use of each node's pods, in millicores for cpu, otherwise in bytes or pieces, and the variance
            of the use, in the square of that unit; both of shape (k,).
        """
        # One entry per row and owner, all rows joined.
        by_owner = [self.owners.requested_on(nodes, row, resource) for row in rows.tolist()]
        row = np.repeat(np.arange(len(rows)), [len(places) for places, _ in by_owner])
        places = np.concatenate([places for places, _ in by_owner]) if by_owner else row
        requests = np.concatenate([requests for _, requests in by_owner]) if by_owner else np.zeros(0)
        levels, deviations = self.levels.get(resource), self.deviations.get(resource)
        use = requests if levels is None else requests * levels[places]
        deviation = np.zeros_like(requests) if deviations is None else requests * deviations[places]
        return by_row(row, use, len(rows)), by_row(row, deviation * deviation, len(rows))


NO_LEVELS = UseLevels()
