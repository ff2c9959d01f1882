"""Plan of moves: pods with their targets, the predicted loads of both nodes, and the reasons why other pods stay.

A plan is a pure function of the state of the cluster, the moves of the past day and the time. A dry run makes the same
plan, in which evicted pods count on their targets.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from runtime.kubernetes.workloads import Workload, revision_of
from scoring.arrays import Bools, Float64s
from trimaran.planning.moves import Move, MoveCosts, MovePlanner
from trimaran.planning.moves.correction import corrected_loads
from trimaran.planning.moves.gains import GainRule
from trimaran.rebalancer.bad_looks import BadLooks
from trimaran.rebalancer.caps import Caps
from trimaran.rebalancer.demand import demand_bounds
from trimaran.rebalancer.eligibility import NodeRefusal, Reason, Refusal, budget_refusal, pod_refusal, workload_refusal
from trimaran.rebalancer.facts import NodeBarrier
from trimaran.rebalancer.holdout import is_held
from trimaran.rebalancer.lineage import CooldownClock, Member, lineage_of
from trimaran.rebalancer.look import HOUR_STEPS, ClusterLook, known_steps, percents, plan_arrays, recent_moves
from trimaran.rebalancer.moves import MoveRecord, MoveState
from trimaran.rebalancer.node_roles import NodeRoles
from trimaran.rebalancer.rules import MoveRules
from watcher.pod_use_table import PERIOD_STEPS

_NO_WORKLOAD = Workload("", "", "")
_ENOUGH = 0.9  # share of the best gain: a smaller pod that gains this much moves instead


@dataclass(frozen=True, slots=True)
class NodeLoads:
    """Mean load of a node in the last hour, percent, before and after a move: CPU, memory."""

    before: tuple[float, float]
    after: tuple[float, float]


@dataclass(frozen=True, slots=True)
class PlannedMove:
    """A planned move, with the predicted loads of both nodes.

    Attributes:
        record: record of the move for the ledger.
        source, target: loads of the nodes.
    """

    record: MoveRecord
    source: NodeLoads
    target: NodeLoads


@dataclass(frozen=True)
class MovePlan:
    """Result of a search for moves.

    Attributes:
        moves: moves to make, in order.
        held: moves that are planned and not made.
        nothing: reason why there is no search; "" after one.
        stays: reason by UID of each pod that may not move now.
        sources: reason by name of each node that no pod may leave.
        targets: reason by name of each node to which no pod may move.
        hot: names of the nodes that are worth relieving.
        steps: number of past steps that the plan uses.
        prospects: best moves of the pods that would relieve their nodes most, even if they gain too little: by UID,
            target, gain, and lower end of the gain's interval.
        hidden: CPU that each pod may need in addition to its use, because its node was saturated, by UID, cores.
        min_gain: least gain of a move.
        missing: number of further searches that must find a node before pods leave it, by name of the node.
    """

    moves: tuple[PlannedMove, ...] = ()
    held: tuple[PlannedMove, ...] = ()
    nothing: str = ""
    stays: Mapping[str, Reason] = field(default_factory=dict)
    sources: Mapping[str, NodeBarrier | NodeRefusal] = field(default_factory=dict)
    targets: Mapping[str, NodeBarrier | NodeRefusal] = field(default_factory=dict)
    hot: frozenset[str] = frozenset()
    steps: int = 0
    prospects: Mapping[str, tuple[str, float, float]] = field(default_factory=dict)
    hidden: Mapping[str, float] = field(default_factory=dict)
    min_gain: float = 0.0
    missing: Mapping[str, int] = field(default_factory=dict)

    def refused(self) -> Counter[str]:
        """Return the number of pods that stay, by reason."""
        return Counter(map(str, self.stays.values()))


def plan_moves(
    look: ClusterLook, records: Sequence[MoveRecord], rules: MoveRules, looks: BadLooks, costs: MoveCosts | None = None
) -> MovePlan:
    """Search for moves.

    Args:
        look: state of the cluster.
        records: moves of the past day.
        rules: the limits.
        looks: counts of the searches that found a node; this search is added to them.
        costs: parameters of the cost.
    """
    age = look.now - look.use.timestamp
    if not len(look.use) or abs(age) > rules.max_age:
        looks.forget()
        known = f"it ended {age:.0f} s ago" if len(look.use) else "nothing is measured"
        return MovePlan(nothing=f"the use of the pods is not up to date: {known}")
    steps = known_steps(look.use, rules.history)
    if not steps:
        return MovePlan(nothing="the use of the pods is known for less than a quarter of an hour")
    return _Search(look, records, rules, looks, costs or MoveCosts(), steps).run()


class _Search:
    """One search for moves; the arguments are those of :func:`plan_moves`."""

    def __init__(
        self,
        look: ClusterLook,
        records: Sequence[MoveRecord],
        rules: MoveRules,
        looks: BadLooks,
        costs: MoveCosts,
        steps: int,
    ) -> None:
        self._look, self._records, self._rules, self._looks, self._steps = look, records, rules, looks, steps
        self._rule = GainRule(startup_seconds=rules.startup)
        self._arrays = plan_arrays(look, records, steps, rules.last_hour_share, self._rule.burst_steps)
        self._names = look.table.names
        self._costs = costs
        self._caps = Caps(rules.caps, records, len(look.running), look.now)
        self._cooldowns = CooldownClock(rules.cooldowns, records)
        self._lineages: dict[str, str] = {}
        numbers = self._numbers = dict[Workload, int]()
        of_pods = [each.pod.workload or _NO_WORKLOAD for each in self._arrays.members]
        self._workload_number = np.array([numbers.setdefault(each, len(numbers)) for each in of_pods])
        use, capacity = self._arrays.problem.node_use(), self._arrays.problem.capacity
        measured = corrected_loads(look.measured, look.window, recent_moves(look.table, records))
        cpu, memory = percents(use, capacity, HOUR_STEPS)
        # The sum of the pods' use lacks other processes and pods of unknown use, so the measured load may be higher.
        self._levels = np.maximum(cpu, [measured.get(name, 0.0) for name in self._names]), memory
        self._needed = demand_bounds(look, self._arrays, use[0], measured)
        self._hidden = self._hidden_demand()
        self._add_hidden_demand()
        roles = NodeRoles(look, rules, self._caps, self._cooldowns, use, capacity, measured)
        self._sources, self._targets = roles.sources(), roles.targets()
        self._is_target: Bools = np.array([name not in self._targets for name in self._names])

    def run(self) -> MovePlan:
        """Return the plan."""
        stays = self._stays()
        movable, held = self._movable(stays)
        planner = self._planner(movable)
        hot = frozenset(self._names[row] for row in planner.worth_relieving().tolist())
        self._looks.observe(hot)
        prospects = {
            self._arrays.members[move.pod].pod.uid: (self._names[move.target], move.gain, move.low)
            for move in planner.prospects()
        }
        for name in hot:
            if not self._looks.is_confirmed(name):
                self._sources[name] = NodeRefusal.FEW_BAD_LOOKS
        planner.exclude(self._on(name for name in hot if name in self._sources))
        moves = self._choose(planner, self._caps.left)
        return MovePlan(
            moves=tuple(moves),
            held=tuple(self._held(held, len(moves))),
            stays=stays,
            sources=self._sources,
            targets=self._targets,
            hot=hot,
            steps=self._steps,
            prospects=prospects,
            hidden=self._hidden,
            min_gain=self._rules.min_gain,
            missing={name: self._looks.missing(name) for name in hot},
        )

    def _choose(self, planner: MovePlanner, count: int, state: MoveState = MoveState.PLANNED) -> list[PlannedMove]:
        """Return at most ``count`` moves; each counts for the caps and cooldowns of the next moves."""
        moves: list[PlannedMove] = []
        while len(moves) < count:
            found = planner.best(1)
            if not found:
                break
            planned = self._planned(found[0], planner, state)
            moves.append(planned)
            if state is MoveState.PLANNED:
                self._caps.add(planned.record)
                self._cooldowns.add(planned.record)
            planner.close(found[0].target)  # the level that limits moves to the target does not include this move
            planner.exclude(self._spent(planned.record))
        return moves

    def _held(self, held: Bools, made: int) -> list[PlannedMove]:
        """Return moves that are held back, as many as the share of held moves needs to reach ``holdout_percent``."""
        share = self._rules.holdout_percent / 100
        before = sum(record.state is MoveState.HELD for record in self._records)
        moved = sum(record.is_made for record in self._records) + made
        missing = int(share / (1 - share) * moved + 0.5) - before
        if missing < 1:
            return []
        planner = self._planner(held)
        planner.exclude(self._on(name for name in self._names if not self._looks.is_confirmed(name)))
        return self._choose(planner, missing, MoveState.HELD)

    def _planner(self, movable: Bools) -> MovePlanner:
        problem = replace(self._arrays.problem, movable=movable, accepts=self._accepts)
        return MovePlanner(problem, self._costs, self._rules.min_gain, _ENOUGH, self._rule)

    def _movable(self, stays: "dict[str, Reason]") -> tuple[Bools, Bools]:
        """Return the pods that may move, and the pods of the holdout, which are added to ``stays``."""
        movable, held = (np.zeros(self._arrays.pods, np.bool_) for _ in range(2))
        for place, member in enumerate(self._arrays.members):
            uid = member.pod.uid
            if uid in stays:
                continue
            if is_held(self._lineages[uid], self._rules.holdout_percent):
                held[place] = True
                stays[uid] = Refusal.HELD
            else:
                movable[place] = True
        return movable, held

    def _stays(self) -> dict[str, Reason]:
        """Return the reason by UID of each pod that may not move now."""
        look, rules = self._look, self._rules
        lineages = {record.replacement: record.lineage for record in self._records}
        stays: dict[str, Reason] = {}
        by_workload: dict[Workload, Refusal | None] = {}
        own = self._own_percents()
        for place, (row, member) in enumerate(look.running):
            pod = member.pod
            reason: Reason | None = Refusal.SOURCE if self._names[row] in self._sources else None
            reason = pod_refusal(member, rules.pods, look.now) or reason
            if reason is None and not self._arrays.is_known[place]:
                reason = Refusal.UNKNOWN_USE
            if reason is None and own[place] > rules.pods.max_pod_percent:
                reason = Refusal.LARGE
            if reason is None and pod.workload is not None:
                if pod.workload not in by_workload:
                    by_workload[pod.workload] = self._workload_refusal(pod.workload)
                reason = by_workload[pod.workload] or budget_refusal(member, look.state)
            if reason is None:
                lineage = self._lineages[pod.uid] = lineage_of(pod, lineages)
                if self._cooldowns.pod_until(lineage) > look.now:
                    reason = Refusal.COOLDOWN
            if reason is not None:
                stays[pod.uid] = reason
        return stays

    def _workload_refusal(self, workload: Workload) -> Refusal | None:
        """Return the reason why no pod of a workload moves now."""
        look = self._look
        reason = workload_refusal(workload, look.members[workload], look.state, self._rules.pods, look.now)
        if reason is not None:
            return reason
        if any(record.is_open and record.of == workload for record in self._records):
            return Refusal.OPEN_MOVE
        if self._cooldowns.workload_until(workload) > look.now:
            return Refusal.COOLDOWN
        return None if self._caps.allows_workload(workload) else Refusal.WORKLOAD_CAP

    def _own_percents(self) -> Float64s:
        """Return the larger of each pod's mean CPU and memory use, in percent of its node."""
        problem = self._arrays.problem
        shares = [
            100 * use.mean(axis=1, dtype=np.float64) / np.maximum(capacity[problem.rows], 1e-9)
            for use, capacity in zip((problem.cpu, problem.memory), problem.capacity, strict=True)
        ]
        return np.asarray(np.maximum(*shares))

    def _accepts(self, place: int) -> Bools:
        """Return the nodes that accept a pod and whose load with it is at most ``target_percent``, shape (nodes,)."""
        problem = self._arrays.problem
        accepts = self._look.table.feasible(self._arrays.members[place].pod) & self._is_target
        needed = float(self._needed[place]), self._own_use(place)[1]
        for level, capacity, use in zip(self._levels, problem.capacity, needed, strict=True):
            accepts &= level + 100 * use / np.maximum(capacity, 1e-9) <= self._rules.nodes.target_percent
        return accepts

    def _add_hidden_demand(self) -> None:
        """Add the hidden demand of recently moved pods to the levels of their targets, whose metrics lack it so far."""
        capacity, begin = self._arrays.problem.capacity[0], self._look.window[0]
        for record in self._records:
            if record.is_made and record.hidden and record.evicted_at >= begin and record.node in self._look.table:
                row = self._look.table.row(record.node)
                self._levels[0][row] += 100 * record.hidden / max(float(capacity[row]), 1e-9)

    def _hidden_demand(self) -> dict[str, float]:
        """Return the CPU that pods may need in addition to their use in the last hour, by UID, cores."""
        more = self._needed - self._arrays.problem.cpu[:, -HOUR_STEPS:].mean(axis=1, dtype=np.float64)
        members = self._arrays.members
        return {
            members[place].pod.uid: float(more[place]) for place in np.flatnonzero(more[: len(members)] > 0).tolist()
        }

    def _own_use(self, place: int) -> tuple[float, float]:
        """Return the mean CPU and memory use of a pod in the last hour, cores and GiB."""
        problem, periods = self._arrays.problem, HOUR_STEPS // PERIOD_STEPS
        means = problem.cpu[place, -HOUR_STEPS:].mean(dtype=float), problem.memory[place, -periods:].mean(dtype=float)
        return float(means[0]), float(means[1])

    def _spent(self, record: MoveRecord) -> Bools:
        """Return the pods that may not move after a planned move: those of its workload, and where caps are reached."""
        workloads = np.zeros(len(self._numbers), np.bool_)
        workloads[self._numbers[record.of]] = True
        if not self._caps.allows_namespace(record.namespace):
            workloads |= np.array([of.namespace == record.namespace for of in self._numbers])
        spent = np.zeros(self._arrays.pods, np.bool_)
        spent[: self._workload_number.size] = workloads[self._workload_number]
        if self._cooldowns.source_until(record.source) > self._look.now or not self._caps.allows_source(record.source):
            spent |= self._on([record.source])
        return spent

    def _on(self, names: Iterable[str]) -> Bools:
        """Return the pods on the given nodes, shape (pods,)."""
        rows = np.zeros(len(self._names), np.bool_)
        rows[[self._look.table.row(name) for name in names]] = True
        return rows[self._arrays.problem.rows]

    def _planned(self, move: Move, planner: MovePlanner, state: MoveState) -> PlannedMove:
        """Return a move that the planner has just made, with both nodes' loads before and after it."""
        problem, member = self._arrays.problem, self._arrays.members[move.pod]
        own = self._own_use(move.pod)
        after = percents((planner.use[0][[move.source, move.target]], planner.use[1][[move.source, move.target]]),
                         problem.capacity[:, [move.source, move.target]], HOUR_STEPS)  # fmt: skip
        loads = []
        for place, (row, sign) in enumerate(((move.source, 1), (move.target, -1))):
            shares = [100 * use / float(problem.capacity[kind, row]) for kind, use in enumerate(own)]
            now = (float(after[0][place]), float(after[1][place]))
            loads.append(NodeLoads((now[0] + sign * shares[0], now[1] + sign * shares[1]), now))
        return PlannedMove(self._record(member, move, state), *loads)

    def _record(self, member: Member, move: Move, state: MoveState) -> MoveRecord:
        pod, facts = member
        workload = pod.workload or Workload(pod.namespace, "Pod", pod.name)
        return MoveRecord(
            uid=pod.uid,
            namespace=pod.namespace,
            name=pod.name,
            kind=workload.kind,
            workload=workload.name,
            revision=revision_of(pod.labels),
            lineage=self._lineages[pod.uid],
            source=self._names[move.source],
            target=self._names[move.target],
            state=state,
            gain=move.gain,
            low=move.low,
            planned_at=self._look.now,
            startup=max(0.0, (facts.ready_at or 0.0) - facts.created_at),
            cores=float(self._arrays.problem.cpu[move.pod, -PERIOD_STEPS:].mean(dtype=float)),
            hidden=self._hidden.get(pod.uid, 0.0),
            restarts_before=facts.restarts,
        )
