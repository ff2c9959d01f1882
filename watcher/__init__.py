"""Watches what every node of a cluster really uses, judges it, keeps it, and serves it.

Importing this package is light: the model only. The service is ``trimaran watch``; to embed a watcher, use
:class:`client.LibraryClient`.
"""

from watcher.model import Grade, Metric, MetricType, NodeMetrics, Operator, WatcherMetrics, Window

__all__ = ["Grade", "Metric", "MetricType", "NodeMetrics", "Operator", "WatcherMetrics", "Window"]
