"""Provider for Prometheus."""

from watcher.providers.prometheus.provider import PrometheusProvider

__all__ = ["PrometheusProvider"]
