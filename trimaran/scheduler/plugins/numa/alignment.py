"""Filter of NodeResourceTopologyMatch: nodes where each container, or the whole pod, fits into a single NUMA node."""

from collections.abc import Mapping
from typing import Final

import numpy as np

from scoring.arrays import Bools, Int64s
from trimaran.scheduler.plugins.numa.requests import Amounts, NumaRequests
from trimaran.scheduler.plugins.numa.zones import Zones, is_affine, is_extended

_NOT_IN_ZONES: Final = frozenset({"ephemeral-storage", "storage"})
ALIGNED, NO_INIT_CONTAINER, NO_CONTAINER, NO_POD = range(4)
REASONS: Final = ("", "cannot align init container", "cannot align container", "cannot align pod")


def align(requests: NumaRequests, zones: Zones, allocatable: Mapping[str, Int64s]) -> Int64s:
    """Return for each node ``ALIGNED``, or the constant for what fits into no NUMA node, shape (nodes,).

    Args:
        requests: requests of the pod.
        zones: zones of the nodes; their amounts are changed.
        allocatable: allocatable amounts of the nodes by resource that the pod requests, shape (nodes,).
    """
    result = np.full(len(zones.known), ALIGNED, np.int64)
    acts = zones.known & zones.aligns
    by_pod, by_container = acts & zones.by_pod, acts & ~zones.by_pod
    if by_pod.any():
        fits, _ = _fit(requests.pod, zones, allocatable, guaranteed=requests.guaranteed)
        result[by_pod & ~fits] = NO_POD
    if not by_container.any():
        return result
    for each in requests.init:  # they run one after the other, before the containers
        fits, _ = _fit(each, zones, allocatable, guaranteed=requests.guaranteed)
        result[by_container & ~fits & (result == ALIGNED)] = NO_INIT_CONTAINER
    for each in requests.app:
        fits, places = _fit(each, zones, allocatable, guaranteed=requests.guaranteed)
        result[by_container & ~fits & (result == ALIGNED)] = NO_CONTAINER
        _subtract(each, zones, places, by_container & fits, guaranteed=requests.guaranteed)
    return result


def _fit(
    amounts: Amounts, zones: Zones, allocatable: Mapping[str, Int64s], *, guaranteed: bool
) -> tuple[Bools, Int64s]:
    """Return whether the amounts fit into a single zone, and the index of the first such zone, shape (nodes,)."""
    suits = zones.exists.copy()
    possible = np.ones(len(zones.known), np.bool_)
    is_limited = np.zeros(len(zones.known), np.bool_)
    for resource, amount in amounts.items():
        if not amount:
            continue
        possible &= allocatable[resource] > 0
        has = zones.having(resource)
        enough = has.copy() if is_affine(resource) and not guaranteed else has & (zones.of(resource) >= amount)
        in_zones = np.asarray(has.any(axis=1))
        if resource in _NOT_IN_ZONES or is_extended(resource):
            enough |= ~in_zones[:, np.newaxis]  # a resource of the node that its zones do not list
            is_limited |= in_zones
        else:
            is_limited[:] = True
        suits &= enough
    return possible & (suits.any(axis=1) | ~is_limited), suits.argmax(axis=1)


def _subtract(amounts: Amounts, zones: Zones, places: Int64s, where: Bools, *, guaranteed: bool) -> None:
    """Subtract amounts from one zone of each node.

    Args:
        amounts: amounts to subtract.
        zones: zones; changed.
        places: index of the zone on each node, shape (nodes,).
        where: nodes to change, shape (nodes,).
        guaranteed: whether the pod is Guaranteed, so that it gets exclusive CPUs and memory.
    """
    rows = np.flatnonzero(where)
    for resource, amount in amounts.items():
        if amount and resource in zones.amounts and (guaranteed or not is_affine(resource)):
            has = zones.has[resource][rows, places[rows]]
            zones.amounts[resource][rows[has], places[rows[has]]] -= amount
