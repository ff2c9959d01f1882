"""Moves by congestion cost, with the plans of the live rebalancer: :func:`trimaran.rebalancer.plan.plan_moves`.

A replay uses the rebalancer's rules, caps, cooldowns and holdout, to predict the moves of ``trimaran rebalance``. It
has no brake, and no eviction is refused. A moved pod lands on its target in the same minute. A trace has one
namespace, so the cap of a namespace is that of all moves.

:mod:`trimaran.simulator.moving.past_use` keeps the past use, :mod:`trimaran.simulator.moving.cluster_look` has the
state of the cluster, and :mod:`trimaran.simulator.moving.base` the schedule.
"""

from dataclasses import dataclass, field, replace

from trimaran.planning.moves import MoveCosts
from trimaran.rebalancer.bad_looks import BadLooks
from trimaran.rebalancer.caps import DAY
from trimaran.rebalancer.look import recent_moves
from trimaran.rebalancer.moves import MoveRecord, MoveState
from trimaran.rebalancer.plan import plan_moves
from trimaran.rebalancer.rules import MoveRules
from trimaran.simulator.cluster import Cluster
from trimaran.simulator.moving.base import MovePolicy, MoveSchedule
from trimaran.simulator.moving.cluster_look import cluster_look
from trimaran.simulator.moving.past_use import DAY_MINUTES, PastUse
from trimaran.simulator.simulated_watcher import SimulatedWatcher
from trimaran.simulator.windows import unix_seconds


@dataclass(frozen=True)
class CostMovePolicy(MovePolicy):
    """Settings of moves by congestion cost.

    Attributes:
        costs: cost of CPU and memory use.
        rules: limits of the rebalancer; this policy's ``percent_per_hour`` replaces theirs, and the cap on the total
            also applies to a namespace.
    """

    costs: MoveCosts = field(default_factory=MoveCosts)
    rules: MoveRules = field(default_factory=MoveRules)

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
        self._cluster, self._watcher, self._costs = cluster, watcher, policy.costs
        caps = policy.rules.caps
        caps = replace(caps, percent_per_hour=policy.percent_per_hour, namespace_per_hour=caps.per_hour)
        self._rules = replace(policy.rules, caps=caps)
        self._looks = BadLooks(self._rules.nodes.bad_looks, self._rules.nodes.good_looks)
        self._schedule = MoveSchedule(policy, cluster, watcher)
        self._past = PastUse(cluster, watcher)
        self._records: list[MoveRecord] = []

    def due(self) -> list[tuple[int, int | None]]:
        """Return the moves to make now, in order; empty in most minutes.

        Each move is the number of a pod, and the row of its new node in the cluster's node table.
        """
        if not self._schedule.is_due(goes_on=self._looks.is_counting):
            return []
        cluster, metrics = self._cluster, self._watcher.snapshot()
        if metrics is None or not self._past.known_steps(DAY_MINUTES):
            self._looks.forget()
            return []
        numbers = {pod.uid: number for number, pod in cluster.pods.items()}
        self._records = [self._followed(record, numbers) for record in self._records if self._is_recent(record)]
        plan = plan_moves(
            cluster_look(cluster, metrics, self._past), self._records, self._rules, self._looks, self._costs
        )
        self._records += [move.record for move in plan.held]
        self._records += [
            move.record.changed(state=MoveState.EVICTED, evicted_at=cluster.now, landed_on=move.record.target)
            for move in plan.moves
        ]
        self._schedule.note(recent_moves(cluster.nodes, self._records))
        moved = [numbers[move.record.uid] for move in plan.moves]
        self._past.moved(moved)
        return [(number, cluster.nodes.row(move.record.target)) for number, move in zip(moved, plan.moves, strict=True)]

    def _is_recent(self, record: MoveRecord) -> bool:
        return self._cluster.now - record.planned_at < DAY

    def _followed(self, record: MoveRecord, numbers: dict[str, int]) -> MoveRecord:
        """Return the record of a move, changed to landed once the pod works or is gone."""
        if record.state is not MoveState.EVICTED:
            return record
        run = self._cluster.running.get(numbers.get(record.uid, -1))
        if run is not None and run.works > self._cluster.minute:
            return record
        ready = record.evicted_at if run is None else max(record.evicted_at, float(unix_seconds(run.works)))
        return record.changed(state=MoveState.LANDED, ready_at=ready)
