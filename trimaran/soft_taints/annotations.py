"""Annotations with a node's average load: ``load.trimaran.io/15m: "cpu=40,memory=55"``, percent of capacity.

Annotated values are multiples of a step, such as 5 percent. An annotated value stays until the measured load differs
from it by more than one step, so that a load that varies around the middle between two steps causes no writes.
"""

from collections.abc import Iterator, Mapping

PREFIX = "load.trimaran.io/"
_NAMES = {"CPU": "cpu", "Memory": "memory"}


def desired_annotation(
    window: str, averages: Mapping[str, float], written: Mapping[str, str], step: float
) -> Mapping[str, str]:
    """Return the annotation for a window as a mapping from key to text; empty if neither CPU nor memory is measured.

    An annotated value is kept if the measured load differs from it by at most one step.

    Args:
        window: duration such as ``15m``.
        averages: average load by metric type, percent.
        written: current annotations of the node.
        step: step between two values, percent.
    """
    key = PREFIX + window
    old = dict(_parsed(written.get(key, "")))
    percents = {name: averages[type_] for type_, name in _NAMES.items() if type_ in averages}
    same_names = percents.keys() == old.keys()
    values = {
        name: old[name] if same_names and abs(value - old[name]) <= step else _nearest(value, step)
        for name, value in percents.items()
    }
    return {key: ",".join(f"{name}={value:g}" for name, value in values.items())} if values else {}


def largest_change(change: Mapping[str, str | None], written: Mapping[str, str]) -> float:
    """Return the largest difference between new and annotated loads, percentage points.

    A value that is added or removed counts as 100.

    Args:
        change: new text by annotation key; None removes the annotation.
        written: current annotations of the node.
    """
    largest = 0.0
    for key, text in change.items():
        after, before = dict(_parsed(text or "")), dict(_parsed(written.get(key, "")))
        if after.keys() != before.keys():
            return 100.0
        largest = max([largest, *(abs(after[name] - before[name]) for name in after)])
    return largest


def _nearest(value: float, step: float) -> float:
    return min(100.0, max(0.0, step * round(value / step)))


def _parsed(text: str) -> Iterator[tuple[str, float]]:
    for part in text.split(","):
        name, _, value = part.partition("=")
        try:
            yield name, float(value)
        except ValueError:  # empty, or not written by us
            return
