"""Provider for Datadog."""

from watcher.providers.datadog.provider import DatadogProvider

__all__ = ["DatadogProvider"]
