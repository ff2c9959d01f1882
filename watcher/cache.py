"""The published snapshots, encoded. A request is a look-up here and a write.

Each node is encoded once; the fragments are shared by both dialects and by replies about one host. The default body is
built when a snapshot is published, other variants at their first request; all go when the snapshot goes.
"""

import gzip
import hashlib
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace

from watcher import wire
from watcher.model import WatcherMetrics
from watcher.wire import Dialect

_GZIP_LEVEL = 1


@dataclass(frozen=True, slots=True)
class Body:
    """A reply's body, with and without compression, and the (weak) entity tag that both share."""

    identity: bytes
    gzip: bytes
    etag: str


class Published:
    """One snapshot and its encoded forms. Safe to read from several threads."""

    def __init__(self, metrics: WatcherMetrics, dialect: Dialect = Dialect.DOCUMENTED) -> None:
        self.metrics = metrics
        self._fragments = {name: wire.encode_node(name, node) for name, node in metrics.data.items()}
        self._dialect = dialect
        self._bodies = {dialect: self._build(dialect)}
        self._degraded: dict[str, Published] = {}
        self._lock = threading.Lock()

    def body(self, dialect: Dialect) -> Body:
        """Return all nodes in a dialect."""
        body = self._bodies.get(dialect)
        if body is None:
            with self._lock:
                body = self._bodies.get(dialect) or self._build(dialect)
                self._bodies[dialect] = body
        return body

    def node_body(self, node: str, dialect: Dialect) -> bytes | None:
        """Return one node in a dialect, or None when it is not among the nodes."""
        fragment = self._fragments.get(node)
        return None if fragment is None else wire.assemble(self.metrics, [fragment], dialect)

    def graded(self, grade: str) -> "Published":
        """Return the same snapshot with a grade in every node's metadata."""
        with self._lock:
            if grade not in self._degraded:
                data = {
                    name: replace(node, metadata={**node.metadata, "grade": grade})
                    for name, node in self.metrics.data.items()
                }
                self._degraded[grade] = Published(replace(self.metrics, data=data), self._dialect)
            return self._degraded[grade]

    def _build(self, dialect: Dialect) -> Body:
        identity = wire.assemble(self.metrics, self._fragments.values(), dialect)
        digest = hashlib.blake2b(identity, digest_size=12).hexdigest()
        return Body(identity, gzip.compress(identity, _GZIP_LEVEL, mtime=0), f'W/"{digest}"')


class Cache:
    """The newest snapshot of each window. Reading takes no lock: publishing replaces the whole mapping."""

    def __init__(self, dialect: Dialect = Dialect.DOCUMENTED) -> None:
        self._dialect = dialect
        self._published: Mapping[str, Published] = {}

    def publish(self, snapshots: Mapping[str, WatcherMetrics]) -> dict[str, wire.WireError]:
        """Make snapshots, by window, the ones that are served; return why, for those that cannot be encoded."""
        fresh: dict[str, Published] = {}
        failures: dict[str, wire.WireError] = {}
        for window, metrics in snapshots.items():
            try:
                fresh[window] = Published(metrics, self._dialect)
            except wire.WireError as error:
                failures[window] = error
        self._published = {**self._published, **fresh}
        return failures

    def get(self, window: str) -> Published | None:
        """Return the newest snapshot of a window."""
        return self._published.get(window)
