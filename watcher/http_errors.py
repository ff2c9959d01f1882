"""A public name of :mod:`watcher.providers.session`, for providers outside this project."""

from watcher.providers.session import provider_error

__all__ = ["provider_error"]
