"""CostMovePolicy: evict a service's pod under a budget, and start it where congestion falls most.

Every few minutes, while the budget has a whole pod, the best move is made: of all pods of services and all nodes the
one after which the nodes' cost would be least, on average over what the next hours may be like. The past day tells it,
as if every pod that runs now had been where it is now all day, and minute by minute: what makes nodes hot are bursts of
a few minutes, which come again whenever they like, and of which a longer mean shows nothing. How much a pod uses beside
its bursts changes slower, so a part of each past hour's mean is replaced by that of the last hour:

    use in a past minute  +  share * (mean of the last hour - mean of the hour of that minute)

CPU costs what :class:`scoring.CongestionCost` has it cost where nothing is known but a mean. Memory costs

    (use / (target * capacity)) ^ power

by the highest use of each quarter of an hour, as it was: what runs out for a minute has run out. The power is a steep
one: what is used up to its target does no harm. A move is made only where the cost falls by ``least_gain``, on average
over the minutes: the rest of the budget is left for nodes that are hot for long.

How all that is known of pods is said in :mod:`trimaran.simulator.moving.past_use`. A pod fits its new node by its
requests. Jobs are never moved: they would begin anew.

They are made when :mod:`trimaran.simulator.moving.base` says so, and as many as its budget has.
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
# Costs are looked up, in so many steps up to the target, and for up to so many times the target.
_STEPS = 4096
_HIGHEST = 4


@dataclass(frozen=True)
class CostMovePolicy(MovePolicy):
    """By what pods are moved, and when.

    Attributes:
        history_minutes: of how long a past congestion is looked at.
        sampled_minutes: each of how many minutes is looked at.
        last_hour_share: how much of a pod's level is that of the last hour; the rest is that of the past.
        cpu: what its congestion costs.
        memory_target: in parts of capacity.
        memory_power: how fast the cost of memory rises.
        least_gain: by how much the cost has to fall on average; a node that is hot costs 1.
    """

    history_minutes: int = 1440
    sampled_minutes: int = 5
    last_hour_share: float = 0.75
    cpu: CongestedResource = CONGESTED_CPU_AND_MEMORY[0]
    memory_target: float = 0.87
    memory_power: int = 64
    min_gain: float = 0.01

    def begin(self, cluster: Cluster, watcher: SimulatedWatcher) -> "CostMover":
        """Begin a replay."""
        return CostMover(self, cluster, watcher)


class CostMover:
    """CostMovePolicy at work in one replay.

    Args:
        moves: what is asked for.
        cluster: what is replayed.
        watcher: what is known of the nodes' use.
    """

    def __init__(self, moves: CostMovePolicy, cluster: Cluster, watcher: SimulatedWatcher) -> None:
        self._moves, self._cluster = moves, cluster
        self._schedule = MoveSchedule(moves, cluster, watcher)
        levels = np.arange(_HIGHEST * _STEPS + 1) / _STEPS
        self._past = PastUse(cluster, watcher)
        self._costs = (cost_of_mean(levels, moves.cpu), levels**moves.memory_power)

    def due(self) -> list[tuple[int, int | None]]:
        """Return the moves to make now, in order: the pod's number and the row that it goes to; usually none."""
        budget = self._schedule.budget()
        if not budget or not self._cluster.running:
            return []
        minutes = self._past.known_minutes(self._moves.history_minutes)
        if not minutes:
            return []
        found = MovePlanner(self._moves, self._cluster, self._past, self._costs, minutes).best(budget)
        self._schedule.charge(len(found))
        return found


class MovePlanner:
    """The nodes' past as if every pod had always been where it is now, and what moves would make of it."""

    def __init__(
        self, moves: CostMovePolicy, cluster: Cluster, past: PastUse, costs: tuple[Float64s, Float64s], minutes: int
    ) -> None:
        self._moves, self._cluster, self._costs = moves, cluster, costs
        targets = np.array([moves.cpu.target / 100, moves.memory_target])
        self._scale = (_STEPS / (targets[:, None] * cluster.capacity))[:, :, None]
        pods = np.fromiter(cluster.running, np.int64)
        row = np.zeros(cluster.numbers.max() + 1, np.int64)
        row[cluster.numbers] = np.arange(len(cluster.nodes))
        rows = row[[run.node for run in cluster.running.values()]]
        services = ~cluster.jobs[pods]
        parts = (
            past.cpu(pods, minutes, moves.sampled_minutes, moves.last_hour_share),
            past.highest_memory(pods, minutes),
        )
        self._use = [_added_up(part, rows, len(cluster.nodes)) for part in parts]
        self._numbers, self._row = pods[services], rows[services]
        self._pods = [part[services] for part in parts]
        self._free = cluster.free

    def best(self, count: int) -> list[tuple[int, int | None]]:
        """Return up to so many moves, each the best after those before it."""
        found: list[tuple[int, int | None]] = []
        while len(found) < count and len(self._numbers):
            pod, target = self._best()
            if target < 0:
                break
            found.append((int(self._numbers[pod]), target))
            source = self._row[pod]
            for use, part in zip(self._use, self._pods, strict=True):
                use[source] -= part[pod]
                use[target] += part[pod]
            requests = self._cluster.running[found[-1][0]].requests
            self._free[:, source] += requests
            self._free[:, target] -= requests
            self._row[pod] = target
        return found

    def _best(self) -> tuple[int, int]:
        """Return the best move: a pod's place and a row, -1 when none is worth it."""
        cost = self._cost(self._use, self._scale)
        without = [use[self._row] - part for use, part in zip(self._use, self._pods, strict=True)]
        relief = cost[self._row] - self._cost(without, self._scale[:, self._row])
        tried = np.argsort(-relief, kind="stable")[:_TRIED_PODS]
        after = [use + part[tried][:, None] for use, part in zip(self._use, self._pods, strict=True)]
        rise = self._cost(after, self._scale) - cost
        requests = np.array([self._cluster.running[number].requests for number in self._numbers[tried].tolist()])
        fits: Bools = np.all(self._free[:, None] >= requests.T[:, :, None], axis=0)
        fits[np.arange(len(tried)), self._row[tried]] = False
        gain = np.where(fits, relief[tried][:, None] - rise, -np.inf)
        pod, target = np.unravel_index(int(gain.argmax()), gain.shape)
        return int(tried[pod]), int(target) if gain[pod, target] > max(self._moves.min_gain, 0.0) else -1

    def _cost(self, use: list[Float64s], scale: Float64s) -> Float64s:
        """Return the mean cost over the past, added up over resources; the last axis goes."""
        cpu, memory = (
            np.take(costs, (part * each).astype(np.int32), mode="clip").mean(axis=-1)
            for costs, part, each in zip(self._costs, use, scale, strict=True)
        )
        total: Float64s = cpu + memory
        return total


def _added_up(parts: Float64s, rows: Int64s, count: int) -> Float64s:
    """Return the sum of the parts of each row, shape (rows, what a part has)."""
    order = np.argsort(rows, kind="stable")
    found, begins = np.unique(rows[order], return_index=True)
    sums = np.zeros((count, parts.shape[1]))
    sums[found] = np.add.reduceat(parts[order], begins, axis=0)
    return sums
