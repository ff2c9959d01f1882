"""One way to a watcher, wherever it runs."""

from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self, TypedDict

from client.service import ServiceClient
from watcher.model import WatcherMetrics

if TYPE_CHECKING:
    from watcher.history import History
    from watcher.settings import Settings


class WatcherCredentials(TypedDict):
    """Files that authenticate a client to a watcher, as :class:`~client.ServiceClient` takes them."""

    token_file: Path | None
    ca_file: Path | None
    client_certificate: Path | None


class WatcherClient(Protocol):
    """What :class:`~client.ServiceClient` and :class:`~client.LibraryClient` have in common.

    Both may be used from several threads. Both raise the errors of :mod:`client.errors`, and return equal objects.
    """

    def metrics(self, window: str | None = None) -> WatcherMetrics:
        """Return all nodes' metrics.

        Args:
            window: exactly this one, such as ``5m``; the watcher's default, or a shorter one, when None.
        """
        ...

    def node_metrics(self, node: str, window: str | None = None) -> WatcherMetrics:
        """Return one node's metrics: a snapshot with that node alone."""
        ...

    def history(
        self,
        node: str | None = None,
        *,
        type: str | None = None,  # noqa: A002  the word of the contract
        operator: str | None = None,
        since: float | str | None = None,
        step: int | str | None = None,
    ) -> "History":
        """Return what nodes used over the last hours, as arrays, in the watcher's default window.

        Args:
            node: one, with all its metrics; all nodes, with one metric, when None.
            type: only this resource; of all nodes CPU when None.
            operator: only this one; of all nodes AVG when None.
            since: unix seconds, or how long ago, such as ``6h``; a day when None.
            step: whole minutes, in seconds or such as ``5m``; as short as is possible when None.

        Raises:
            ValueError: there is no such time or step, or there would be too many steps: 1,500 of one node, 300 of all.
            UnknownNode: there is none of this node.
        """
        ...

    def health(self) -> tuple[str, ...]:
        """Return why the watcher is not healthy; empty when it is."""
        ...

    def close(self) -> None:
        """Give back connections and threads."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def connect(address: str | None = None, *, settings: "Settings | None" = None, **options: Any) -> WatcherClient:
    """Return a client: of the watcher at an address, or of one embedded in this process when there is none.

    Args:
        address: such as ``http://trimaran:2020``; also ``.../compat``, and the Go load-watcher's own address.
        settings: for the embedded watcher; read from environment and file, as the service does it, when None.
        options: further arguments of :class:`~client.ServiceClient` or :class:`~client.LibraryClient`.

    Raises:
        BadSettings: the embedded watcher's settings cannot be used.
        ValueError: the address is no HTTP address, or an option is out of its range.
        TypeError: settings were given together with an address: the service has settings of its own.
    """
    if address:
        if settings is not None:
            raise TypeError("settings belong to an embedded watcher; the one at an address has its own")
        return ServiceClient(address, **options)
    from client.library import LibraryClient  # keeps the watcher's weight out of service mode

    return LibraryClient(settings, **options)
