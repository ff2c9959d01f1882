"""Moves: evict a service's pod under a budget, and start it where congestion falls most.

Every so often, while the budget has a whole pod, the best move is made: of all pods of services and all nodes the
one after which the sum over the past day, step by step, of the nodes' convex cost

    (CPU use / (target * capacity)) ^ power  +  the same of memory

would have been least, had every pod that runs now been where it is now all day. Of a step CPU counts by its mean, and
memory by its highest use: what runs out for a minute has run out. Memory's power is a steep one: what is used up to
its target does no harm. A move is made only where the cost falls by ``least_gain`` on average over the
day: the rest of the budget is left for nodes that are hot for long.
What a service's pod used before it began is taken to be its mean; a job used nothing then, for it will soon be gone. A
pod fits its new node by its requests. Jobs are never moved: they would begin anew.

They are made when :mod:`simulator.moving` says so, and as many as its budget has.
"""

from dataclasses import dataclass

import numpy as np

from scoring.arrays import Bools, Float64s, Int64s
from simulator.cluster import Cluster
from simulator.moving import Moving, Occasion
from simulator.watcher import Watcher

_TRIED_PODS = 40
_HIGHEST_LEVEL = 100.0  # its powers are finite


@dataclass(frozen=True)
class Moves(Moving):
    """By what pods are moved, and when.

    Attributes:
        history_minutes: of how long a past congestion is looked at.
        step_minutes: of what length its steps are.
        targets: of CPU and memory, in parts of capacity.
        powers: of the same.
        least_gain: by how much the cost has to fall on average; a node at its target for CPU costs 1.
    """

    history_minutes: int = 1440
    step_minutes: int = 15
    targets: tuple[float, float] = (0.8, 0.9)
    powers: tuple[int, int] = (8, 64)
    least_gain: float = 0.03

    def begin(self, cluster: Cluster, watcher: Watcher) -> "BestMoves":
        """Begin a replay."""
        return BestMoves(self, cluster, watcher)


class BestMoves:
    """Moves at work in one replay.

    Args:
        moves: what is asked for.
        cluster: what is replayed.
        watcher: what is known of the nodes' use.
    """

    def __init__(self, moves: Moves, cluster: Cluster, watcher: Watcher) -> None:
        self._moves, self._cluster = moves, cluster
        self._occasion = Occasion(moves, cluster, watcher)

    def due(self) -> list[tuple[int, int | None]]:
        """Return the moves to make now, in order: the pod's number and the row that it goes to; usually none."""
        budget = self._occasion.budget()
        if not budget:
            return []
        found = _Plan(self._moves, self._cluster).best(budget)
        self._occasion.spend(len(found))
        return found


class _Plan:
    """The nodes' past as if every pod had always been where it is now, and what moves would make of it."""

    def __init__(self, moves: Moves, cluster: Cluster) -> None:
        self._moves, self._cluster = moves, cluster
        self._numbers = [number for number in cluster.running if not cluster.is_job(number)]
        steps = max(min(moves.history_minutes, cluster.minute) // moves.step_minutes, 1)
        row = {number: place for place, number in enumerate(cluster.numbers.tolist())}
        self._row = np.array([row[cluster.running[number].node] for number in self._numbers], np.int64)
        self._pods = self._parts(self._numbers, steps)
        scale = np.array(moves.targets)[:, None] * cluster.capacity
        self._scale = scale[:, :, None]
        nodes = len(cluster.nodes)
        self._use = np.zeros((2, nodes, steps))
        self._pile(self._row, self._pods)
        others = [number for number in cluster.running if cluster.is_job(number)]
        rows = np.array([row[cluster.running[number].node] for number in others], np.int64)
        self._pile(rows, self._parts(others, steps))
        self._requests = np.array([cluster.requests(number) for number in self._numbers], np.float64)
        self._free = cluster.free

    def _pile(self, rows: Int64s, parts: Float64s) -> None:
        for resource in (0, 1):
            np.add.at(self._use[resource], rows, parts[resource])

    def best(self, count: int) -> list[tuple[int, int | None]]:
        """Return up to so many moves, each the best after those before it."""
        found: list[tuple[int, int | None]] = []
        while len(found) < count and len(self._numbers):
            pod, target = self._best()
            if target < 0:
                break
            found.append((self._numbers[pod], target))
            source, part = self._row[pod], self._pods[:, pod]
            self._use[:, source] -= part
            self._use[:, target] += part
            self._free[:, source] += self._requests[pod]
            self._free[:, target] -= self._requests[pod]
            self._row[pod] = target
        return found

    def _best(self) -> tuple[int, int]:
        """Return the best move: a pod's place and a row, -1 when none is worth it."""
        cost = self._cost(self._use, self._scale)
        relief = cost[self._row] - self._cost(self._use[:, self._row] - self._pods, self._scale[:, self._row])
        tried = np.argsort(-relief, kind="stable")[:_TRIED_PODS]
        after = self._use[:, None] + self._pods[:, tried][:, :, None]
        rise = self._cost(after, self._scale[:, None]) - cost
        fits: Bools = np.all(self._free[:, None] >= self._requests[tried].T[:, :, None], axis=0)
        fits[np.arange(len(tried)), self._row[tried]] = False
        gain = np.where(fits, relief[tried][:, None] - rise, -np.inf)
        pod, target = np.unravel_index(int(gain.argmax()), gain.shape)
        least = self._moves.least_gain * self._use.shape[2]
        return int(tried[pod]), int(target) if gain[pod, target] > max(least, 0.0) else -1

    def _cost(self, use: Float64s, scale: Float64s) -> Float64s:
        """Return the cost over the past, added up over resources and time; the first and last axes go."""
        cpu, memory = (
            whole_power(np.clip(part / full, 0, _HIGHEST_LEVEL), power).sum(axis=-1)
            for part, full, power in zip(use, scale, self._moves.powers, strict=True)
        )
        total: Float64s = cpu + memory
        return total

    def _parts(self, numbers: list[int], steps: int) -> Float64s:
        """Return what pods used in each step of the past: CPU on average, memory at most; shape (2, pods, steps)."""
        cluster, length = self._cluster, self._moves.step_minutes
        use, trace = cluster.trace.use, cluster.trace
        parts = np.zeros((2, len(numbers), steps))
        for place, number in enumerate(numbers):
            stay = cluster.running[number]
            began = cluster.began(stay)
            lived = cluster.minute - began
            first = int(use.offsets[number])
            known = min(lived // length, steps)
            if not lived:
                continue
            for resource, (level, request) in enumerate(
                ((use.cpu, trace.cpu_request_milli), (use.memory, trace.memory_request_bytes))
            ):
                past = level[first : first + lived].astype(np.float64) * float(request[number])
                if not cluster.is_job(number):
                    parts[resource, place] = past[-steps * length :].mean()
                if known:
                    minutes = past[lived - known * length :].reshape(known, length)
                    parts[resource, place, steps - known :] = minutes.max(1) if resource else minutes.mean(1)
        return parts


def whole_power(values: Float64s, power: int) -> Float64s:
    """Return values to a whole power, by squaring: several times faster than the general function."""
    result, square = np.ones_like(values), values
    while power:
        if power & 1:
            result = result * square
        power >>= 1
        if power:
            square = square * square
    return result
