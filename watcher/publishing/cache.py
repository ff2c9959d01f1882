"""Cache of the published snapshots in encoded form, so that an HTTP request only needs a lookup.

Each node is encoded once, as a fragment of JSON. Responses in both dialects, responses about one node, and later
snapshots with the same node share this fragment. The body in the configured dialect is built when a snapshot is
published, other bodies (the other dialect, the columnar form) at their first request. All bodies are dropped together
with the snapshot.
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
    """Body of an HTTP response.

    Attributes:
        identity: the body without compression.
        gzip: the body compressed with gzip.
        etag: weak entity tag of both forms.
    """

    identity: bytes
    gzip: bytes
    etag: str


class Published:
    """Snapshot with the bodies of the HTTP responses that contain it. Safe to read from several threads."""

    def __init__(
        self, metrics: WatcherMetrics, dialect: Dialect = Dialect.DOCUMENTED, like: "Published | None" = None
    ) -> None:
        """Encode a snapshot.

        Args:
            metrics: the snapshot.
            dialect: JSON dialect whose body is built immediately.
            like: an earlier snapshot. A node that is the same object in both snapshots is not encoded again.

        Raises:
            WireError: a value is not finite, or a text is not valid Unicode.
        """
        self.metrics = metrics
        self._fragments = _encode_nodes(metrics, like)
        self._frames = {each: wire.frame(metrics, each) for each in Dialect}
        self._bodies: dict[Dialect | None, Body] = {dialect: self._build(dialect)}
        self._lock = threading.Lock()

    def grades(self) -> Counter[str]:
        """Count the nodes of each grade: ``shorter_window``, ``last_good``; ``measured`` for a node without a grade."""
        return Counter(str(node.metadata.get("grade", "measured")) for node in self.metrics.data.values())

    def body(self, dialect: Dialect | None) -> Body:
        """Return the response body with all nodes; build it if this is the first call for the dialect.

        Args:
            dialect: the JSON dialect; None for the columnar form.
        """
        body = self._bodies.get(dialect)
        if body is None:
            with self._lock:
                body = self._bodies.get(dialect) or self._build(dialect)
                self._bodies[dialect] = body
        return body

    def built(self, dialect: Dialect | None) -> Body | None:
        """Return the same body as :meth:`body`, or None if it has not been built yet."""
        return self._bodies.get(dialect)

    def node_body(self, node: str, dialect: Dialect) -> bytes | None:
        """Return the response body with one node in a JSON dialect, or None if the node is unknown.

        If the snapshot does not have the name, a name that differs only in case is used, if there is exactly one.
        """
        fragment = self._fragments.get(node)
        if fragment is None:
            alike = [name for name in self._fragments if name.casefold() == node.casefold()]
            if len(alike) != 1:
                return None
            fragment = self._fragments[alike[0]]
        before, after = self._frames[dialect]
        return before + fragment + after

    def fragment_of(self, name: str, node: NodeMetrics) -> bytes | None:
        """Return the encoded JSON of a node; None if the snapshot does not have the same object under this name."""
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
    """Return node name to encoded JSON; nodes that are the same objects in ``like`` are not encoded again."""
    return {
        name: (like and like.fragment_of(name, node)) or wire.encode_node(name, node)
        for name, node in metrics.data.items()
    }


@dataclass(frozen=True, slots=True)
class _Selection:
    """Snapshots to serve until one of their values expires.

    Attributes:
        fetched: window to its snapshot as it was fetched last.
        exact: window to the snapshot to serve if a request names the window.
        default: snapshot to serve if a request names no window; None if no data are fresh.
        until: time of the next expiry of a value, Unix seconds; then the snapshots must be computed again.
    """

    fetched: Mapping[str, WatcherMetrics] = field(default_factory=dict)
    exact: Mapping[str, Published] = field(default_factory=dict)
    default: Published | None = None
    until: float = float("inf")


@dataclass(frozen=True, slots=True)
class Publication:
    """Encoded snapshots of a fetch, from :meth:`Cache.prepare`, which :meth:`Cache.show` can serve.

    Attributes:
        selection: snapshots to serve, and their expiry.
        failures: window to the error, for windows whose fetched snapshot cannot be encoded. ``selection`` then has the
            window's previous snapshot, if there is one.
    """

    selection: _Selection
    failures: Mapping[str, wire.WireError] = field(default_factory=dict)

    def encode(self, metrics: WatcherMetrics) -> bytes:
        """Encode a snapshot in the documented dialect; nodes that ``selection`` has in encoded form are reused."""
        fragments = _encode_nodes(metrics, self.selection.exact.get(metrics.window.duration))
        return wire.assemble(metrics, fragments.values(), Dialect.DOCUMENTED)


class Cache:
    """Newest snapshot of each window, with missing values taken from other snapshots (see module ``substitution``).

    The snapshots to serve are computed when a fetch is published, and again when one of their values has expired.
    Otherwise, reading is a lookup without a lock.
    """

    def __init__(self, order: Sequence[str], expiry_seconds: float, dialect: Dialect = Dialect.DOCUMENTED) -> None:
        """Create an empty cache.

        Args:
            order: the default window, then the windows that may replace it, best first.
            expiry_seconds: age in seconds above which measurements are not served.
            dialect: JSON dialect whose bodies are built when a snapshot is published.
        """
        self._order = order
        self._expiry_seconds = expiry_seconds
        self._dialect = dialect
        self._selection = _Selection()
        self._lock = threading.Lock()

    def prepare(self, fetched: Mapping[str, WatcherMetrics], now: float) -> Publication:
        """Encode the snapshots of a fetch without serving them yet.

        Args:
            fetched: window to its snapshot.
            now: Unix seconds.
        """
        with self._lock:
            return self._select(fetched, now)

    def show(self, prepared: Publication) -> None:
        """Serve the snapshots of a publication, in place of the previous ones."""
        with self._lock:
            self._selection = prepared.selection

    def publish(self, fetched: Mapping[str, WatcherMetrics], now: float) -> Mapping[str, wire.WireError]:
        """Encode the snapshots of a fetch and serve them.

        Args:
            fetched: window to its snapshot.
            now: Unix seconds.

        Returns:
            Window to the error, for windows whose snapshot cannot be encoded.
        """
        prepared = self.prepare(fetched, now)
        self.show(prepared)
        return prepared.failures

    def clear(self) -> None:
        """Drop all snapshots, and serve nothing until the next publication."""
        with self._lock:
            self._selection = _Selection()

    def get(self, window: str) -> Published | None:
        """Return the newest snapshot of a window, however old; None if there is no snapshot of this window."""
        return self._selection.exact.get(window)

    def served(self, window: str | None, now: float) -> Published | None:
        """Return the snapshot to serve; None if no data are fresh.

        Args:
            window: the window, such as ``15m``; None for the default window or, if it has no fresh data, a shorter
                window or the last good snapshot.
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
        """Return the same snapshot as :meth:`served`, or None if it would have to be computed first. Never waits."""
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
        """Encode a snapshot; reuse encoded snapshots and nodes from ``known``.

        If ``known`` has this snapshot in encoded form, it is returned. Otherwise, nodes that are the same objects in
        the last known snapshot of the same window are not encoded again.
        """
        if metrics is None:
            return None
        alike = None
        for each in known:
            if each is not None and each.metrics is metrics:
                return each
            if each is not None and each.metrics.window.duration == metrics.window.duration:
                alike = each
        return Published(metrics, self._dialect, alike)
