"""State of a field trial, which all replicas of the extender share, and which decides whether the extender acts."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

from trimaran.extender.trial.harm import harm
from trimaran.extender.trial.outcomes import BlockRecord, LoadThresholds
from trimaran.extender.trial.schedule import TrialSchedule


@dataclass(frozen=True, slots=True)
class TrialPlan:
    """Settings of a trial.

    Attributes:
        schedule: the blocks.
        thresholds: loads from which a node counts as hot, and as near its limit.
        harm_points: margin of gross harm; see :func:`trimaran.extender.trial.harm.harm`.
        query: PromQL query of the user; "" for none.
    """

    schedule: TrialSchedule = field(default_factory=TrialSchedule)
    thresholds: LoadThresholds = field(default_factory=LoadThresholds)
    harm_points: float = 35.0
    query: str = ""

    def as_document(self) -> dict[str, Any]:
        """Return the settings that must not change during the trial, as a JSON object."""
        return {
            "block_seconds": self.schedule.block_seconds,
            "pairs": self.schedule.pairs,
            "hot_percent": self.thresholds.hot,
            "limit_percent": self.thresholds.limit,
            "query": self.query,
        }


@dataclass(frozen=True, slots=True)
class TrialState:
    """State of a trial.

    Attributes:
        plan: the settings that the trial was begun with, as a JSON object.
        first_pair: number of the first pair.
        blocks: counted blocks, in ascending order.
        stopped_at: time at which the trial was stopped because of harm, Unix seconds; None if it was not.
        reason: reason of the stop; "" if it was not stopped.
    """

    plan: Mapping[str, Any]
    first_pair: int
    blocks: tuple[BlockRecord, ...] = ()
    stopped_at: float | None = None
    reason: str = ""

    @classmethod
    def begin(cls, plan: TrialPlan, now: float) -> Self:
        """Return the state of a trial that begins with the next pair of blocks."""
        return cls(plan.as_document(), plan.schedule.pair_after(now))

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Self:
        """Read a state from its JSON object.

        Raises:
            KeyError, TypeError, ValueError: the object is not a state.
        """
        stopped = document["stopped"] or {}
        return cls(
            dict(document["plan"]),
            int(document["first_pair"]),
            tuple(BlockRecord.from_document(each) for each in document["blocks"]),
            float(stopped["at"]) if stopped else None,
            str(stopped.get("reason", "")),
        )

    def as_document(self) -> dict[str, Any]:
        """Return the state as a JSON object."""
        blocks = [
            {
                "number": each.number,
                "active": each.active,
                "nodes": each.nodes,
                "pods": each.pods,
                "load": each.load,
                "outcomes": dict(each.outcomes),
            }
            for each in self.blocks
        ]
        stopped = None if self.stopped_at is None else {"at": self.stopped_at, "reason": self.reason}
        return {"plan": dict(self.plan), "first_pair": self.first_pair, "stopped": stopped, "blocks": blocks}

    def includes(self, pair: int) -> bool:
        """Return whether a pair of blocks belongs to the trial."""
        return self.first_pair <= pair < self.first_pair + int(self.plan["pairs"])

    def acts(self, schedule: TrialSchedule, now: float) -> bool:
        """Return whether the extender acts at a Unix time."""
        block = schedule.block_at(now)
        return self.stopped_at is None and block.active and self.includes(block.pair)

    def has_ended(self, schedule: TrialSchedule, now: float) -> bool:
        """Return whether the last pair is over."""
        return schedule.block_at(now).pair >= self.first_pair + int(self.plan["pairs"])

    def with_block(self, record: BlockRecord, harm_points: float, now: float) -> "TrialState":
        """Return the state with another counted block, stopped if the blocks show harm.

        The state stays the same if the trial was stopped, or if the block was counted before or is not in the trial.
        """
        known = {each.number for each in self.blocks}
        if self.stopped_at is not None or record.number in known or not self.includes(record.number // 2):
            return self
        blocks = tuple(sorted((*self.blocks, record), key=lambda each: each.number))
        reason = harm(blocks, harm_points)
        return replace(self, blocks=blocks, stopped_at=now if reason else None, reason=reason)
