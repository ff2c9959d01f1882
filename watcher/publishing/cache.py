"""Cache of the published snapshots in encoded form. A request only needs a lookup.

Each node is encoded once; the fragments are shared by both dialects, by responses about one host, and by snapshots that
have the same node. The default body is built when a snapshot is published, other variants (the other dialect, the
columnar form) at their first request. All of them are dropped together with the snapshot.
"""

import gzip
import hashlib
import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from watcher import wire
from watcher.freshness import Freshness
from watcher.model import NodeMetrics, WatcherMetrics
from watcher.publishing import substitution
from watcher.wire import Dialect

_GZIP_LEVEL = 1


@dataclass(frozen=True, slots=True)
class Body:
    """Body of a response, with and without compression, and their common weak entity tag."""

    identity: bytes
    gzip: bytes
    etag: str


class Published:
    """Snapshot with its encoded forms. Safe to read from several threads."""

    def __init__(
        self, metrics: WatcherMetrics, dialect: Dialect = Dialect.DOCUMENTED, like: "Published | None" = None
    ) -> None:
        """Encode a snapshot.

        Args:
            metrics: the snapshot.
            dialect: dialect whose body is built immediately.
            like: earlier snapshot; nodes that are identical objects in both are not encoded again.

        Raises:
            WireError: a value is not finite, or a text is not valid Unicode.
        """
        self.metrics = metrics
        self._fragments = _encode_nodes(metrics, like)
        self._frames = {each: wire.frame(metrics, each) for each in Dialect}
        self._bodies: dict[Dialect | None, Body] = {dialect: self._build(dialect)}
        self._lock = threading.Lock()

    def grades(self) -> Counter[str]:
        """Count the nodes by grade; a node without a grade counts as ``measured``."""
        return Counter(str(node.metadata.get("grade", "measured")) for node in self.metrics.data.values())

    def body(self, dialect: Dialect | None) -> Body:
        """Return all nodes in a dialect, or in the columnar form if ``dialect`` is None."""
        body = self._bodies.get(dialect)
        if body is None:
            with self._lock:
                body = self._bodies.get(dialect) or self._build(dialect)
                self._bodies[dialect] = body
        return body

    def built(self, dialect: Dialect | None) -> Body | None:
        """Return the body that :meth:`body` returns, or None if it has not been built yet."""
        return self._bodies.get(dialect)

    def node_body(self, node: str, dialect: Dialect) -> bytes | None:
        """Return one node in a dialect, or None if the node is unknown."""
        fragment = self._fragments.get(node)
        if fragment is None:
            return None
        before, after = self._frames[dialect]
        return before + fragment + after

    def fragment_of(self, name: str, node: NodeMetrics) -> bytes | None:
        """Return the fragment of a node, or None if the snapshot does not have this very object under this name."""
        return self._fragments[name] if self.metrics.data.get(name) is node else None

    def _build(self, dialect: Dialect | None) -> Body:
        if dialect is None:
            identity = wire.encode_columns(self.metrics)
        else:
            before, after = self._frames[dialect]
            identity = b"".join((before, b",".join(self._fragments.values()), after))
        digest = hashlib.blake2b(identity, digest_size=12).hexdigest()
        return Body(identity, gzip.compress(identity, _GZIP_LEVEL, mtime=0), f'W/"{digest}"')


def _encode_nodes(metrics: WatcherMetrics, like: Published | None) -> dict[str, bytes]:
    """Encode the nodes of a snapshot; reuse the fragments of nodes that are identical objects in ``like``."""
    return {
        name: (like and like.fragment_of(name, node)) or wire.encode_node(name, node)
        for name, node in metrics.data.items()
    }


@dataclass(frozen=True, slots=True)
class _Selection:
    """Snapshots to serve until one of their values expires.

    Attributes:
        fetched: snapshots of the last fetch, by window.
        exact: snapshots for requests that name a window, by window.
        default: snapshot for requests without a window; None if no data are fresh.
        until: Unix seconds after which some value is no longer fresh.
    """

    fetched: Mapping[str, WatcherMetrics] = field(default_factory=dict)
    exact: Mapping[str, Published] = field(default_factory=dict)
    default: Published | None = None
    until: float = float("inf")


