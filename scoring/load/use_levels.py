"""Expected use of pods, learned from other pods of the same owner, as an immutable value that scores are prepared with.

A level is use as a share of the request; a deviation is the standard deviation of use, in the same unit. Their source
does not matter to scoring: a metrics server's history of containers, VerticalPodAutoscaler's recommendations, or the
past of a replay.

Pods of the same owner are assumed to rise and fall together, and pods of different owners to be independent. So the
deviations of an owner's pods on a node are added up, and the squares of these sums add up to the variance of the node's
use.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

import numpy as np

from runtime.kubernetes import pod_demand
from runtime.kubernetes.objects import Owner, Pod
from scoring.arrays import Float64s, Int64s, by_row
from scoring.table.node_table import NodeTable

_NONE: Mapping[Owner, Mapping[str, float]] = {}
_ALL_OTHERS = -1


class OwnerIndex:
    """Places of owners in arrays; the last place stands for all other owners and for pods without an owner.

    The requests of the pods on each row are cached by place until the row changes, so levels that are updated
    repeatedly should share an index. Threads may share it.

    Args:
        owners: the owners, in the order of their places.
    """

    def __init__(self, owners: Iterable[Owner] = ()) -> None:
        self._place: dict[Owner | None, int] = {owner: place for place, owner in enumerate(owners)}
        self._on_row: dict[tuple[int, str], tuple[Mapping[str, object], Int64s, Float64s]] = {}

    def of(self, owner: Owner | None) -> int:
        """Return an owner's place."""
        return self._place.get(owner, _ALL_OTHERS)

    def requested_on(self, nodes: NodeTable, row: int, resource: str) -> tuple[Int64s, Float64s]:
        """Return the requests of the pods in a row, summed up by owner; pods without an owner are listed one by one.

        Returns:
            The places of the owners and the amounts, both of shape (owners on the row,).
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
    """Levels by owner. :meth:`of` builds them from mappings.

    Attributes:
        owners: places of the owners in the arrays.
        levels: level of each owner by resource, shape (owners + 1,); 1 for a resource without levels, so pods use their
            requests.
        deviations: deviation of each owner by resource, shape (owners + 1,); a resource without deviations is left out.
    """

    owners: OwnerIndex = field(default_factory=OwnerIndex)
    levels: Mapping[str, Float64s] = field(default_factory=dict)
    deviations: Mapping[str, Float64s] = field(default_factory=dict)

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
            default: level of all other owners by resource; 1 for a resource that is left out.
            deviation_by_owner: known deviations, by owner and resource.
            default_deviation: deviation of all other owners by resource; a resource that is left out has no deviations,
                even if ``deviation_by_owner`` names it.
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
        """Return whether the resource has deviations."""
        return resource in self.deviations

    def level(self, owner: Owner | None, resource: str) -> float:
        """Return the expected level of an owner's pods."""
        levels = self.levels.get(resource)
        return 1.0 if levels is None else levels.item(self.owners.of(owner))

    def expected_use(self, pod: Pod, resource: str) -> float:
        """Return the expected use of a pod, its request times its level: millicores for cpu, else bytes or pieces."""
        return pod_demand.requests(pod, resource) * self.level(pod.owner, resource)

    def expected_uses(self, pods: Sequence[Pod], resources: Sequence[str]) -> Float64s:
        """Return :meth:`expected_use` of many pods, shape (resources, pods)."""
        requests = [[pod_demand.requests(pod, resource) for pod in pods] for resource in resources]
        places = np.array([self.owners.of(pod.owner) for pod in pods], np.int64)
        use = np.array(requests, np.float64)
        for row, resource in enumerate(resources):
            levels = self.levels.get(resource)
            if levels is not None:
                use[row] *= levels[places]
        return use

    def deviation(self, owner: Owner | None, resource: str) -> float:
        """Return the deviation of an owner's pods, as a share of the request."""
        deviations = self.deviations.get(resource)
        return 0.0 if deviations is None else deviations.item(self.owners.of(owner))

    def expected_on(self, nodes: NodeTable, rows: Int64s, resource: str) -> tuple[Float64s, Float64s]:
        """Return the expected use of the pods in some rows, summed up by row.

        Args:
            nodes: the table.
            rows: row numbers, shape (k,).
            resource: the resource's name.

        Returns:
            The mean, in millicores for cpu, else in bytes or pieces, and the variance, in the square of that unit; both
            of shape (k,).
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
