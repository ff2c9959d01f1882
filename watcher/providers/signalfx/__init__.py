"""Provider for SignalFx."""

from watcher.providers.signalfx.provider import SignalFxProvider

__all__ = ["SignalFxProvider"]
