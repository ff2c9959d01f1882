"""Which system a provider's metrics come from: what keeps two clusters apart that one provider's name stands for."""

import hashlib
from collections.abc import Iterable

from watcher.settings import ProviderSettings, Settings, without_credentials

#: The settings of each provider, beside its address, that say of which cluster or nodes its metrics are.
_SELECTING = {
    "Prometheus": ("prometheus.matchers",),
    "InfluxDB": (
        "influxdb.database",
        "influxdb.retention_policy",
        "influxdb.organization",
        "influxdb.bucket",
    ),
    "SignalFx": ("signalfx.cluster_dimension", "signalfx.cluster_name"),
    "Datadog": ("datadog.cluster_tag", "datadog.cluster_name"),
    "KubernetesMetricsServer": ("metrics_server.node_selector",),
    "Host": ("host.node_name",),
}


def origins(views: Iterable[Settings]) -> dict[str, str]:
    """Return each provider's name with the system that it stands for; several of one name stand for all of theirs.

    Args:
        views: the settings once for each provider, as :meth:`~watcher.settings.Settings.for_each_provider` has them.
    """
    found: dict[str, list[str]] = {}
    for view in views:
        found.setdefault(view.provider.name, []).append(_origin(view))
    return {name: " | ".join(systems) for name, systems in found.items()}


def _origin(settings: Settings) -> str:
    """Return the system as text without secrets. A token is no part of it, as it is renewed."""
    provider = settings.provider
    parts = [without_credentials(provider.address or "")]
    if provider.kube_config is not None:
        from runtime.kubernetes.kubeconfig import cluster_server  # only kubeconfigs need it

        context = settings.metrics_server.kube_context
        file = provider.kube_config
        parts.append(without_credentials(cluster_server(file, context)) or f"{file} {context}".rstrip())
    for name in _SELECTING.get(provider.name, ()):
        section, _, key = name.partition(".")
        if value := getattr(getattr(settings, section), key):
            parts.append(f"{name}={value}")
    if tenant := _tenant(provider):
        parts.append(f"headers={tenant}")
    return " ".join(filter(None, parts))


def _tenant(provider: ProviderSettings) -> str:
    """Return what tells headers apart, and not what they are: one may say whose metrics come (X-Scope-OrgID)."""
    headers = {name.lower(): value.get_secret_value() for name, value in provider.headers.items()}
    headers.pop("authorization", None)
    said = "\n".join(f"{name}: {value}" for name, value in sorted(headers.items()))
    return hashlib.blake2b(said.encode(), digest_size=8).hexdigest() if said else ""
