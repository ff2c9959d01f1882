"""All settings of the watcher.

The modules ``sections``, ``providers`` and ``workloads`` declare each setting with its unit, default and effect.
``runtime.settings.fields`` has the types of settings. ``runtime.settings.loading`` reads the settings from flags,
environment and file, and reports all problems at once.
"""

from runtime.masking import without_credentials
from watcher.settings.providers import (
    DatadogSettings,
    FakeSettings,
    HostSettings,
    InfluxDbQuery,
    InfluxDbSettings,
    KubeletSettings,
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
    Settings,
    StoreSettings,
    WatcherServerSettings,
    WatcherSettings,
    WatchSettings,
    default_provider,
)
from watcher.settings.workloads import WorkloadSettings

__all__ = [
    "UPSTREAM_VARIABLES",
    "DashboardSettings",
    "DatadogSettings",
    "FakeSettings",
    "FallbackSettings",
    "HostSettings",
    "InfluxDbQuery",
    "InfluxDbSettings",
    "KubeletSettings",
    "MetricsServerSettings",
    "PrometheusQuery",
    "PrometheusSettings",
    "ProviderSettings",
    "QualitySettings",
    "Settings",
    "SignalFxSettings",
    "StoreSettings",
    "WatchSettings",
    "WatcherServerSettings",
    "WatcherSettings",
    "WorkloadSettings",
    "default_provider",
    "without_credentials",
]
