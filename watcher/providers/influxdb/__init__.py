"""Provider for InfluxDB."""

from watcher.providers.influxdb.provider import InfluxDbProvider

__all__ = ["InfluxDbProvider"]
