"""The public name of :mod:`watcher.transport.gather`, for providers outside this project."""

from watcher.transport.gather import Deadline, gather, within

__all__ = ["Deadline", "gather", "within"]
