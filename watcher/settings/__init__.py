"""Every setting, and the one place that reads them: flags, environment, file.

``sections`` and ``providers`` name each setting with its unit, default and effect; ``fields`` is what they are made of;
``loading`` reads them, and reports every problem at once.
"""

from runtime.masking import without_credentials
from watcher.settings.providers import (
    DatadogSettings,
    FakeSettings,
    HostSettings,
    InfluxDbQuery,
    InfluxDbSettings,
    MetricsServerSettings,
    PrometheusQuery,
    PrometheusSettings,
    SignalFxSettings,
)
from watcher.settings.sections import (
    MIN_TOKEN_LENGTH,
    DashboardSettings,
    FallbackSettings,
    LogLevel,
    LogSettings,
    ProviderSettings,
    QualitySettings,
    Reaction,
    ServerSettings,
    Settings,
    StoreSettings,
    WatchSettings,
    default_provider,
)

__all__ = [
    "MIN_TOKEN_LENGTH",
    "DashboardSettings",
    "DatadogSettings",
    "FakeSettings",
    "FallbackSettings",
    "HostSettings",
    "InfluxDbQuery",
    "InfluxDbSettings",
    "LogLevel",
    "LogSettings",
    "MetricsServerSettings",
    "PrometheusQuery",
    "PrometheusSettings",
    "ProviderSettings",
    "QualitySettings",
    "Reaction",
    "ServerSettings",
    "Settings",
    "SignalFxSettings",
    "StoreSettings",
    "WatchSettings",
    "default_provider",
    "without_credentials",
]
