"""Client of a watcher, either of a service over HTTP or of a watcher embedded in this process.

>>> from client import Collector, connect
>>> with Collector(connect("http://trimaran:2020"), max_age_seconds=120) as metrics:  # doctest: +SKIP
...     snapshot = metrics.snapshot()
"""

from typing import TYPE_CHECKING, Any

from trimaran.parts import check_own, needing_watcher

check_own("runtime", "scoring", "watcher")

from client.collector import Collector, Snapshot
from client.connecting import WatcherClient, connect
from client.errors import (
    AccessDenied,
    BadAnswer,
    BadSettings,
    ClientError,
    NoMetrics,
    StaleMetrics,
    UnknownNode,
    UnknownWindow,
    WatcherUnavailable,
)
from client.service import ServiceClient

if TYPE_CHECKING:
    from client.assigned_pods import AssignedPods
    from client.library import LibraryClient

__all__ = [
    "AccessDenied",
    "AssignedPods",
    "BadAnswer",
    "BadSettings",
    "ClientError",
    "Collector",
    "LibraryClient",
    "NoMetrics",
    "ServiceClient",
    "Snapshot",
    "StaleMetrics",
    "UnknownNode",
    "UnknownWindow",
    "WatcherClient",
    "WatcherUnavailable",
    "connect",
]


def __getattr__(name: str) -> Any:
    """Import heavy classes on first use: LibraryClient imports the whole watcher, and AssignedPods imports numpy."""
    if name == "AssignedPods":
        from client.assigned_pods import AssignedPods

        return AssignedPods
    if name == "LibraryClient":
        with needing_watcher("LibraryClient"):
            from client.library import LibraryClient

        return LibraryClient
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
