"""Ledger of the moves of the past day and of the brake, which the rebalancer stores in a ConfigMap.

The ledger is written before each eviction and read by every new leader. So a killed process loses neither the moves
that count for the caps, nor the moves whose replacement is awaited, nor the brake.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import msgspec
import orjson

from runtime import masking
from trimaran.rebalancer.brake import BrakeReason
from trimaran.rebalancer.caps import DAY
from trimaran.rebalancer.moves import MoveRecord, MoveState

_VERSION = 1
_MOST_BYTES = 1_000_000  # the API server takes 1 MiB of data in a ConfigMap
_LONGEST_TEXT = 1000  # characters of the brake's text
_DEFAULTS = {each.name: each.default for each in fields(MoveRecord)}
#: Reasons that version 0.1 cannot read, with the nearest that it can read: the brake must survive a rollback.
_NEAREST = {BrakeReason.FAILING: BrakeReason.LOST}


@dataclass(frozen=True, slots=True)
class Brake:
    """Brake that was set.

    Attributes:
        reason: the reason.
        text: the reason as a sentence.
        at: Unix time.
    """

    reason: BrakeReason
    text: str
    at: float


@dataclass(frozen=True, slots=True)
class Ledger:
    """Moves of the past day, and the brake.

    Attributes:
        records: the moves, oldest first.
        brake: the brake; None without one.
        wait: 95th percentile of the pods' wait for a node before the moves of the last hour, seconds.
    """

    records: tuple[MoveRecord, ...] = ()
    brake: Brake | None = None
    wait: float = 0.0

    def put(self, record: MoveRecord) -> "Ledger":
        """Return the ledger with a record added, or replaced if the move is known.

        An earlier move of the same pod stays if it was made: it counts for the caps, and for the pod's cooldown.
        """
        kept = tuple(each for each in self.records if each.uid != record.uid or self._is_another(each, record))
        return replace(self, records=tuple(sorted((*kept, record), key=lambda each: each.planned_at)))

    def put_all(self, records: Iterable[MoveRecord]) -> "Ledger":
        """Return the ledger with several records added or replaced."""
        ledger = self
        for record in records:
            ledger = ledger.put(record)
        return ledger

    @staticmethod
    def _is_another(earlier: MoveRecord, record: MoveRecord) -> bool:
        return earlier.is_made and earlier.key != record.key

    def find(self, key: tuple[str, float]) -> MoveRecord | None:
        """Return the record of a move by its key; None if it is unknown."""
        return next((record for record in self.records if record.key == key), None)

    def open_records(self) -> list[MoveRecord]:
        """Return the moves whose replacement is awaited."""
        return [record for record in self.records if record.is_open]

    def with_brake(self, brake: Brake | None) -> "Ledger":
        """Return the ledger with another brake. None releases the brake: earlier moves no longer count towards it."""
        if brake is not None:  # the text may quote long messages, and must fit into the ConfigMap
            return replace(self, brake=replace(brake, text=masking.to_line(brake.text, _LONGEST_TEXT)))
        return replace(self, brake=None, records=tuple(map(_forgiven, self.records)))

    def pruned(self, now: float) -> "Ledger":
        """Return the ledger without the moves of more than a day ago; open ones stay."""
        kept = tuple(each for each in self.records if each.is_open or now - each.planned_at < DAY)
        return self if len(kept) == len(self.records) else replace(self, records=kept)

    def fitting(self, most_bytes: int = _MOST_BYTES) -> "Ledger":
        """Return the ledger, without its oldest ended moves if its text would be longer than ``most_bytes``."""
        excess = len(self.to_json().encode()) - most_bytes
        kept: list[MoveRecord] = []
        for record in self.records:
            if excess > 0 and not record.is_open:
                excess -= len(orjson.dumps(_short(record))) + 1
            else:
                kept.append(record)
        return self if len(kept) == len(self.records) else replace(self, records=tuple(kept))

    def to_json(self) -> str:
        """Return the text for the ConfigMap."""
        document: dict[str, Any] = {
            "version": _VERSION,
            "moves": [_short(record) for record in self.records],
            "brake": None if self.brake is None else _stored(self.brake),
            "wait": round(self.wait, 1),
        }
        return orjson.dumps(document).decode()

    @classmethod
    def from_json(cls, text: str) -> "Ledger":
        """Read the text of the ConfigMap; unknown fields are ignored.

        Raises:
            ValueError: the text is not a ledger, has a field of another type, or is of a later version.
        """
        try:
            document = orjson.loads(text)
            if document["version"] != _VERSION:
                raise ValueError(
                    f"it has version {document['version']}; this release reads {_VERSION}: run the one that wrote it"
                )
            stored = msgspec.convert(document, _Stored)
        except (KeyError, TypeError, msgspec.ValidationError) as error:
            raise ValueError(f"not a ledger: {type(error).__name__}: {error}") from error
        return cls(stored.moves, None if stored.brake is None else stored.brake.read(), stored.wait or 0.0)


def _forgiven(record: MoveRecord) -> MoveRecord:
    """Return a record that no longer counts towards the brake. Its state stays: a lost move is still lost."""
    match record.state:
        case MoveState.LANDED:
            return record.changed(measured=None, restarts=0, evicted_at=0.0, ready_at=0.0)
        case MoveState.LOST:
            return record.changed(restarts=0, excused=True)
    return record


def _stored(brake: Brake) -> Mapping[str, Any]:
    """Return a brake for the ConfigMap: a ``reason`` that version 0.1 knows, and the true one as ``exact``."""
    if (nearest := _NEAREST.get(brake.reason)) is None:
        return asdict(brake)
    return {**asdict(brake), "reason": nearest, "exact": brake.reason}


class _StoredBrake(msgspec.Struct):
    reason: str
    text: str
    at: float
    exact: str = ""

    def read(self) -> Brake:
        """Return the brake. An unknown reason, of a later version, is read as STOPPED: a person releases the brake."""
        known = [reason for reason in (self.exact, self.reason) if reason in set(BrakeReason)]
        return Brake(BrakeReason(known[0]) if known else BrakeReason.STOPPED, self.text, self.at)


class _Stored(msgspec.Struct):
    moves: tuple[MoveRecord, ...]
    brake: _StoredBrake | None = None
    wait: float | None = None


def _short(record: MoveRecord) -> Mapping[str, Any]:
    """Return the fields of a record that differ from their default, so that a thousand moves stay below 1 MiB.

    NaN and infinity, which JSON lacks, are left out, since a ledger that cannot be read stops all moves.
    """
    return {
        name: round(value, 4) if isinstance(value, float) else value
        for name, value in asdict(record).items()
        if value != _DEFAULTS[name] and not (isinstance(value, float) and not math.isfinite(value))
    }
