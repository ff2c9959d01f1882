"""Scores of NodeResourceTopologyMatch: how much a pod leaves free in NUMA nodes, or how many of them it needs.

For LeastAllocated, MostAllocated and BalancedAllocation, a NUMA node's score is the weighted mean over the requested
resources. A node's score is the least of these above 0; where the topology manager aligns containers, the mean over
containers. Amounts are compared exactly, and CPU is scored in whole cores, rounded up, as upstream does.
Source: kubernetes-sigs/scheduler-plugins v0.33.5, pkg/noderesourcetopology.
"""

from collections.abc import Callable, Mapping
from itertools import combinations
from typing import Final

import numpy as np

from runtime.kubernetes.objects import CPU, MAX_AMOUNT
from runtime.kubernetes.quantity import MAX_INT64
from scoring.arrays import Bools, Int64s
from scoring.normalization import MAX_NODE_SCORE
from trimaran.scheduler.plugins.numa.node_topology import MOST_ZONES
from trimaran.scheduler.plugins.numa.requests import Amounts, NumaRequests
from trimaran.scheduler.plugins.numa.zones import Zones

Strategy = Callable[[Amounts, Zones, Mapping[str, int]], Int64s]
"""Function of requests, zones and weights by resource that returns the score of each zone, shape (nodes, zones)."""
_FAR = np.iinfo(np.int64).max
_MAX_FREE = MAX_INT64 // MOST_ZONES


