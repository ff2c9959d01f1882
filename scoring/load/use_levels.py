"""What pods are known to use, learnt from others of their owner: a frozen value, given to what prepares scores.

A level is use in parts of the request, a deviation how far use strays from it, in the same unit. Where they are learnt
from is not scoring's matter: a metrics server's history of containers, VerticalPodAutoscaler's recommendations, a
replay's past.

Pods of one owner are taken to rise and fall together, and pods of different owners to know nothing of each other: the
deviations of an owner's pods on a node add up, and the squares of these sums are the variance of the node's use.
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
_EVERYBODY_ELSE = -1


class OwnerIndex:
    """Owners with their places in arrays; the last place is everybody else's.

    What the pods on nodes request is kept in this order for as long as they are there, so levels that are renewed again
    and again share one of these. Threads may share it.

    Args:
        owners: in the order of their places.
    """

    def __init__(self, owners: Iterable[Owner] = ()) -> None:
        self._place: dict[Owner | None, int] = {owner: place for place, owner in enumerate(owners)}
        self._on_row: dict[tuple[int, str], tuple[Mapping[str, object], Int64s, Float64s]] = {}

    def of(self, owner: Owner | None) -> int:
        """Return an owner's place."""
        return self._place.get(owner, _EVERYBODY_ELSE)

    def requested_on(self, nodes: NodeTable, row: int, resource: str) -> tuple[Int64s, Float64s]:
        """Return what the pods in a row request, added up by owner; pods without one each by itself.

        Returns:
            The places of their owners and the amounts, both of shape (owners on the row,).
        """
        pods = nodes.occupancy.pods[row]  # replaced with every change, so what is kept is good for as long as it is
        kept = self._on_row.get((row, resource))
        if kept is None or kept[0] is not pods:
            kept = self._on_row[row, resource] = pods, *self._added_up(nodes, row, resource)
        return kept[1:]

    def _added_up(self, nodes: NodeTable, row: int, resource: str) -> tuple[Int64s, Float64s]:
        owned, pods = nodes.owners_on(row), nodes.placed_on(row)
        places = [self._place.get(owner, _EVERYBODY_ELSE) for owner in owned]
        requests = [each.requests.get(resource, 0) for each in owned.values()]
        if sum([each.count for each in owned.values()]) < len(pods):
            alone = [pod_demand.requests(each.pod, resource) for each in pods if each.pod.owner is None]
            places += [_EVERYBODY_ELSE] * len(alone)
            requests += alone
        return np.array(places, np.int64), np.array(requests, np.float64)


@dataclass(frozen=True, eq=False)
class UseLevels:
    """Levels by owner. :meth:`of` reads them from mappings.

    Attributes:
        owners: the places of owners in the arrays.
        levels: resource to the level of each owner, shape (owners + 1,); 1 for a resource that is not named: pods use
            what they request.
        deviations: resource to the deviation of each owner, shape (owners + 1,); a resource that is not named has none.
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
        """Make them of mappings.

        Args:
            by_owner: owner to resource to level, where it is known.
            default: resource to the level of everybody else; 1 where nothing is said.
            deviation_by_owner: owner to resource to deviation, where it is known.
            default_deviation: resource to the deviation of everybody else; a resource that is not named has none at
                all.
        """
        default, default_deviation = default or {}, default_deviation or {}
        owners = list(dict.fromkeys([*by_owner, *deviation_by_owner]))
        named = {name for each in (default, *by_owner.values()) for name in each}

        def column(known: Mapping[Owner, Mapping[str, float]], name: str, other: float) -> Float64s:
            return np.array([*(known.get(owner, {}).get(name, other) for owner in owners), other], np.float64)

        return cls(
            OwnerIndex(owners),
            {name: column(by_owner, name, default.get(name, 1.0)) for name in named},
            {name: column(deviation_by_owner, name, other) for name, other in default_deviation.items()},
        )

    def has_deviations(self, resource: str) -> bool:
        """Say whether deviations are told of a resource."""
        return resource in self.deviations

    def level(self, owner: Owner | None, resource: str) -> float:
        """Return the level to expect of an owner's pods."""
        levels = self.levels.get(resource)
        return 1.0 if levels is None else levels.item(self.owners.of(owner))

    def expected_use(self, pod: Pod, resource: str) -> float:
        """Return the use to expect of a pod: its request times its level; millicores for cpu, else bytes or pieces."""
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
        """Return how far the use of an owner's pods strays from the level."""
        deviations = self.deviations.get(resource)
        return 0.0 if deviations is None else deviations.item(self.owners.of(owner))

    def expected_on(self, nodes: NodeTable, rows: Int64s, resource: str) -> tuple[Float64s, Float64s]:
        """Return the use to expect of the pods in some rows, added up.

        Args:
            nodes: the table.
            rows: row numbers, shape (k,).
            resource: the resource's name.

        Returns:
            The mean, in millicores for cpu, else bytes or pieces, and the variance, in that unit squared; both of shape
            (k,).
        """
        of_each = [self.owners.requested_on(nodes, row, resource) for row in rows.tolist()]
        row = np.repeat(np.arange(len(rows)), [len(places) for places, _ in of_each])
        places = np.concatenate([places for places, _ in of_each]) if of_each else row
        requests = np.concatenate([requests for _, requests in of_each]) if of_each else np.zeros(0)
        levels, deviations = self.levels.get(resource), self.deviations.get(resource)
        use = requests if levels is None else requests * levels[places]
        strays = np.zeros_like(requests) if deviations is None else requests * deviations[places]
        return by_row(row, use, len(rows)), by_row(row, strays * strays, len(rows))


NO_LEVELS = UseLevels()
