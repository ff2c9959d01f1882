"""Origins of metrics: texts that identify the system that a provider reads, such as its address.

The store saves the origin with the metrics, to separate two clusters that are read by providers of the same name.
"""

import hashlib
from collections.abc import Iterable
from urllib.parse import urlsplit

from runtime.masking import MASK
from watcher.settings import ProviderSettings, Settings, without_credentials

#: The settings of each provider, in addition to its address, that select the cluster or the nodes.
_SELECTING = {
    "Prometheus": ("prometheus.matchers",),
    "InfluxDB": ("influxdb.database", "influxdb.retention_policy", "influxdb.organization", "influxdb.bucket"),
    "SignalFx": ("signalfx.cluster_dimension", "signalfx.cluster_name"),
    "Datadog": ("datadog.cluster_tag", "datadog.cluster_name"),
    "KubernetesMetricsServer": ("metrics_server.node_selector",),
    "Kubelet": ("kubelet.node_selector",),
    "Host": ("host.node_name",),
}


def origins(views: Iterable[Settings]) -> dict[str, str]:
    """Return the origin of each provider: a text that identifies the system that the provider reads.

    Providers with the same name share one origin, which names the systems of all of them.

    Args:
        views: one copy of the settings per provider, see :meth:`~watcher.settings.Settings.for_each_provider`.
    """
    systems: dict[str, list[str]] = {}
    for view in views:
        systems.setdefault(view.provider.name, []).append(_origin(view))
    return {name: " | ".join(texts) for name, texts in systems.items()}


def _origin(settings: Settings) -> str:
    """Return a text without secrets that identifies the system that ``settings.provider`` reads.

    The token is not part of this text, since the text must stay the same when the token is renewed.
    """
    provider = settings.provider
    address = provider.address or ""
    parts = [without_credentials(address)]
    if MASK in parts[0]:
        parts.append(f"path={_digest(urlsplit(address).path)}")
    if provider.kube_config is not None:
        from runtime.kubernetes.kubeconfig import cluster_server  # only kubeconfigs need it

        parts.append(without_credentials(cluster_server(provider.kube_config)) or str(provider.kube_config))
    for name in _SELECTING.get(provider.name, ()):
        section, _, key = name.partition(".")
        if value := getattr(getattr(settings, section), key):
            parts.append(f"{name}={value}")
    if tenant := _tenant(provider):
        parts.append(f"headers={tenant}")
    return " ".join(filter(None, parts))


def _tenant(provider: ProviderSettings) -> str:
    """Return a digest of the provider's HTTP headers without Authorization; empty if there are no other headers.

    Headers may select a tenant (X-Scope-OrgID). They may also contain secrets, so only their digest is used.
    """
    headers = {name.lower(): value.get_secret_value() for name, value in provider.headers.items()}
    headers.pop("authorization", None)
    text = "\n".join(f"{name}: {value}" for name, value in sorted(headers.items()))
    return _digest(text) if text else ""


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
