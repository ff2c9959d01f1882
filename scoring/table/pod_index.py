"""Index from pod to node; the time to copy it does not depend on the number of pods."""

from collections.abc import Iterable, Iterator

# A power of two. A copy costs one reference per bucket, and a write after it the copy of one bucket.
_BUCKETS = 1024


class PodIndex:
    """Index from the uid of a pod to the name of its node.

    The entries are divided into 1,024 buckets, which an index and its copies share. A write to a shared bucket copies
    that bucket first (copy on write).

    Args:
        items: pairs of uid and node name.
        shared: buckets of another index, which the new index shares.
    """

    __slots__ = ("_buckets", "_unshared")

    def __init__(self, items: Iterable[tuple[str, str]] = (), *, shared: list[dict[str, str]] | None = None) -> None:
        self._buckets = [{}] * _BUCKETS if shared is None else list(shared)
        self._unshared: set[int] = set()  # numbers of the buckets that no copy shares
        for uid, node_name in items:
            self.put(uid, node_name)

    def __iter__(self) -> Iterator[tuple[str, str]]:
        for bucket in self._buckets:
            yield from bucket.items()

    def __repr__(self) -> str:
        return f"PodIndex({sorted(self)!r})"

    def __reduce__(self) -> tuple[type["PodIndex"], tuple[list[tuple[str, str]]]]:
        # String hashes differ between processes, so pickle the items instead of the buckets.
        return PodIndex, (list(self),)

    def get(self, uid: str) -> str | None:
        """Return the name of the pod's node; None if the pod is not in the index."""
        return self._buckets[hash(uid) % _BUCKETS].get(uid)

    def put(self, uid: str, node_name: str) -> None:
        """Record the node of a pod; a node recorded before is replaced."""
        self._writable(uid)[uid] = node_name

    def drop(self, uid: str) -> None:
        """Remove a pod, which must be in the index."""
        del self._writable(uid)[uid]

    def copy(self) -> "PodIndex":
        """Return an independent copy."""
        self._unshared = set()
        return PodIndex(shared=self._buckets)

    def _writable(self, uid: str) -> dict[str, str]:
        number = hash(uid) % _BUCKETS
        if number not in self._unshared:
            self._buckets[number] = dict(self._buckets[number])
            self._unshared.add(number)
        return self._buckets[number]
