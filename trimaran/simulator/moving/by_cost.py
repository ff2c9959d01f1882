"""Moves by congestion cost: move pods of services, under a budget, to the nodes where the total cost falls most.

A search picks the best move among all pods of services and all nodes: the one with the lowest cost of all nodes
afterwards, averaged over the past day. The past is computed as if every running pod had been on its current node all
day. It is used minute by minute, because nodes get hot by bursts of a few minutes, which recur at any time and which a
longer mean hides. The level between bursts changes more slowly, so a share of each past hour's mean is replaced by the
mean of the last hour:

    use in a past minute  +  share * (mean of the last hour - mean of the hour of that minute)

The cost of CPU is that of :class:`scoring.CongestionCost` for a known mean without deviation. The cost of memory is

    (use / (target * capacity)) ^ power

of the highest use in each quarter of an hour, because a short peak is enough to run out of memory. The power is steep:
use below the target costs next to nothing. A move must lower the cost by ``min_gain`` on average over the minutes, so
that budget remains for nodes that are hot for long.

:mod:`trimaran.simulator.moving.past_use` computes the past use, and :mod:`trimaran.simulator.moving.base` the schedule
and the budget. A pod must fit its new node by its requests. Jobs are never moved, because they would start over.
"""

from dataclasses import dataclass

import numpy as np

from scoring.arrays import Bools, Float64s, Int64s
from scoring.plugins.congestion_cost import CONGESTED_CPU_AND_MEMORY, CongestedResource, cost_of_mean
from trimaran.simulator.cluster import Cluster
from trimaran.simulator.moving.base import MovePolicy, MoveSchedule
from trimaran.simulator.moving.past_use import PastUse
from trimaran.simulator.simulated_watcher import SimulatedWatcher

_TRIED_PODS = 40
# Costs are tabulated, with this many steps up to the target, up to this multiple of the target.
_STEPS = 4096
_HIGHEST = 4


@dataclass(frozen=True)
class CostMovePolicy(MovePolicy):
    """Settings of moves by congestion cost.

    Attributes:
        history_minutes: length of the past over which cost is averaged.
        sampled_minutes: interval between the past minutes in which CPU use is sampled.
        last_hour_share: share of each past hour's mean use that is replaced by the last hour's mean, from 0 to 1.
        cpu: cost function of CPU use.
        memory_target: target of memory use, as a share of capacity.
        memory_power: exponent of the cost of memory.
        min_gain: least reduction of the average cost for a move; a hot node costs 1.
    """

    history_minutes: int = 1440
    sampled_minutes: int = 5
    last_hour_share: float = 0.75
    cpu: CongestedResource = CONGESTED_CPU_AND_MEMORY[0]
    memory_target: float = 0.87
    memory_power: int = 64
    min_gain: float = 0.01

    def begin(self, cluster: Cluster, watcher: SimulatedWatcher) -> "CostMover":
        """Return a mover for one replay."""
        return CostMover(self, cluster, watcher)


class CostMover:
    """Mover by congestion cost in one replay.

    Args:
        policy: the settings.
        cluster: the simulated cluster.
        watcher: the nodes' metrics.
    """

    def __init__(self, policy: CostMovePolicy, cluster: Cluster, watcher: SimulatedWatcher) -> None:
        self._policy, self._cluster = policy, cluster
        self._schedule = MoveSchedule(policy, cluster, watcher)
        levels = np.arange(_HIGHEST * _STEPS + 1) / _STEPS
        self._past = PastUse(cluster, watcher)
        self._costs = (cost_of_mean(levels, policy.cpu), levels**policy.memory_power)

    def due(self) -> list[tuple[int, int | None]]:
        """Return the moves to make now, in order; empty in most minutes.

        Each move is the number of a pod, and the row of its new node in the cluster's node table.
        """
        budget = self._schedule.budget()
        if not budget or not self._cluster.running:
            return []
        minutes = self._past.known_minutes(self._policy.history_minutes)
        if not minutes:
            return []
        moves = MovePlanner(self._policy, self._cluster, self._past, self._costs, minutes).best(budget)
        self._schedule.charge(len(moves))
        return moves


