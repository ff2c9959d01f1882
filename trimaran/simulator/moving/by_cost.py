"""Moves by congestion cost: move pods of services, under a budget, to the nodes where the total cost falls most.

The moves are those of :class:`~trimaran.planning.moves.MovePlanner`, for the past use that
:mod:`~trimaran.planning.moves.past` expects. The past is computed as if every running pod had been on its current node
all day. A move must lower the cost by ``min_gain`` on average over the past, so that budget remains for nodes that are
hot for long. A pod must fit its new node by its requests. Jobs are never moved, because they would start over.

:mod:`trimaran.simulator.moving.past_use` keeps the past use, and :mod:`trimaran.simulator.moving.base` the schedule and
the budget.
"""

from dataclasses import dataclass, field

import numpy as np

from scoring.arrays import Int64s
from trimaran.planning.moves import GainRule, Move, MoveCosts, MovePlanner, MoveProblem
from trimaran.planning.moves.correction import RecentMove
from trimaran.planning.moves.gains import HOUR_STEPS, PERIOD_STEPS
from trimaran.planning.moves.past import expected_cpu, expected_memory
from trimaran.simulator.cluster import Cluster
from trimaran.simulator.moving.base import MovePolicy, MoveSchedule
from trimaran.simulator.moving.past_use import PastUse
from trimaran.simulator.simulated_watcher import SimulatedWatcher


@dataclass(frozen=True)
class CostMovePolicy(MovePolicy):
    """Settings of moves by congestion cost.

    Attributes:
        history_minutes: length of the past over which cost is averaged, at most a day.
        last_hour_share: share of each past hour's mean use that is replaced by the last hour's mean, from 0 to 1.
        costs: cost of CPU and memory use.
        min_gain: least reduction of the average cost for a move; a hot node costs 1.
        rule: rule for which gains are worth a move.
    """

    history_minutes: int = 1440
    last_hour_share: float = 0.75
    costs: MoveCosts = field(default_factory=MoveCosts)
    min_gain: float = 0.01
    rule: GainRule = field(default_factory=GainRule)

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
        self._past = PastUse(cluster, watcher)

    def due(self) -> list[tuple[int, int | None]]:
        """Return the moves to make now, in order; empty in most minutes.

        Each move is the number of a pod, and the row of its new node in the cluster's node table.
        """
        budget = self._schedule.budget()
        if not budget or not self._cluster.running:
            return []
        steps = self._past.known_steps(self._policy.history_minutes)
        if not steps:
            return []
        pods = np.fromiter(self._cluster.running, np.int64)
        policy = self._policy
        problem = self._problem(pods, steps)
        moves = MovePlanner(problem, policy.costs, policy.min_gain, rule=policy.rule).best(budget)
        self._schedule.charge(len(moves))
        self._schedule.note(self._recent(problem, move) for move in moves)
        self._past.moved(int(pods[move.pod]) for move in moves)
        return [(int(pods[move.pod]), move.target) for move in moves]

    def _recent(self, problem: MoveProblem, move: Move) -> RecentMove:
        """Return a move with the pod's use of the last quarter of an hour."""
        cores = float(problem.cpu[move.pod, -PERIOD_STEPS:].mean(dtype=np.float64))
        source, target = (self._cluster.nodes.names[row] for row in (move.source, move.target))
        percents = (100 * cores / problem.capacity[0, [move.source, move.target]]).tolist()
        return RecentMove(self._cluster.minute, source, target, *percents)

    def _problem(self, pods: Int64s, steps: int) -> MoveProblem:
        """Return the cluster as arrays.

        Args:
            pods: numbers of the running pods.
            steps: length of the past.
        """
        cluster, jobs = self._cluster, self._cluster.jobs[pods]
        row = np.zeros(cluster.numbers.max() + 1, np.int64)
        row[cluster.numbers] = np.arange(len(cluster.nodes))
        runs = list(cluster.running.values())
        cpu, memory = self._past.known(runs, steps)
        return MoveProblem(
            capacity=cluster.capacity / [[1000], [1024**3]],
            free=cluster.free,
            rows=row[[run.node for run in runs]],
            requests=np.array([run.requests for run in runs]).T,
            cpu=expected_cpu(cpu, jobs, HOUR_STEPS, self._policy.last_hour_share, self._policy.rule.burst_steps),
            memory=expected_memory(memory, jobs),
            movable=~jobs,
        )
