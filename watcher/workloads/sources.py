"""Choice of the source of running pods: the Kubernetes API, else kube-state-metrics, else the provider's own."""

from collections.abc import Sequence

from runtime.errors import SettingsError
from runtime.http.gather import Deadline
from runtime.kubernetes.api import KubernetesApi
from watcher.errors import ProviderError, ProviderUnavailable
from watcher.providers.base import ManifestProvider, PodUseProvider, SeriesProvider
from watcher.providers.kubernetes_metrics_server import NAME as METRICS_SERVER
from watcher.providers.session import open_kubernetes
from watcher.settings import ProviderSettings, Settings
from watcher.workloads.api_pods import ApiPods
from watcher.workloads.kube_state_metrics import KubeStatePods
from watcher.workloads.manifests import ManifestReader
from watcher.workloads.pods import PodSource, RunningPods


class FirstWorking:
    """Source of the running pods that asks several sources in order, until one knows the pods.

    Args:
        sources: the sources, the preferred one first.

    Attributes:
        problems: the reasons why the sources before the one that answered last do not know the pods.
    """

    def __init__(self, sources: Sequence[PodSource]) -> None:
        self._sources = tuple(sources)
        self.problems: tuple[str, ...] = ()

    def running(self, deadline: Deadline) -> RunningPods:
        """Return the running pods.

        Raises:
            ProviderUnavailable: no source knows them; the message has the reason of each.
        """
        problems: list[str] = []
        for source in self._sources:
            try:
                pods = source.running(deadline)
            except ProviderError as error:
                problems.append(str(error))
                continue
            self.problems = tuple(problems)
            return pods
        raise ProviderUnavailable("; ".join(problems))

    def close(self) -> None:
        """Close all sources."""
        for source in self._sources:
            source.close()


class _ManifestPods:
    """Pods whose manifests the provider makes up."""

    def __init__(self, provider: ManifestProvider, owner_labels: Sequence[str]) -> None:
        self._provider, self._reader = provider, ManifestReader(owner_labels)

    def running(self, _deadline: Deadline) -> RunningPods:
        read = (self._reader.read(manifest) for manifest in self._provider.pod_manifests())
        return {identity.key: pod for pod, identity in filter(None, read)}

    def close(self) -> None:
        pass


def open_pod_source(settings: Settings, provider: PodUseProvider) -> FirstWorking:
    """Return the sources of the running pods for a provider; nothing is requested yet.

    Args:
        settings: all settings, with the provider's as ``provider``.
        provider: the provider of the pods' use.

    Raises:
        SettingsError: there is no source; the message has the reason.
    """
    labels = settings.workloads.owner_labels
    if isinstance(provider, ManifestProvider):
        return FirstWorking([_ManifestPods(provider, labels)])
    sources: list[PodSource] = []
    try:
        sources.append(ApiPods(_open_api(settings), labels))
    except SettingsError:
        if not isinstance(provider, SeriesProvider):
            raise
    if isinstance(provider, SeriesProvider):
        sources.append(KubeStatePods(provider.series, settings.prometheus.matchers, labels))
    return FirstWorking(sources)


def _open_api(settings: Settings) -> KubernetesApi:
    """Return a client of the cluster's API: the metrics server's, else by kubeconfig or the pod's service account."""
    provider = settings.provider
    if provider.name != METRICS_SERVER:
        provider = ProviderSettings(kube_config=provider.kube_config)
    return open_kubernetes(provider, settings.metrics_server.kube_context)
