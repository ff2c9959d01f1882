"""The public name of :mod:`watcher.transport.session`, for providers outside this project."""

from watcher.transport.session import ProviderSession, bearer, read_token

__all__ = ["ProviderSession", "bearer", "read_token"]
