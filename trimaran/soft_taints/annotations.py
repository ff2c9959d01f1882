"""What annotations say of a node's windows: ``load.trimaran.io/15m: "cpu=40,memory=55"``, percent of capacity.

Values are multiples of a step, and one that is written stays until what was measured is more than a step away from it:
small moves around the middle between two steps write nothing.
"""

from collections.abc import Iterator, Mapping

PREFIX = "load.trimaran.io/"
_NAMES = {"CPU": "cpu", "Memory": "memory"}


def wanted(window: str, averages: Mapping[str, float], written: Mapping[str, str], step: float) -> Mapping[str, str]:
    """Return the annotation of a window, by its key; what is written where that still holds.

    Args:
        window: such as ``15m``.
        averages: metric type to percent.
        written: the node's annotations.
        step: percent.
    """
    key = PREFIX + window
    before = dict(_parsed(written.get(key, "")))
    found = {name: averages[type_] for type_, name in _NAMES.items() if type_ in averages}
    kept = found.keys() == before.keys()
    said = {
        name: before[name] if kept and abs(value - before[name]) <= step else _nearest(value, step)
        for name, value in found.items()
    }
    return {key: ",".join(f"{name}={value:g}" for name, value in said.items())} if said else {}


def distance(change: Mapping[str, str | None], written: Mapping[str, str]) -> float:
    """Return by how many percent a change moves what is written at most; what is new is as far as can be."""
    most = 0.0
    for key, text in change.items():
        after, before = dict(_parsed(text or "")), dict(_parsed(written.get(key, "")))
        if after.keys() != before.keys():
            return 100.0
        most = max([most, *(abs(after[name] - before[name]) for name in after)])
    return most


def _nearest(value: float, step: float) -> float:
    return min(100.0, max(0.0, step * round(value / step)))


def _parsed(text: str) -> Iterator[tuple[str, float]]:
    for part in text.split(","):
        name, _, value = part.partition("=")
        try:
            yield name, float(value)
        except ValueError:  # somebody else's words, or none
            return
