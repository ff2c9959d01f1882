"""Brake: reasons to stop moving pods, found in the effects of past moves.

A set brake stays until a person releases it: its reason disappears by itself once no pods move.
"""

from collections.abc import Container, Iterable, Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType

from trimaran.rebalancer.caps import HOUR
from trimaran.rebalancer.lineage import Member
from trimaran.rebalancer.moves import MoveRecord, MoveState
from trimaran.rebalancer.rules import BrakeRules

_MIN_WAIT = 30.0  # seconds; shorter waits and start-ups of pods never set the brake
_MIN_PODS = 5  # fewer start-ups or waits say little about the cluster
_RECENT = 600.0  # seconds after scheduling in which a pod still counts in the wait of pods


class BrakeReason(StrEnum):
    """Reason for the brake."""

    NO_GAIN = "no_gain"
    UNSCHEDULABLE = "unschedulable"
    FAILING = "failing"
    """A replacement cannot start."""
    LOST = "lost"
    UNREADY = "unready"
    RESTARTS = "restarts"
    PENDING = "pending"
    STOPPED = "stopped"
    """A person stopped it: ``trimaran rebalance stop``."""


_NOTHING: Mapping[str, float] = MappingProxyType({})
BrakeFinding = tuple[BrakeReason, str]


def brake_reason(
    records: Sequence[MoveRecord],
    replaced: Iterable[tuple[MoveRecord, Member]],
    waits: tuple[float, float],
    rules: BrakeRules,
    now: float,
    failing: Mapping[str, float] = _NOTHING,
) -> BrakeFinding | None:
    """Return the first reason to stop, with a text for people; None if there is none.

    Args:
        records: moves of the past day.
        replaced: evicted pods whose replacement is not Ready, with the replacement.
        waits: 95th percentile of the pods' wait for a node before the moves and now, seconds.
        rules: the limits.
        now: Unix time.
        failing: seconds for which a replacement has not started, by its UID.
    """
    made = sorted((each for each in records if each.is_made), key=lambda each: each.planned_at)
    for record, member in replaced:
        since = member.facts.unschedulable_at
        if since is not None and now - since >= rules.unschedulable:
            return BrakeReason.UNSCHEDULABLE, (
                f"the scheduler finds no node for {member.pod.namespace}/{member.pod.name}, which replaces "
                f"{record.name}, since {now - since:.0f} s"
            )
        if failing.get(member.pod.uid, 0.0) >= rules.failing:
            return BrakeReason.FAILING, f"{why_failing(record, member)}, since {failing[member.pod.uid]:.0f} s"
    if lost := [record for record in made[-rules.moves :] if record.state == MoveState.LOST and not record.excused]:
        return BrakeReason.LOST, f"no replacement of {lost[-1].namespace}/{lost[-1].name} became Ready in time"
    return _no_gain(made, rules) or _unready(made, rules) or _restarts(made, rules) or _pending(made, waits, rules, now)


def why_failing(record: MoveRecord, member: Member) -> str:
    """Return the text about a replacement that cannot start, or failed to start and is not Ready yet."""
    replaced = f"{member.pod.namespace}/{member.pod.name}, which replaces {record.name}"
    return f"the pod {replaced}, cannot start: {member.facts.failing or 'it failed, and is not Ready'}"


def pending_wait(members: Iterable[Member], replaced: Container[str], now: float) -> float:
    """Return the 95th percentile of the pods' wait for a node; 0 if fewer than five wait or were scheduled recently.

    Args:
        members: all pods.
        replaced: UIDs of replacements, for which the brake has a separate limit.
        now: Unix time.
    """
    waits = []
    for pod, facts in members:
        if pod.uid in replaced:
            continue
        if facts.scheduled_at is None and not pod.node_name:
            waits.append(now - facts.created_at)
        elif facts.scheduled_at is not None and now - facts.scheduled_at < _RECENT:
            waits.append(facts.scheduled_at - facts.created_at)
    waits.sort()
    return max(0.0, waits[int(0.95 * len(waits))]) if len(waits) >= _MIN_PODS else 0.0


def _no_gain(made: Sequence[MoveRecord], rules: BrakeRules) -> BrakeFinding | None:
    measured = [record.measured for record in made if record.measured is not None][-rules.moves :]
    failures = sum(gain <= 0 for gain in measured)
    if failures > rules.max_failures:
        return BrakeReason.NO_GAIN, f"{failures} of the last {len(measured)} measured moves gained nothing"
    return None


def _unready(made: Sequence[MoveRecord], rules: BrakeRules) -> BrakeFinding | None:
    landed = [record for record in made if record.state == MoveState.LANDED][-rules.moves :]
    before = sum(max(record.startup, _MIN_WAIT) for record in landed)
    after = sum(record.ready_at - record.evicted_at for record in landed)
    if len(landed) >= _MIN_PODS and after > rules.max_unready_factor * before:
        return BrakeReason.UNREADY, (
            f"the replacements of the last {len(landed)} moves took {after / len(landed):.0f} s to become Ready, the "
            f"evicted pods {sum(record.startup for record in landed) / len(landed):.0f} s"
        )
    return None


def _restarts(made: Sequence[MoveRecord], rules: BrakeRules) -> BrakeFinding | None:
    last = made[-rules.moves :]
    after, before = sum(record.restarts for record in last), sum(record.restarts_before for record in last)
    if after > max(rules.max_restarts, before):
        return BrakeReason.RESTARTS, f"the replacements of the last {len(last)} moves restarted {after} times"
    return None


def _pending(
    made: Sequence[MoveRecord], waits: tuple[float, float], rules: BrakeRules, now: float
) -> BrakeFinding | None:
    before, after = waits
    recent = any(now - record.planned_at < HOUR for record in made)
    if recent and after > rules.max_pending_factor * max(before, _MIN_WAIT):
        return BrakeReason.PENDING, (
            f"pods wait up to {after:.0f} s for a node (95th percentile), {before:.0f} s before the moves"
        )
    return None
