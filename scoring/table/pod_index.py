"""Where each pod is: a mapping whose copies cost the same however many pods there are."""

from collections.abc import Iterable, Iterator

# A power of two. A write after a copy costs a copy of one bucket, a copy costs one reference a bucket.
_BUCKETS = 1024


class PodIndex:
    """A pod's uid to the name of its node.

    Kept in buckets that copies share; whoever writes to a shared bucket copies that one first (copy on write).

    Args:
        items: pairs of uid and node name.
        shared: the buckets of another one to start with.
    """

    __slots__ = ("_buckets", "_own")

    def __init__(self, items: Iterable[tuple[str, str]] = (), *, shared: list[dict[str, str]] | None = None) -> None:
        self._buckets = [{}] * _BUCKETS if shared is None else list(shared)
        self._own: set[int] = set()  # the buckets that no copy shares
        for uid, node_name in items:
            self.put(uid, node_name)

    def __iter__(self) -> Iterator[tuple[str, str]]:
        for bucket in self._buckets:
            yield from bucket.items()

    def __repr__(self) -> str:
        return f"PodIndex({sorted(self)!r})"

    def __reduce__(self) -> tuple[type["PodIndex"], tuple[list[tuple[str, str]]]]:
        # Another process hashes strings another way, so buckets mean nothing there.
        return PodIndex, (list(self),)

    def get(self, uid: str) -> str | None:
        """Return the name of the pod's node; None when it is on none."""
        return self._buckets[hash(uid) % _BUCKETS].get(uid)

    def put(self, uid: str, node_name: str) -> None:
        """Note where a pod is."""
        self._writable(uid)[uid] = node_name

    def drop(self, uid: str) -> None:
        """Forget a pod that is here."""
        del self._writable(uid)[uid]

    def copy(self) -> "PodIndex":
        """Return one that is equal now, and apart from now on."""
        self._own = set()
        return PodIndex(shared=self._buckets)

    def _writable(self, uid: str) -> dict[str, str]:
        place = hash(uid) % _BUCKETS
        if place not in self._own:
            self._buckets[place] = dict(self._buckets[place])
            self._own.add(place)
        return self._buckets[place]
