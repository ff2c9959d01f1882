"""Annotations with a node's average load, and the time at which it was measured.

    load.trimaran.io/15m: "cpu=40,memory=55,at=2026-11-25T13:50:00Z"    percent of capacity; RFC 3339

    load.trimaran.io/15m-permille: "550"    the higher of both, for schedulers that read one whole number

Annotated loads are multiples of a step, such as 5 percent. An annotated load stays until the measured load differs
from it by more than one step, so that a load that varies around the middle between two steps causes no writes. The time
of an unchanged load is renewed now and then, so that readers can tell a steady load from an old number.
"""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

PREFIX = "load.trimaran.io/"
WHOLE_NUMBER = "-permille"
"""Suffix of the key of a whole number."""
_NAMES = {"CPU": "cpu", "Memory": "memory"}
_TIME = "at"


@dataclass(frozen=True, slots=True)
class AnnotatedLoad:
    """Content of an annotation.

    Attributes:
        loads: load by resource, percent.
        measured_at: Unix time of the measurement; 0 if the text has none.
    """

    loads: Mapping[str, float] = field(default_factory=dict)
    measured_at: float = 0.0

    @classmethod
    def parse(cls, text: str) -> "AnnotatedLoad":
        """Read the text of an annotation; parts that cannot be read are left out."""
        loads, measured_at = {}, 0.0
        for part in text.split(","):
            name, _, value = part.partition("=")
            with contextlib.suppress(ValueError, OverflowError):  # empty, or not written by us
                if name == _TIME:
                    measured_at = datetime.fromisoformat(value).timestamp()
                else:
                    loads[name] = float(value)
        return cls(loads, measured_at)

    def __str__(self) -> str:
        """Return the text of the annotation."""
        return ",".join(
            [*(f"{name}={value:g}" for name, value in self.loads.items()), f"{_TIME}={timestamp(self.measured_at)}"]
        )


def timestamp(seconds: float) -> str:
    """Return a Unix time as text, RFC 3339."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def desired_annotation(
    averages: Mapping[str, float], written: str, measured_at: float, step: float, refresh_seconds: float
) -> str | None:
    """Return the text of an annotation; None if neither CPU nor memory is measured.

    An annotated load is kept if the measured load differs from it by at most one step. If all loads are kept, the
    text stays the same until its time is ``refresh_seconds`` old.

    Args:
        averages: average load by metric type, percent.
        written: current text of the annotation; empty if there is none.
        measured_at: Unix time of the measurement.
        step: step between two values, percent.
        refresh_seconds: age from which the time of unchanged loads is renewed.
    """
    old = AnnotatedLoad.parse(written)
    percents = {name: averages[type_] for type_, name in _NAMES.items() if type_ in averages}
    if not percents:
        return None
    same_names = percents.keys() == old.loads.keys()
    loads = {
        name: old.loads[name] if same_names and abs(value - old.loads[name]) <= step else _nearest(value, step)
        for name, value in percents.items()
    }
    if loads == old.loads and abs(measured_at - old.measured_at) < refresh_seconds:
        return written
    return str(AnnotatedLoad(loads, measured_at))


def whole_number(text: str) -> str:
    """Return the higher load of an annotation's text as a whole number, per mille."""
    return str(round(10 * max(AnnotatedLoad.parse(text).loads.values())))


def largest_change(change: Mapping[str, str | None], written: Mapping[str, str]) -> float:
    """Return the largest difference between new and annotated loads, percentage points.

    A value that is added or removed counts as 100, a new time as 0.

    Args:
        change: new text by annotation key; None removes the annotation.
        written: current annotations of the node.
    """
    largest = 0.0
    for key, text in change.items():
        if key.endswith(WHOLE_NUMBER):
            largest = max(largest, 0.0 if text and key in written else 100.0)
            continue
        after, before = AnnotatedLoad.parse(text or "").loads, AnnotatedLoad.parse(written.get(key, "")).loads
        if after.keys() != before.keys() or (text is None and key in written):
            return 100.0
        largest = max([largest, *(abs(after[name] - before[name]) for name in after)])
    return largest


def oldest_time(written: Mapping[str, str]) -> float:
    """Return the earliest Unix time of a node's annotations; 0 without annotations."""
    texts = [text for key, text in written.items() if not key.endswith(WHOLE_NUMBER)]
    return min((AnnotatedLoad.parse(text).measured_at for text in texts), default=0.0)


def _nearest(value: float, step: float) -> float:
    return min(100.0, max(0.0, step * round(value / step)))
