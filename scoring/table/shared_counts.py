"""Counts by key that a node table and its copies share; a copy takes time by the number of keys, not of pods."""

from collections.abc import Hashable, Iterable, Iterator, Mapping
from itertools import chain
from typing import Generic, TypeVar

import numpy as np

from scoring.arrays import Int64s

Key = TypeVar("Key", bound=Hashable)
Member = TypeVar("Member", bound=Hashable)
_MAX_ARRAYS = 512  # each takes eight bytes a node
_MANY_KEYS = 32


class SharedCounts(Generic[Key, Member]):
    """Counts by key and member, such as the number of pods with a label (the key) on each node (the members).

    A copy shares the counts of a key with the original until one of them changes them (copy on write).
    """

    __slots__ = ("_by_key", "_unshared")

    def __init__(self) -> None:
        self._by_key: dict[Key, dict[Member, int]] = {}
        self._unshared: set[Key] = set()  # keys whose counts no copy shares

    def __iter__(self) -> Iterator[Key]:
        return iter(self._by_key)

    def __len__(self) -> int:
        return len(self._by_key)

    def get(self, key: Key) -> Mapping[Member, int]:
        """Return the counts of a key by member, all of which are above 0."""
        return self._by_key.get(key) or {}

    def change(self, key: Key, member: Member, by: int) -> bool:
        """Add ``by`` to a count; return whether the key had no counts before, or has none now."""
        counts = self._by_key.get(key)
        is_first = counts is None
        if counts is None or key not in self._unshared:
            counts = self._by_key[key] = dict(counts or {})
            self._unshared.add(key)
        count = counts.get(member, 0) + by
        if count:
            counts[member] = count
            return is_first
        del counts[member]
        if counts:
            return False
        del self._by_key[key]
        self._unshared.discard(key)
        return True

    def copy_to(self, other: "SharedCounts[Key, Member]") -> None:
        """Make another object share the counts of this one."""
        self._unshared = set()
        other._by_key, other._unshared = dict(self._by_key), set()  # noqa: SLF001  same class


class NodeCounts(SharedCounts[Key, int]):
    """Number of pods on each node by key; the members are the ids of the nodes.

    The array of each key in use is cached, and updated together with the counts.
    """

    __slots__ = ("_arrays", "_unshared_arrays")

    def __init__(self) -> None:
        super().__init__()
        self._arrays: dict[Key, Int64s] = {}
        self._unshared_arrays: set[Key] = set()

    def change_row(self, key: Key, node_id: int, row: int, by: int) -> bool:
        """Change the count of a node, given by its id and its row. See :meth:`change`."""
        array = self._arrays.get(key)
        if array is not None:
            if key not in self._unshared_arrays:
                array = self._arrays[key] = array.copy()
                self._unshared_arrays.add(key)
            array[row] += by
        return self.change(key, node_id, by)

    def array(self, key: Key, ids: Int64s) -> Int64s:
        """Return the count of each node, shape (nodes,); the array must not be modified, and changes with the counts.

        Args:
            key: the key.
            ids: ids of the nodes by row, ascending.
        """
        array = self._arrays.get(key)
        if array is None:
            if len(self._arrays) >= _MAX_ARRAYS:
                self.forget_arrays()
            array = self._arrays[key] = self._sum([key], ids)
            self._unshared_arrays.add(key)
        return array

    def sum(self, keys: list[Key], ids: Int64s) -> Int64s:
        """Return the sum of the counts of several keys, shape (nodes,), which must not be modified.

        Args:
            keys: keys that have counts.
            ids: ids of the nodes by row, ascending.
        """
        if len(keys) > _MANY_KEYS:
            return self._sum(keys, ids)
        arrays = [self.array(key, ids) for key in keys]
        return arrays[0] if len(arrays) == 1 else np.add.reduce(arrays) if arrays else np.zeros(len(ids), np.int64)

    def forget_arrays(self) -> None:
        """Forget the arrays, because the rows of the nodes changed."""
        self._arrays, self._unshared_arrays = {}, set()

    def copy(self) -> "NodeCounts[Key]":
        """Return an independent copy."""
        copied: NodeCounts[Key] = NodeCounts()
        self.copy_to(copied)
        self._unshared_arrays = set()
        copied._arrays = dict(self._arrays)
        return copied

    def _sum(self, keys: Iterable[Key], ids: Int64s) -> Int64s:
        counts = [self.get(key) for key in keys]
        size = sum(map(len, counts))
        rows = np.searchsorted(ids, np.fromiter(chain.from_iterable(counts), np.int64, size))
        numbers = np.fromiter(chain.from_iterable(each.values() for each in counts), np.int64, size)
        return np.bincount(rows, numbers, len(ids)).astype(np.int64)
