"""Index of workloads and owners in arrays of expected use, and the sums of their pods on each node."""

import sys
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from runtime.kubernetes import pod_demand
from runtime.kubernetes.objects import Kin
from scoring.arrays import Float64s, Int64s
from scoring.table.node_table import NodeTable

ALL_OTHERS = sys.maxsize
"""Index of every unknown owner: beyond the end of all arrays, so that a clipped lookup returns the last element."""


class OwnersOnRows(NamedTuple):
    """Pods in the given rows of a node table, summed up by row and owner; pods without an owner are listed one by one.

    Attributes:
        order: index of each sum's row among the given rows, shape (sums,).
        places: index of each sum's owner in the owner index, shape (sums,).
        counts: number of pods in each sum, shape (sums,).
        requests: requests of these pods, added up, shape (resources, sums).
    """

    order: Int64s
    places: Int64s
    counts: Float64s
    requests: Float64s


class OwnerIndex:
    """Index of each workload, or owner if the workload is not known, in the arrays of a :class:`UseLevels`.

    The object also caches, for each row of a node table, the sums of each owner's pods until the row changes. So
    successive versions of the levels should share an index; :meth:`extend` adds owners to it. Threads may share it.

    Args:
        owners: workloads and owners in the order of the arrays.
    """

    def __init__(self, owners: Iterable[Kin] = ()) -> None:
        self._place: dict[Kin | None, int] = {owner: place for place, owner in enumerate(owners)}
        self._owners = list(self._place)
        self._on_row: dict[
            tuple[int, tuple[str, ...]], tuple[Mapping[str, object], int | None, tuple[Int64s, Float64s]]
        ] = {}

    def __len__(self) -> int:
        return len(self._owners)

    def extend(self, owners: tuple[Kin, ...]) -> bool:
        """Extend the index to ``owners``; return False, unchanged, if these do not begin with the present owners."""
        if self._owners != list(owners[: len(self._owners)]):
            return False
        for owner in owners[len(self._owners) :]:
            self._place[owner] = len(self._owners)
            self._owners.append(owner)
        return True

    def of(self, owner: Kin | None) -> int:
        """Return the index of a workload or owner; :data:`ALL_OTHERS` for an unknown one and for None."""
        return self._place.get(owner, ALL_OTHERS)

    def on_rows(self, nodes: NodeTable, rows: Int64s, resources: tuple[str, ...]) -> OwnersOnRows:
        """Return the pods in each row, summed up by owner, with their requests of the resources."""
        # A scheduler calls this for every pod, and most rows are unchanged: this loop decides the speed.
        pods_by_row, sums, size = nodes.occupancy.pods, [], len(self._owners)
        for row in rows.tolist():
            cached = self._on_row.get((row, resources))
            pods = pods_by_row[row]  # replaced with every change, so its identity validates the cache
            # Sums of known owners only stay valid when the index grows, so they are cached without its size (None).
            if cached is None or cached[0] is not pods or (cached[1] is not None and cached[1] != size):
                summed = self._summed(nodes, row, resources)
                cached = self._on_row[row, resources] = pods, size if ALL_OTHERS in summed[0] else None, summed
            sums.append(cached[2])
        if not sums:
            none = np.zeros(0, np.int64)
            return OwnersOnRows(none, none, np.zeros(0), np.zeros((len(resources), 0)))
        order = np.repeat(np.arange(len(sums)), [len(places) for places, _ in sums])
        amounts = np.concatenate([each for _, each in sums], axis=1)
        return OwnersOnRows(order, np.concatenate([places for places, _ in sums]), amounts[0], amounts[1:])

    def _summed(self, nodes: NodeTable, row: int, resources: tuple[str, ...]) -> tuple[Int64s, Float64s]:
        """Return the index of each owner with pods in a row, and the number and the requests of the owner's pods.

        The numbers and requests are one array of the shape (1 + resources, owners).
        """
        owned, pods = nodes.owners_on(row), nodes.placed_on(row)
        places = [self._place.get(owner, ALL_OTHERS) for owner in owned]
        counts = [owner_pods.count for owner_pods in owned.values()]
        requests = [[owner_pods.requests.get(name, 0) for owner_pods in owned.values()] for name in resources]
        if sum(counts) < len(pods):
            ownerless = [placed.pod for placed in pods if placed.pod.kin is None]
            places += [ALL_OTHERS] * len(ownerless)
            counts += [1] * len(ownerless)
            for name, amounts in zip(resources, requests, strict=True):
                amounts += [pod_demand.requests(pod, name) for pod in ownerless]
        return np.array(places, np.int64), np.array([counts, *requests], np.float64)