class MovePlanner:
    """Search for the best moves. It assumes that in the past every pod was already on its current node.

    Args:
        policy: the settings.
        cluster: the simulated cluster.
        past: past use of the pods.
        costs: tables of the cost of CPU and memory by use, in steps of the target.
        minutes: length of the past.
    """

    def __init__(
        self, policy: CostMovePolicy, cluster: Cluster, past: PastUse, costs: tuple[Float64s, Float64s], minutes: int
    ) -> None:
        self._policy, self._cluster, self._costs = policy, cluster, costs
        targets = np.array([policy.cpu.target / 100, policy.memory_target])
        self._scale = (_STEPS / (targets[:, None] * cluster.capacity))[:, :, None]

        # The row of each running pod's node.
        pods = np.fromiter(cluster.running, np.int64)
        row = np.zeros(cluster.numbers.max() + 1, np.int64)
        row[cluster.numbers] = np.arange(len(cluster.nodes))
        rows = row[[run.node for run in cluster.running.values()]]

        # Each node's past use is the sum over its pods; only pods of services are candidates.
        pod_use = (
            past.cpu(pods, minutes, policy.sampled_minutes, policy.last_hour_share),
            past.highest_memory(pods, minutes),
        )
        self._use = [_sum_by_row(use, rows, len(cluster.nodes)) for use in pod_use]
        services = ~cluster.jobs[pods]
        self._numbers, self._row = pods[services], rows[services]
        self._pod_use = [use[services] for use in pod_use]
        self._free = cluster.free

    def best(self, count: int) -> list[tuple[int, int | None]]:
        """Return at most ``count`` moves, in order; each lowers the cost most after the previous moves."""
        moves: list[tuple[int, int | None]] = []
        while len(moves) < count and len(self._numbers):
            pod, target = self._best()
            if target < 0:
                break
            number, source = int(self._numbers[pod]), self._row[pod]
            moves.append((number, target))

            # Apply the move to the nodes' past and free capacity.
            for use, pod_use in zip(self._use, self._pod_use, strict=True):
                use[source] -= pod_use[pod]
                use[target] += pod_use[pod]
            requests = self._cluster.running[number].requests
            self._free[:, source] += requests
            self._free[:, target] -= requests
            self._row[pod] = target
        return moves

    def _best(self) -> tuple[int, int]:
        """Return the move that lowers the cost most: a pod's index and the row of its new node.

        The row is -1 if no move lowers the cost by at least ``min_gain``.
        """
        # Relief: reduction of the current node's cost without the pod. Only the pods with the largest are tried.
        cost = self._cost(self._use, self._scale)
        without = [use[self._row] - pod_use for use, pod_use in zip(self._use, self._pod_use, strict=True)]
        relief = cost[self._row] - self._cost(without, self._scale[:, self._row])
        tried = np.argsort(-relief, kind="stable")[:_TRIED_PODS]

        # Rise: increase of each other node's cost with the pod.
        after = [use + pod_use[tried][:, None] for use, pod_use in zip(self._use, self._pod_use, strict=True)]
        rise = self._cost(after, self._scale) - cost

        # Gain: relief minus rise, on other nodes that have room for the pod's requests.
        requests = np.array([self._cluster.running[number].requests for number in self._numbers[tried].tolist()])
        fits: Bools = np.all(self._free[:, None] >= requests.T[:, :, None], axis=0)
        fits[np.arange(len(tried)), self._row[tried]] = False
        gain = np.where(fits, relief[tried][:, None] - rise, -np.inf)
        pod, target = np.unravel_index(int(gain.argmax()), gain.shape)
        return int(tried[pod]), int(target) if gain[pod, target] > max(self._policy.min_gain, 0.0) else -1

    def _cost(self, use: list[Float64s], scale: Float64s) -> Float64s:
        """Return the cost averaged over the past (the last axis) and summed over resources."""
        cpu, memory = (
            np.take(table, (of_resource * steps).astype(np.int32), mode="clip").mean(axis=-1)
            for table, of_resource, steps in zip(self._costs, use, scale, strict=True)
        )
        return np.asarray(cpu + memory)


def _sum_by_row(use: Float64s, rows: Int64s, count: int) -> Float64s:
    """Return the sum of pods' use by row.

    Args:
        use: use of each pod over the past, shape (pods, k).
        rows: each pod's row, shape (pods,).
        count: number of rows.

    Returns:
        Shape (count, k).
    """
    order = np.argsort(rows, kind="stable")
    with_pods, starts = np.unique(rows[order], return_index=True)
    sums = np.zeros((count, use.shape[1]))
    sums[with_pods] = np.add.reduceat(use[order], starts, axis=0)
    return sums