def least_allocated(amounts: Amounts, zones: Zones, weights: Mapping[str, int]) -> Int64s:
    """Score zones by the share that stays free."""
    return _weighted(amounts, zones, weights, lambda requested, free: (free - requested) * MAX_NODE_SCORE // free)


def most_allocated(amounts: Amounts, zones: Zones, weights: Mapping[str, int]) -> Int64s:
    """Score zones by the share that is requested."""
    return _weighted(amounts, zones, weights, lambda requested, free: requested * MAX_NODE_SCORE // free)


def balanced_allocation(amounts: Amounts, zones: Zones, weights: Mapping[str, int]) -> Int64s:  # noqa: ARG001
    """Score zones by how equal the requested shares of the resources are."""
    shares = np.array([_share(name, amount, zones) for name, amount in amounts.items()])
    variance = shares.var(axis=0, ddof=1) if len(shares) > 1 else np.zeros(zones.exists.shape)
    # If the pod does not fit, the shares are unbounded, and their variance may overflow an integer.
    return np.where((shares > 1).any(axis=0), 0.0, (1 - variance) * MAX_NODE_SCORE).astype(np.int64)


STRATEGIES: Final[Mapping[str, Strategy]] = {
    "LeastAllocated": least_allocated,
    "MostAllocated": most_allocated,
    "BalancedAllocation": balanced_allocation,
}
"""Strategies that score zone by zone, by name."""


def zone_scores(requests: NumaRequests, zones: Zones, strategy: Strategy, weights: Mapping[str, int]) -> Int64s:
    """Return the score of each node by a strategy that scores zone by zone, shape (nodes,).

    Args:
        requests: requests of the pod.
        zones: zones of the nodes.
        strategy: the strategy.
        weights: weights by resource; 1 for resources that are not listed.
    """
    whole = _least(strategy(requests.pod, zones, weights), zones)
    each = [_least(strategy(amounts, zones, weights), zones) for amounts in (*requests.init, *requests.app)]
    containers = np.array(each).mean(axis=0).astype(np.int64)
    return np.where(zones.known & zones.aligns, np.where(zones.by_pod, whole, containers), 0)


def fewest_zones(requests: NumaRequests, zones: Zones) -> Int64s:
    """Return the score of each node by the number of zones that the pod needs there, shape (nodes,).

    Args:
        requests: requests of the pod.
        zones: zones of the nodes; their amounts are changed.
    """
    step = MAX_NODE_SCORE // zones.most
    count = np.zeros(len(zones.known), np.int64)
    nearest = np.ones(len(zones.known), np.bool_)
    fits = zones.known.copy()
    containers = (*requests.init, *requests.app)
    for amounts, where in ((requests.pod, zones.by_pod), *((each, ~zones.by_pod) for each in containers)):
        needs = where & zones.known & zones.has_any(amounts)
        if not needs.any():
            continue
        needed, is_nearest, chosen = _needed_zones(amounts, zones)
        fits &= ~needs | (needed > 0)
        nearest &= ~needs | is_nearest
        count = np.where(needs, np.maximum(count, needed), count)
        _take(amounts, zones, chosen & (needs & ~zones.by_pod)[:, np.newaxis])
    score = MAX_NODE_SCORE - count * step + np.where(nearest, step // 2, 0)
    return np.where(fits, np.where(count > 0, score, MAX_NODE_SCORE), 0)


def _needed_zones(amounts: Amounts, zones: Zones) -> tuple[Int64s, Bools, Bools]:
    """Return the least number of zones that together hold the amounts, shape (nodes,); 0 if no zones do.

    Also return whether no other zones of this number are nearer to each other, shape (nodes,), and the zones' mask.
    """
    size = zones.exists.shape[1]
    count, nearest = np.zeros(len(zones.known), np.int64), np.zeros(len(zones.known), np.bool_)
    chosen = np.zeros(zones.exists.shape, np.bool_)
    for length in range(1, size + 1):
        least = best = np.full(len(zones.known), _FAR)
        picked = np.zeros(zones.exists.shape, np.bool_)
        for places in map(list, combinations(range(size), length)):
            exists = zones.exists[:, places].all(axis=1)
            distance = np.where(exists, zones.costs[:, places][:, :, places].sum(axis=(1, 2)), _FAR)
            least = np.minimum(least, distance)
            better = exists & _holds(amounts, zones, places) & (distance < best)
            best = np.where(better, distance, best)
            picked[better] = False
            picked[np.flatnonzero(better)[:, np.newaxis], places] = True
        new = (count == 0) & (best < _FAR)
        count[new], nearest[new], chosen[new] = length, (best == least)[new], picked[new]
        if (count > 0).all():
            break
    return count, nearest, chosen


def _holds(amounts: Amounts, zones: Zones, places: list[int]) -> Bools:
    """Return whether the zones at ``places`` all have the resources, and together enough of each, shape (nodes,)."""
    fits = np.ones(len(zones.known), np.bool_)
    for resource, amount in amounts.items():
        fits &= zones.having(resource)[:, places].all(axis=1)
        free = np.minimum(zones.of(resource)[:, places], _MAX_FREE)  # so that the sum fits 64 bits
        fits &= free.sum(axis=1) >= min(amount, _MAX_FREE)
    return fits


def _take(amounts: Amounts, zones: Zones, chosen: Bools) -> None:
    """Subtract amounts from the chosen zones, in their order."""
    for resource, amount in amounts.items():
        if resource not in zones.amounts:
            continue
        free = zones.amounts[resource]
        left = np.full(len(free), amount)
        for place in range(free.shape[1]):
            taken = np.where(chosen[:, place], np.minimum(left, free[:, place]), 0)
            free[:, place] -= taken
            left = left - taken


def _weighted(
    amounts: Amounts, zones: Zones, weights: Mapping[str, int], score: Callable[[int, Int64s], Int64s]
) -> Int64s:
    """Return the weighted mean of the scores of the resources, shape (nodes, zones)."""
    total, weight_sum = np.zeros(zones.exists.shape, np.int64), 0
    for name, amount in amounts.items():
        weight = max(1, weights.get(name, 1))
        free = zones.of(name)
        counted = np.clip(_whole(name, free), 1, MAX_AMOUNT)  # 100 times as much fits 64 bits
        scored = score(min(_units(name, amount), MAX_AMOUNT), counted)
        total += weight * np.where((free > 0) & (free >= amount), scored, 0)
        weight_sum += weight
    return total // max(1, weight_sum)


def _share(name: str, amount: int, zones: Zones) -> "np.typing.NDArray[np.float64]":
    free = _whole(name, zones.of(name))
    return np.where(free == 0, 1.0, _units(name, amount) / np.maximum(free, 1))


def _least(scores: Int64s, zones: Zones) -> Int64s:
    """Return the least score above 0 among each node's zones, 0 if there is none, shape (nodes,)."""
    least = np.where(zones.exists & (scores > 0), scores, _FAR).min(axis=1, initial=_FAR)
    return np.where(least < _FAR, least, 0)


def _units(name: str, amount: int) -> int:
    """Return an amount in whole cores, bytes or pieces, rounded up: ``Quantity.Value`` of Kubernetes."""
    return -(-amount // 1000) if name == CPU else amount


def _whole(name: str, amounts: Int64s) -> Int64s:
    return -(-amounts // 1000) if name == CPU else amounts
