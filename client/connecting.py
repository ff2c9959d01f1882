"""Connecting to a watcher, over HTTP or embedded in this process."""

from collections.abc import Collection
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self, TypedDict

from client.service import ServiceClient
from trimaran.parts import needing_watcher
from watcher.model import WatcherMetrics

if TYPE_CHECKING:
    from watcher.history import History
    from watcher.pod_use_table import PodUseTable
    from watcher.settings import Settings
    from watcher.workload_table import WorkloadTable


class WatcherCredentials(TypedDict):
    """Files that authenticate a client to a watcher, as :class:`~client.ServiceClient` takes them."""

    token_file: Path | None
    ca_file: Path | None
    client_certificate: Path | None


class WatcherClient(Protocol):
    """Common interface of :class:`~client.ServiceClient` and :class:`~client.LibraryClient`.

    Both are thread-safe, raise the errors of :mod:`client.errors`, and return equal objects.
    """

    def metrics(self, window: str | None = None) -> WatcherMetrics:
        """Return the metrics of all nodes.

        Args:
            window: window to return, such as ``5m``; None for the watcher's default window, or a shorter window if the
                default has no fresh metrics.
        """
        ...

    def node_metrics(self, node: str, window: str | None = None) -> WatcherMetrics:
        """Return the metrics of one node: a snapshot with that node only."""
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
        """Return the use of nodes over the last hours as arrays, in the watcher's default window.

        Args:
            node: node to return, with all its metrics; None for one metric of all nodes.
            type: resource to return; None for all resources of a node, or CPU of all nodes.
            operator: operator to return; None for all operators of a node, or AVG of all nodes.
            since: start in Unix seconds, or as a duration before now, such as ``6h``; None for one day.
            step: length of a step in whole minutes, as seconds or such as ``5m``; None for the shortest possible.

        Raises:
            ValueError: the start or step is invalid, or there are too many steps: 1,500 for one node, 300 for all.
            UnknownNode: the watcher has no history of this node.
        """
        ...

    def workloads(self) -> "WorkloadTable":
        """Return the expected use of the pods of all workloads; the same object until it changes.

        An embedded watcher begins to measure pods at the first call, unless ``workloads.enabled`` is off.

        Raises:
            NoMetrics: the watcher has no workload's use, perhaps not yet; the message has the reason.
        """
        ...

    def pod_history(self, nodes: Collection[str], pods: Collection[str] = ()) -> "PodUseTable":
        """Return the use of single pods over the last day, in steps of five minutes.

        An embedded watcher begins to measure pods at the first call, unless ``workloads.enabled`` is off.

        Args:
            nodes: names of the nodes whose running pods are returned; unknown names are left out.
            pods: uids of further pods, also of pods that are gone for less than a day.

        Raises:
            NoMetrics: the watcher has no pod's use, perhaps not yet; the message has the reason.
        """
        ...

    def windows(self) -> tuple[str, ...]:
        """Return the windows that the watcher has metrics of, such as ``("15m", "10m", "5m")``, in its order."""
        ...

    def health(self) -> tuple[str, ...]:
        """Return the reasons why the watcher is not healthy; empty if it is healthy."""
        ...

    def close(self) -> None:
        """Close connections and stop threads."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def connect(
    address: str | None = None, *, settings: "Settings | str | Path | None" = None, **options: Any
) -> WatcherClient:
    """Return a client of the watcher at an address, or of a watcher embedded in this process if there is none.

    Args:
        address: URL such as ``http://trimaran:2020``, or ``.../compat``, or the URL of a Go load-watcher.
        settings: settings of the embedded watcher, or a settings file; None to load them from environment and file as
            the service does.
        options: further arguments of :class:`~client.ServiceClient` or :class:`~client.LibraryClient`.

    Raises:
        BadSettings: the embedded watcher's settings are invalid.
        ValueError: the address is not an HTTP URL, or an option is out of range.
        ModuleNotFoundError: the extra ``watcher`` is not installed, which an embedded watcher needs.
        TypeError: both an address and settings were passed, since the service has settings of its own; or an argument
            has another type.
    """
    if address is not None:
        if settings is not None:
            raise TypeError("pass either an address or settings: a watcher at an address has its own settings")
        return ServiceClient(address, **options)
    with needing_watcher("connect() without an address"):
        from client.library import LibraryClient  # imports the whole watcher, which service mode does not need

    return LibraryClient(settings, **options)
