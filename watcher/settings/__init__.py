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
    UPSTREAM_VARIABLES,
    DashboardSettings,
    FallbackSettings,
    ProviderSettings,
    QualitySettings,
    Reaction,
    Settings,
    StoreSettings,
    WatcherServerSettings,
    WatcherSettings,
    WatchSettings,
    default_provider,
)

__all__ = [
    "UPSTREAM_VARIABLES",
    "DashboardSettings",
    "DatadogSettings",
    "FakeSettings",
    "FallbackSettings",
    "HostSettings",
    "InfluxDbQuery",
    "InfluxDbSettings",
    "MetricsServerSettings",
    "PrometheusQuery",
    "PrometheusSettings",
    "ProviderSettings",
    "QualitySettings",
    "Reaction",
    "Settings",
    "SignalFxSettings",
    "StoreSettings",
    "WatchSettings",
    "WatcherServerSettings",
    "WatcherSettings",
    "default_provider",
    "without_credentials",
]
