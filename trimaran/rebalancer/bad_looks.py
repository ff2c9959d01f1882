"""Consecutive searches that find a node worth relieving: pods leave a node only after several such searches."""

from collections.abc import Collection


class BadLooks:
    """Counts of consecutive searches by node.

    Args:
        bad: number of consecutive searches that must find a node before pods leave it.
        good: number of consecutive searches that do not find a node, after which its count is reset.
    """

    def __init__(self, bad: int, good: int) -> None:
        self._bad, self._good = bad, good
        self._counts: dict[str, tuple[int, int]] = {}  # searches that found the node; later searches that did not

    def observe(self, sources: Collection[str]) -> None:
        """Count a search that found these nodes worth relieving."""
        counts = {}
        for name in {*self._counts, *sources}:
            found, without = self._counts.get(name, (0, 0))
            if name in sources:
                counts[name] = min(found + 1, self._bad), 0
            elif without + 1 < self._good:
                # A search that does not find the node resets a count below the limit: the searches must be consecutive.
                counts[name] = found if found >= self._bad else 0, without + 1
        self._counts = counts

    @property
    def is_counting(self) -> bool:
        """True if a node was found in some searches, but not yet in enough to be confirmed."""
        return any(0 < found < self._bad for found, _ in self._counts.values())

    def is_confirmed(self, name: str) -> bool:
        """Return whether enough searches in a row found a node."""
        return self._counts.get(name, (0, 0))[0] >= self._bad

    def missing(self, name: str) -> int:
        """Return the number of further searches in a row that must find a node."""
        return self._bad - self._counts.get(name, (0, 0))[0]

    def forget(self) -> None:
        """Reset all counts, such as after a pause in which no search ran."""
        self._counts = {}
