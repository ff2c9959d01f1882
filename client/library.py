"""The watcher as a library: embedded in this process, no HTTP server. The one module that knows the whole watcher."""

import threading
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from client import errors
from runtime.errors import SettingsError
from runtime.settings.loading import load
from watcher import wire
from watcher.errors import NotServed
from watcher.model import WatcherMetrics
from watcher.pipeline.factory import open_watcher
from watcher.settings import Settings, WatcherSettings
from watcher.wire import Dialect

if TYPE_CHECKING:
    from watcher.history import History
    from watcher.providers.base import SampleProvider, WindowProvider
    from watcher.publishing.cache import Published


class LibraryClient:
    """Embeds a watcher and reads it; several in one process do not touch each other.

    May be used from several threads.

    Attributes:
        source: the name of the provider that it reads, and of those that it falls back to.
    """

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        store_path: str | Path | None = None,
        provider: "WindowProvider | SampleProvider | None" = None,
    ) -> None:
        """Start watching in the background.

        Args:
            settings: the watcher's; read from environment and file, as the service does it, when None.
            store_path: a database file that survives a restart; without one everything stays in memory.
            provider: used instead of the one that the settings name.

        Raises:
            BadSettings: they cannot be used, or name no usable provider.
        """
        try:
            settings = settings or load(WatcherSettings).settings
            self._watcher = open_watcher(settings, Path(store_path) if store_path else None, provider=provider)
        except SettingsError as error:
            raise errors.BadSettings(str(error)) from error
        self.source = ", else ".join(view.provider.name for view in settings.for_each_provider())
        self._patience = settings.watch.fetch_timeout_seconds
        self._seen: dict[str | None, tuple[Published, WatcherMetrics]] = {}
        self._lock = threading.Lock()
        self._watcher.start()

    def metrics(self, window: str | None = None) -> WatcherMetrics:
        """Return all nodes' metrics; see :class:`~client.WatcherClient`.

        Waits for the first fetch, unless the store has fresh metrics of the run before.
        """
        published = self._published(window)
        with self._lock:
            seen, metrics = self._seen.get(window, (None, None))
            if metrics is None or seen is not published:
                # Through the wire, so that both modes return equal objects by construction.
                metrics = wire.decode(published.body(Dialect.DOCUMENTED).identity, Dialect.DOCUMENTED)
                self._seen[window] = (published, metrics)
        return metrics

    def node_metrics(self, node: str, window: str | None = None) -> WatcherMetrics:
        """Return one node's metrics; see :class:`~client.WatcherClient`."""
        body = self._published(window).node_body(node, Dialect.DOCUMENTED)
        if body is None:
            raise errors.UnknownNode(f"the embedded watcher has no metrics for node {node[:80]!r}")
        return wire.decode(body, Dialect.DOCUMENTED)

    def history(
        self,
        node: str | None = None,
        *,
        type: str | None = None,  # noqa: A002  the word of the contract
        operator: str | None = None,
        since: float | str | None = None,
        step: int | str | None = None,
    ) -> "History":
        """Return what nodes used over the last hours; see :class:`~client.WatcherClient`. None without a store."""
        found = self._watcher.history(node, type, operator, since=since, step=step)
        if node is not None and not found.nodes:
            raise errors.UnknownNode(f"the embedded watcher has no such history of node {node[:80]!r}")
        return found

    def health(self) -> tuple[str, ...]:
        """Return why the watcher is not healthy; empty when it is. Waits as :meth:`metrics` does."""
        if not self._watcher.is_ready():
            self._watcher.wait_for_first_fetch(self._patience)
        return self._watcher.health().reasons

    def close(self) -> None:
        """Stop watching."""
        self._watcher.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _published(self, window: str | None) -> "Published":
        try:
            try:
                return self._watcher.published(window)
            except NotServed as error:
                if not error.lacks_metrics:
                    raise
            # Only now: a provider that hangs must not hold up what the run before left fresh.
            self._watcher.wait_for_first_fetch(self._patience)
            return self._watcher.published(window)
        except NotServed as error:
            raise errors.BY_CODE[error.code](f"the embedded watcher: {error}") from error
