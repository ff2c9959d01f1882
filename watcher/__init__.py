"""Watcher: fetches the measured load of every node of a cluster, checks it, stores it, and serves it.

Importing this package is fast, since it only imports the model. ``trimaran watch`` runs the service; to embed a
watcher, use :class:`client.LibraryClient`.
"""

from trimaran.parts import check_own

check_own("runtime")

from watcher.history import History, HistorySeries, Steps
from watcher.model import Grade, Load, Metric, MetricType, NodeMetrics, Operator, WatcherMetrics, Window

__all__ = [
    "Grade",
    "History",
    "HistorySeries",
    "Load",
    "Metric",
    "MetricType",
    "NodeMetrics",
    "Operator",
    "Steps",
    "WatcherMetrics",
    "Window",
]
