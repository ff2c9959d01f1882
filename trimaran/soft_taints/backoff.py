"""Backoff by node: a node whose writes fail is retried ever less often, and after the other nodes."""

from collections.abc import Container
from dataclasses import dataclass

_MIN_SECONDS = 5.0
_MAX_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class FailedWrites:
    """Failed writes of a node.

    Attributes:
        count: number of writes that failed since the last success.
        retry_at: time from which the node may be written again.
    """

    count: int
    retry_at: float


class NodeBackoff:
    """Nodes whose last write failed; the length is their number. All times are seconds of one monotonic clock."""

    def __init__(self) -> None:
        self._failed: dict[str, FailedWrites] = {}

    def __len__(self) -> int:
        return len(self._failed)

    def record_failure(self, name: str, now: float) -> None:
        """Delay the node's next write: by 5 seconds, then by twice as long each time, up to 5 minutes."""
        count = self.failures(name) + 1
        self._failed[name] = FailedWrites(count, now + min(_MIN_SECONDS * 2 ** min(count - 1, 10), _MAX_SECONDS))

    def record_success(self, name: str) -> None:
        """Forget the node's failed writes."""
        self._failed.pop(name, None)

    def keep_only(self, names: Container[str]) -> None:
        """Forget all nodes except these; the others have been deleted."""
        self._failed = {name: failed for name, failed in self._failed.items() if name in names}

    def failures(self, name: str) -> int:
        """Return the number of the node's writes that failed since the last success."""
        failed = self._failed.get(name)
        return 0 if failed is None else failed.count

    def is_waiting(self, name: str, now: float) -> bool:
        """Return whether the node must not be written yet."""
        failed = self._failed.get(name)
        return failed is not None and now < failed.retry_at
