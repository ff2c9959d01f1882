"""Annotations with a node's average load: ``load.trimaran.io/15m: "cpu=40,memory=55"``, percent of capacity.

Values are multiples of a step. A written value stays until the measured load differs from it by more than a step, so
that small changes around the middle between two steps cause no writes.
"""

from collections.abc import Iterator, Mapping

PREFIX = "load.trimaran.io/"
_NAMES = {"CPU": "cpu", "Memory": "memory"}


def desired_annotation(
    window: str, averages: Mapping[str, float], written: Mapping[str, str], step: float
) -> Mapping[str, str]:
    """Return the annotation of a window as a mapping from its key to its text; values within a step stay as written.

    Args:
        window: duration such as ``15m``.
        averages: metric type to percent.
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
    """Return the largest difference in percent between new and written values; 100 if a value is added or removed."""
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