@dataclass(frozen=True, slots=True)
class Publication:
    """Prepared snapshots that can be published.

    Attributes:
        selection: snapshots to serve, and their expiry.
        failures: window to the error if its snapshot cannot be encoded; the window is then not part of ``selection``.
    """

    selection: _Selection
    failures: Mapping[str, wire.WireError] = field(default_factory=dict)

    def encode(self, metrics: WatcherMetrics) -> bytes:
        """Encode a snapshot in the documented dialect; reuse the fragments of nodes that are prepared already."""
        fragments = _encode_nodes(metrics, self.selection.exact.get(metrics.window.duration))
        return wire.assemble(metrics, fragments.values(), Dialect.DOCUMENTED)


class Cache:
    """Newest snapshot of each window, with missing values substituted (``substitution``).

    The snapshots to serve are computed when a fetch is published, and again when one of their values has expired.
    Every other read is a lookup without a lock.
    """

    def __init__(self, order: Sequence[str], expiry_seconds: float, dialect: Dialect = Dialect.DOCUMENTED) -> None:
        """Create an empty cache.

        Args:
            order: the default window, then the windows that may replace it, best first.
            expiry_seconds: age above which measurements are not used as substitutes.
            dialect: dialect whose bodies are built when a snapshot is published.
        """
        self._order = order
        self._expiry_seconds = expiry_seconds
        self._dialect = dialect
        self._selection = _Selection()
        self._lock = threading.Lock()

    def prepare(self, fetched: Mapping[str, WatcherMetrics], now: float) -> Publication:
        """Encode the snapshots of a fetch, by window, without serving them yet."""
        with self._lock:
            return self._select(fetched, now)

    def show(self, prepared: Publication) -> None:
        """Serve a prepared publication."""
        with self._lock:
            self._selection = prepared.selection

    def publish(self, fetched: Mapping[str, WatcherMetrics], now: float) -> Mapping[str, wire.WireError]:
        """Serve the snapshots of a fetch, by window; return the errors of windows that cannot be encoded."""
        prepared = self.prepare(fetched, now)
        self.show(prepared)
        return prepared.failures

    def clear(self) -> None:
        """Serve nothing until the next publication."""
        with self._lock:
            self._selection = _Selection()

    def get(self, window: str) -> Published | None:
        """Return the newest snapshot of exactly this window, however old; its nodes may have expired."""
        return self._selection.exact.get(window)

    def served(self, window: str | None, now: float) -> Published | None:
        """Return the snapshot to serve for exactly this window, or by default; None if no data are fresh.

        Args:
            window: one of the windows, or None for the default.
            now: Unix seconds.
        """
        selection = self._selection
        if now > selection.until:
            with self._lock:
                if now > self._selection.until:
                    self._selection = self._select(self._selection.fetched, now).selection
                selection = self._selection
        return self._find(selection, window, now)

    def ready(self, window: str | None, now: float) -> Published | None:
        """Return the snapshot that :meth:`served` returns, or None if it must be computed first. Never waits."""
        selection = self._selection
        return self._find(selection, window, now) if now <= selection.until else None

    def _find(self, selection: _Selection, window: str | None, now: float) -> Published | None:
        found = selection.default if window is None else selection.exact.get(window)
        freshness = Freshness(now, self._expiry_seconds)
        return found if found is not None and freshness.is_fresh(found.metrics.window.end) else None

    def _select(self, fetched: Mapping[str, WatcherMetrics], now: float) -> Publication:
        fresh, before = Freshness(now, self._expiry_seconds), self._selection.exact
        current, exact = dict(fetched), dict(before)
        failures: dict[str, wire.WireError] = {}
        for window in {**before, **fetched}:
            old = before.get(window)
            last = old.metrics if old else None
            try:
                found = self._encode(substitution.of_window(current.get(window), last, fresh), [old])
            except wire.WireError as error:
                failures[window] = error
                del current[window]
                found = self._encode(substitution.of_window(None, last, fresh), [old])
            if found is not None:
                exact[window] = found
        default = substitution.of_default(
            self._order, current, {window: found.metrics for window, found in exact.items()}, fresh
        )
        served = self._encode(default, [*exact.values(), self._selection.default])
        shown = [found.metrics for found in (*exact.values(), served) if found is not None]
        return Publication(_Selection(current, exact, served, substitution.fresh_until(shown, fresh)), failures)

    def _encode(self, metrics: WatcherMetrics | None, known: Iterable[Published | None]) -> Published | None:
        """Encode a snapshot; reuse the fragments of a known snapshot with the same window."""
        if metrics is None:
            return None
        alike = None
        for each in known:
            if each is not None and each.metrics is metrics:
                return each
            if each is not None and each.metrics.window.duration == metrics.window.duration:
                alike = each
        return Published(metrics, self._dialect, alike)
