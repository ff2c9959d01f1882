"""Client of a watcher that is embedded in this process, without an HTTP server. Imports the whole watcher."""

import threading
from collections.abc import Collection
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from client import arguments, errors
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
    from watcher.pod_use_table import PodUseTable
    from watcher.providers.base import SampleProvider, WindowProvider
    from watcher.publishing.cache import Published
    from watcher.usage.sources.api_pods import ApiPods
    from watcher.workload_table import WorkloadTable


class LibraryClient:
    """Client of a watcher that runs in this process. Several clients in one process are independent of each other.

    Thread-safe.

    Attributes:
        source: name of the provider, and of its fallback providers.
    """

    def __init__(
        self,
        settings: Settings | str | Path | None = None,
        *,
        store_path: str | Path | None = None,
        provider: "WindowProvider | SampleProvider | None" = None,
        pods: "ApiPods | None" = None,
    ) -> None:
        """Start the watcher in the background.

        Args:
            settings: the watcher's settings, or a settings file, whose values environment variables override; None to
                load the settings from environment and file as the service does.
            store_path: database file that survives a restart; None to keep everything in memory.
            provider: provider to use instead of the one in the settings.
            pods: source of the running pods, if this process follows them already; the watcher closes it.

        Raises:
            BadSettings: the settings are invalid, or name no usable provider.
            TypeError: the settings or the provider have another type.
        """
        try:
            if settings is None or isinstance(settings, str | Path):
                settings = load(WatcherSettings, file=None if settings is None else Path(settings)).settings
            _check_types(settings, provider)
            path = Path(store_path) if store_path else None
            self._watcher = open_watcher(settings, path, provider=provider, pods=pods)
        except SettingsError as error:
            raise errors.BadSettings(str(error)) from error
        self.source = ", else ".join(view.provider.name for view in settings.for_each_provider())
        self._timeout_seconds = settings.watch.fetch_timeout_seconds
        self._decoded: dict[str | None, tuple[Published, WatcherMetrics]] = {}
        self._lock = threading.Lock()
        try:
            self._watcher.start()
        except BaseException:  # such as "can't start new thread": without a client, nobody can close the store
            self._watcher.stop()
            raise

    def metrics(self, window: str | None = None) -> WatcherMetrics:
        """Return the metrics of all nodes; see :class:`~client.WatcherClient`.

        Waits for the first fetch, unless the store has fresh metrics from before a restart.
        """
        published = self._published(window)
        with self._lock:
            seen, metrics = self._decoded.get(window, (None, None))
            if metrics is None or seen is not published:
                # Encoded and decoded, so that both modes return equal objects.
                metrics = wire.decode(published.body(Dialect.DOCUMENTED).identity, Dialect.DOCUMENTED)
                self._decoded[window] = (published, metrics)
        return metrics

    def node_metrics(self, node: str, window: str | None = None) -> WatcherMetrics:
        """Return the metrics of one node; see :class:`~client.WatcherClient`."""
        arguments.check_text("node", node)
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
        """Return the use of nodes over the last hours; see :class:`~client.WatcherClient`. Empty without a store."""
        arguments.check_texts(host=node, type=type, operator=operator)
        history = self._watcher.history(node, type, operator, since=since, step=step)
        if node is not None and not history.nodes:
            raise errors.UnknownNode(f"the embedded watcher has no history of this metric for node {node[:80]!r}")
        return history

    def workloads(self) -> "WorkloadTable":
        """Return the expected use of the pods of all workloads; see :class:`~client.WatcherClient`."""
        self._watcher.usage.start()
        table = self._watcher.workloads.table()
        if not table.workloads:
            raise errors.NoMetrics(
                f"the embedded watcher: the use of no workload is known: {self._watcher.usage.why_empty}"
            )
        return table

    def pod_history(self, nodes: Collection[str], pods: Collection[str] = ()) -> "PodUseTable":
        """Return the use of single pods over the last day; see :class:`~client.WatcherClient`."""
        arguments.check_names("nodes", nodes)
        arguments.check_names("pods", pods)
        self._watcher.usage.start()
        table = self._watcher.pod_use.table(nodes, pods)
        if not table.timestamp:
            raise errors.NoMetrics(f"the embedded watcher: the use of no pod is known: {self._watcher.usage.why_empty}")
        return table

    def windows(self) -> tuple[str, ...]:
        """Return the windows that the watcher has metrics of. Waits for the first fetch, as :meth:`metrics` does."""
        self._published(None)
        return tuple(self._watcher.health().ages_seconds)

    def health(self) -> tuple[str, ...]:
        """Return the reasons why the watcher is not healthy; empty if it is. Waits for the first fetch."""
        if not self._watcher.is_ready():
            self._watcher.wait_for_first_fetch(self._timeout_seconds)
        return self._watcher.health().reasons

    def close(self) -> None:
        """Stop the watcher."""
        self._watcher.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _published(self, window: str | None) -> "Published":
        arguments.check_texts(window=window)
        try:
            try:
                return self._watcher.published(window)
            except NotServed as error:
                if not error.lacks_metrics:
                    raise
            # Waits only if nothing is published: a provider that hangs must not delay fresh metrics from the store.
            self._watcher.wait_for_first_fetch(self._timeout_seconds)
            return self._watcher.published(window)
        except NotServed as error:
            raise errors.BY_CODE[error.code](f"the embedded watcher: {error}") from error


def _check_types(settings: object, provider: object) -> None:
    """Check the types of arguments that a background thread would otherwise fail on.

    Raises:
        TypeError: an argument has another type.
    """
    if not isinstance(settings, Settings):
        raise TypeError(f"settings: must be Settings or the path of a settings file, got a {type(settings).__name__}")
    if provider is not None and not (hasattr(provider, "fetch") or hasattr(provider, "sample")):
        raise TypeError(
            f"provider: must be a provider, with a method fetch or sample, got a {type(provider).__name__}; the name "
            "of a provider is a setting, Settings(provider=ProviderSettings(name=...))"
        )
