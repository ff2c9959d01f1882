"""The public name of :mod:`watcher.transport.failures`, for providers outside this project."""

from watcher.transport.failures import provider_error

__all__ = ["provider_error"]
