"""A public name of :mod:`watcher.providers.session`, for providers outside this project."""

from watcher.providers.session import ProviderSession, bearer, read_token

__all__ = ["ProviderSession", "bearer", "read_token"]
