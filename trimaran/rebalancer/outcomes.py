"""Outcomes of moves: the replacements of evicted pods, and the gain of each move.

The gain is measured after the move, over some hours: the cost that both nodes would have had if the pod had stayed,
less the cost that they had. Loads before the move do not count, so regression to the mean cannot look like a gain. The
gain of a move that was held back is the cost that both nodes had, less the cost that they would have had with the move.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from scoring.arrays import Float64s, Int64s
from trimaran.planning.moves import MoveCosts
from trimaran.rebalancer.lineage import Member, refused, replacements
from trimaran.rebalancer.look import ClusterLook, PlanArrays, measured_arrays
from trimaran.rebalancer.moves import MoveRecord, MoveState
from trimaran.rebalancer.rules import MoveRules
from watcher.pod_use_table import PERIOD_STEPS, STEP_SECONDS

_LATE = 1800.0  # seconds after its due time in which a gain may still be measured
# Seconds after which an eviction whose outcome is not known counts as refused if the pod is there: a minute for the
# request, and one by which the watch may be late.
_UNANSWERED = 120.0


def followed(look: ClusterLook, records: Sequence[MoveRecord], rules: MoveRules) -> Iterator[MoveRecord]:
    """Yield the records that have changed: by evictions, by replacements, or by the end of the move.

    Args:
        look: state of the cluster.
        records: moves of the past day.
        rules: the limits.
    """
    present = {member.pod.uid: member for member in look.all_members()}
    current = []
    for record in records:
        changed = _seen(record, present.get(record.uid), look, rules)
        current.append(changed)
        if changed is not record:
            yield changed
    found = {record.key: member for record, member in replacements(current, look.members)}
    for record in current:
        if record.state is MoveState.EVICTED:
            changed = _awaited(record, found.get(record.key), look, rules, is_there=record.uid in present)
        elif record.state is MoveState.LANDED and record.replacement in present:
            changed = record.changed(restarts=present[record.replacement].facts.restarts)
        else:
            continue
        if changed != record:
            yield changed


def _seen(record: MoveRecord, member: Member | None, look: ClusterLook, rules: MoveRules) -> MoveRecord:
    """Return a planned move: as evicted if its pod is gone, as refused if the pod is there after two minutes."""
    if record.state is not MoveState.PLANNED:
        return record
    if member is None or member.pod.terminating:
        return record.changed(state=MoveState.EVICTED, evicted_at=record.planned_at)
    is_over = abs(look.now - record.planned_at) > _UNANSWERED
    return refused(record, rules.cooldowns) if is_over else record


def _awaited(
    record: MoveRecord, found: Member | None, look: ClusterLook, rules: MoveRules, *, is_there: bool
) -> MoveRecord:
    """Return the record of an evicted pod, updated by the state of its replacement.

    A move ends without a replacement only once the watch shows that the pod is deleted: before, the workload has all
    its pods only because the watch is late or the eviction had no effect.
    """
    if found is not None:
        record = record.changed(replacement=found.pod.uid, landed_on=found.pod.node_name, restarts=found.facts.restarts)
        if found.facts.ready_at is not None:
            return record.changed(state=MoveState.LANDED, ready_at=max(found.facts.ready_at, record.evicted_at))
    elif not is_there and look.version >= record.version and _needs_none(record, look):
        return record.changed(state=MoveState.LANDED, ready_at=record.evicted_at)
    is_late = look.now - record.evicted_at > rules.timeout + (record.grace if is_there else 0.0)
    return record.changed(state=MoveState.LOST) if is_late else record


def _needs_none(record: MoveRecord, look: ClusterLook) -> bool:
    """Return whether a workload needs no replacement: the workload is gone, or has all of its replicas."""
    facts, members = look.state.workloads.get(record.of), look.members.get(record.of, ())
    if facts is None:
        return not members
    return all(each.facts.ready_at is not None for each in members) and len(members) >= facts.replicas


def measured(
    look: ClusterLook, records: Sequence[MoveRecord], rules: MoveRules, costs: MoveCosts
) -> Iterator[MoveRecord]:
    """Yield the moves whose gain can be measured now, with the gain; moves whose pod is gone are left out.

    Args:
        look: state of the cluster.
        records: moves of the past day.
        rules: the limits.
        costs: parameters of the cost.
    """
    due = [record for record in records if _is_due(record, look.use.timestamp, rules)]
    if not due:
        return
    steps = int(rules.measure // STEP_SECONDS) // PERIOD_STEPS * PERIOD_STEPS
    arrays = measured_arrays(look, steps)
    meter = _GainMeter(arrays, costs, {name: row for row, name in enumerate(look.table.names)})
    for record in due:
        gain = meter.gain(record)
        if gain is not None:
            yield record.changed(measured=gain)


def _is_due(record: MoveRecord, until: float, rules: MoveRules) -> bool:
    since = {MoveState.LANDED: record.ready_at, MoveState.HELD: record.planned_at}.get(record.state)
    if record.measured is not None or not since:
        return False
    return 0 <= until - since - rules.measure < _LATE


class _GainMeter:
    """Measured gains of moves, from the use of all pods over the last hours."""

    def __init__(self, arrays: PlanArrays, costs: MoveCosts, rows: Mapping[str, int]) -> None:
        self._problem, self._costs, self._row_of = arrays.problem, costs, rows
        self._use = self._problem.node_use()
        self._scale = costs.scale(self._problem.capacity)
        self._places = {member.pod.uid: place for place, member in enumerate(arrays.members)}

    def gain(self, record: MoveRecord) -> float | None:
        """Return the gain of a move that was made or held back; None if the pod or a node is gone."""
        is_made = record.state is MoveState.LANDED
        place = self._places.get(record.replacement if is_made else record.uid)
        here, there = (record.landed_on, record.source) if is_made else (record.source, record.target)
        if place is None or here not in self._row_of or there not in self._row_of:
            return None
        rows = np.array([self._row_of[here], self._row_of[there]])
        if rows[0] == rows[1] or int(self._problem.rows[place]) != rows[0]:
            return 0.0 if is_made else None
        own = self._problem.cpu[place], self._problem.memory[place]
        as_is = self._use[0][rows], self._use[1][rows]
        change = np.array([[-1.0], [1.0]])
        otherwise = as_is[0] + change * own[0], as_is[1] + change * own[1]
        difference = self._cost(otherwise, rows) - self._cost(as_is, rows)
        return difference if is_made else -difference

    def _cost(self, use: tuple[Float64s, Float64s], rows: Int64s) -> float:
        return float(self._costs.mean(use, self._scale[:, rows]).sum())
