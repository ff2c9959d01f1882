"""Index that a node table and its copies share; the time to copy it does not depend on the number of entries."""

from collections.abc import Hashable, Iterable, Iterator
from typing import Generic, TypeVar

# A power of two. A copy costs one reference per bucket, and a write after it the copy of one bucket.
_BUCKETS = 1024

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class SharedIndex(Generic[Key, Value]):
    """Dictionary with a fast copy, such as from the uid of a pod to the name of its node.

    The entries are divided into 1,024 buckets, which an index and its copies share. A write to a shared bucket copies
    that bucket first (copy on write).

    Args:
        items: pairs of key and value; values are never modified.
        shared: buckets of another index, which the new index shares.
    """

    __slots__ = ("_buckets", "_unshared")

    def __init__(
        self, items: Iterable[tuple[Key, Value]] = (), *, shared: list[dict[Key, Value]] | None = None
    ) -> None:
        self._buckets: list[dict[Key, Value]] = [{}] * _BUCKETS if shared is None else list(shared)
        self._unshared: set[int] = set()  # numbers of the buckets that no copy shares
        for key, value in items:
            self.put(key, value)

    def __iter__(self) -> Iterator[tuple[Key, Value]]:
        for bucket in self._buckets:
            yield from bucket.items()

    def __repr__(self) -> str:
        return f"SharedIndex({sorted(self)!r})"

    def __reduce__(self) -> tuple[type["SharedIndex[Key, Value]"], tuple[list[tuple[Key, Value]]]]:
        # String hashes differ between processes, so pickle the items instead of the buckets.
        return SharedIndex, (list(self),)

    def get(self, key: Key) -> Value | None:
        """Return the value of a key; None if the key is not in the index."""
        return self._buckets[hash(key) % _BUCKETS].get(key)

    def put(self, key: Key, value: Value) -> None:
        """Set the value of a key; an earlier value is replaced."""
        self._writable(key)[key] = value

    def drop(self, key: Key) -> None:
        """Remove a key, which must be in the index."""
        del self._writable(key)[key]

    def copy(self) -> "SharedIndex[Key, Value]":
        """Return an independent copy."""
        self._unshared = set()
        return SharedIndex(shared=self._buckets)

    def _writable(self, key: Key) -> dict[Key, Value]:
        number = hash(key) % _BUCKETS
        if number not in self._unshared:
            self._buckets[number] = dict(self._buckets[number])
            self._unshared.add(number)
        return self._buckets[number]
