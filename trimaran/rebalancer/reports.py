"""Reports of the rebalancer: one line in the log and one Event for every move made or refused, and counters."""

import logging
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from runtime.http.gather import Deadline
from runtime.kubernetes.events import EventWriter
from trimaran.rebalancer.ledger import Brake
from trimaran.rebalancer.moves import MoveRecord, MoveState
from trimaran.rebalancer.plan import PlannedMove

COMPONENT: Final = "trimaran-rebalancer"
_EVENT_SECONDS = 5.0
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class RebalancerCounts:
    """Counters and gauges of the rebalancer.

    Attributes:
        searches: finished searches for moves.
        moves: moves by result: evicted, landed (on the planned node), elsewhere, lost, refused.
        refusals: refused evictions by the kind of the answer; ``recheck`` if the last check failed.
        stays: pods that may not move, by reason, in the last search.
        planned: moves of the last search.
        hot: nodes that the last search found worth relieving.
        open: moves whose replacement is awaited.
        twice: lineages that moved more than once within a day.
        used_at: end of the use by which the last search planned, Unix seconds; 0 if there was none.
        gains: predicted and measured gain by group: moved and held; means over the measured moves of the past day.
        measured: number of measured moves of the past day by group.
    """

    searches: int = 0
    moves: Counter[str] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)
    stays: Counter[str] = field(default_factory=Counter)
    planned: int = 0
    hot: int = 0
    open: int = 0
    twice: int = 0
    used_at: float = 0.0
    gains: Mapping[tuple[str, str], float] = field(default_factory=dict)
    measured: Mapping[str, int] = field(default_factory=dict)


def gains(records: Iterable[MoveRecord]) -> tuple[dict[tuple[str, str], float], dict[str, int]]:
    """Return mean predicted and measured gains, and numbers of moves, of the groups ``moved`` and ``held``."""
    means: dict[tuple[str, str], float] = {}
    counts: dict[str, int] = {}
    measured = [record for record in records if record.measured is not None]
    for group, of_group in (
        ("moved", [record for record in measured if record.state is not MoveState.HELD]),
        ("held", [record for record in measured if record.state is MoveState.HELD]),
    ):
        counts[group] = len(of_group)
        if of_group:
            means[(group, "predicted")] = statistics.fmean(record.gain for record in of_group)
            means[(group, "measured")] = statistics.fmean(record.measured or 0.0 for record in of_group)
    return means, counts


class MoveReporter:
    """Writer of log lines and Events about moves.

    Args:
        events: writer of Events; None to write none, as in mode observe.
        ledger_reference: reference to the ConfigMap, for Events about the brake.
    """

    def __init__(self, events: EventWriter | None, ledger_reference: Mapping[str, str]) -> None:
        self._events, self._ledger_reference = events, ledger_reference

    def planned(self, move: PlannedMove, inputs: Mapping[str, Any], *, held: bool = False) -> None:
        """Write a log line about a move that is planned and not made, in mode observe or because it is held back."""
        _log.info(
            "move held back" if held else "move planned", extra={**_fields(move.record), **_loads(move), **inputs}
        )

    def evicted(self, move: PlannedMove, inputs: Mapping[str, Any]) -> None:
        """Write a log line and an Event about an eviction."""
        record = move.record
        _log.info("pod evicted", extra={**_fields(record), **_loads(move), **inputs})
        text = (
            f"Evicted from {record.source} (CPU {move.source.before[0]:.0f} %), planned to {record.target} "
            f"(CPU {move.target.before[0]:.0f} %); predicted gain {record.gain:.2f}"
        )
        self._write(_pod(record), "Rebalanced", text)

    def refused(self, record: MoveRecord, why: str, kind: str) -> None:
        """Write a log line and an Event about a planned move that was not made after all."""
        _log.warning("move refused", extra={**_fields(record), "refusal": kind, "why": why})
        self._write(_pod(record), "RebalanceRefused", f"Not moved from {record.source} to {record.target}: {why}")

    def over(self, record: MoveRecord) -> None:
        """Write a log line about the end of a move, and an Event if no replacement became Ready."""
        if record.state is MoveState.LANDED:
            extra = {**_fields(record), "landed_on": record.landed_on, "as_planned": record.landed_on == record.target}
            _log.info("replacement is Ready", extra=extra)
        elif record.state is MoveState.LOST:
            _log.error("no replacement became Ready in time", extra=_fields(record))
            self._write(_pod(record), "RebalanceLost", "No replacement became Ready in time", "Warning")

    def measured(self, record: MoveRecord) -> None:
        """Write a log line about the measured gain of a move."""
        _log.info("gain of a move measured", extra={**_fields(record), "measured_gain": record.measured})

    def braked(self, brake: Brake) -> None:
        """Write a log line and an Event about the brake that was set."""
        remedy = "nothing moves until: trimaran rebalance resume"
        _log.error("the brake is set", extra={"reason": str(brake.reason), "why": brake.text, "remedy": remedy})
        self._write(self._ledger_reference, "RebalancerStopped", f"{brake.text}; {remedy}", "Warning")

    def _write(self, subject: Mapping[str, str], reason: str, text: str, kind: str = "Normal") -> None:
        if self._events is not None:
            self._events.write(subject, reason, text, Deadline.after(_EVENT_SECONDS), kind)


def _pod(record: MoveRecord) -> dict[str, str]:
    return {"apiVersion": "v1", "kind": "Pod", "namespace": record.namespace, "name": record.name, "uid": record.uid}


def _fields(record: MoveRecord) -> dict[str, Any]:
    return {
        "pod": f"{record.namespace}/{record.name}", "workload": f"{record.kind}/{record.workload}",
        "lineage": record.lineage, "source": record.source, "target": record.target, "gain": round(record.gain, 4),
        "low_minutes": round(record.low, 2),
    }  # fmt: skip


def _loads(move: PlannedMove) -> dict[str, Any]:
    """Return the loads of both nodes before and after a move, each as CPU and memory, percent."""
    return {
        f"{name}_{when}": [round(value, 1) for value in loads]
        for name, of in (("source", move.source), ("target", move.target))
        for when, loads in (("before", of.before), ("after", of.after))
    }
