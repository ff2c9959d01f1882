"""Sources of a round of pod use: the provider that measures pods, and the sources that list the running pods.

The pods come from the Kubernetes API, else from kube-state-metrics in the provider's Prometheus.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from runtime.errors import SettingsError
from runtime.http.gather import Deadline
from runtime.kubernetes.api import KubernetesApi
from watcher.errors import ProviderAnswerError, ProviderError, ProviderUnavailable
from watcher.model import Window
from watcher.providers.base import ManifestProvider, PodUseProvider, SeriesProvider, close_provider, open_provider
from watcher.providers.kubelet.provider import NAME as KUBELET
from watcher.providers.kubernetes_metrics_server import NAME as METRICS_SERVER
from watcher.providers.session import open_kubernetes
from watcher.settings import ProviderSettings, Settings
from watcher.usage.sources.api_pods import ApiPods
from watcher.usage.sources.autoscalers import AutoscalerLists
from watcher.usage.sources.known_autoscalers import KnownAutoscalers
from watcher.usage.sources.kube_state_metrics import KubeStatePods
from watcher.usage.sources.manifests import ManifestReader
from watcher.usage.sources.pods import Capacity, PodSource, RunningPod, RunningPods

if TYPE_CHECKING:
    from watcher.windows.container_use import ContainerUse

_ABLE = (KUBELET, METRICS_SERVER, "Prometheus")
_log = logging.getLogger(__name__)
_Read = TypeVar("_Read")
_PODS_SHARE = 0.5  # share of a round's time that listing the running pods may take


class FirstWorking:
    """Source of the running pods that asks several sources in order, until one knows the pods.

    Args:
        sources: the sources, the preferred one first.
    """

    def __init__(self, sources: Sequence[PodSource]) -> None:
        self._sources = tuple(sources)
        self._problems: tuple[str, ...] = ()

    def running(self, deadline: Deadline) -> RunningPods:
        """Return the running pods.

        Raises:
            ProviderAnswerError: all sources answered without pods; the message has the reason of each.
            ProviderUnavailable: no source knows the pods, and at least one did not answer.
        """
        problems: list[str] = []
        all_answered = True
        for source in self._sources:
            try:
                pods = source.running(deadline)
            except ProviderError as error:
                problems.append(str(error))
                all_answered &= isinstance(error, ProviderAnswerError)
                continue
            self._problems = (*problems, *source.problems)
            return pods
        raise (ProviderAnswerError if all_answered else ProviderUnavailable)("; ".join(problems))

    def killed(self, deadline: Deadline) -> Sequence[RunningPod]:
        """Return pods that were killed and have not started again, from the first source that knows them."""
        return self._first(lambda source: source.killed(deadline), "killed pods are not known") or ()

    def capacity(self, deadline: Deadline) -> Capacity | None:
        """Return the sum of all nodes' allocatable resources, from the first source that knows the nodes, or None."""
        return self._first(lambda source: source.capacity(deadline), "the capacity of the nodes is not known")

    def _first(self, read: Callable[[PodSource], _Read | None], failure: str) -> _Read | None:
        for source in self._sources:
            try:
                known = read(source)
            except ProviderError as error:
                _log.debug(failure, extra={"reason": str(error)})
                continue
            if known is not None:
                return known
        return None

    @property
    def problems(self) -> tuple[str, ...]:
        """Reasons why the preferred sources failed, and the problems of the source that answered."""
        return self._problems

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

    def killed(self, _deadline: Deadline) -> Sequence[RunningPod]:
        return ()

    def capacity(self, _deadline: Deadline) -> None:
        return None

    @property
    def problems(self) -> tuple[str, ...]:
        return ()

    def close(self) -> None:
        pass


def _open_pod_source(
    settings: Settings, provider: PodUseProvider, pods: ApiPods | None
) -> tuple[FirstWorking, AutoscalerLists | None]:
    """Return the sources of the running pods for a provider, and the autoscalers' lists; nothing is requested yet.

    Args:
        settings: all settings, with the provider's as ``provider``.
        provider: the provider of the pods' use.
        pods: source of the Kubernetes API's pods; None to open one.

    Raises:
        SettingsError: there is no source; the message has the reason.
    """
    labels = settings.workloads.owner_labels
    if isinstance(provider, ManifestProvider):
        return FirstWorking([_ManifestPods(provider, labels)]), None
    sources: list[PodSource] = []
    autoscalers = None
    try:
        pods = pods or ApiPods(open_cluster_api(settings), labels)
        sources.append(pods)
        autoscalers = AutoscalerLists(pods.api)
    except SettingsError:
        if not isinstance(provider, SeriesProvider):
            raise
    if isinstance(provider, SeriesProvider):
        sources.append(KubeStatePods(provider.series, settings.prometheus.matchers, labels))
    return FirstWorking(sources), autoscalers


def open_cluster_api(settings: Settings) -> KubernetesApi:
    """Return a client of the cluster's API, with the provider's access, a kubeconfig or the pod's service account.

    Raises:
        SettingsError: there is no access to an API.
    """
    provider = settings.provider
    if provider.name not in {KUBELET, METRICS_SERVER}:
        provider = ProviderSettings(kube_config=provider.kube_config)
    return open_kubernetes(provider)


@dataclass(frozen=True, slots=True)
class PodUseSources:
    """Sources that a round of pod use reads.

    Attributes:
        name: name of the provider.
        provider: provider of the use of containers.
        pods: source of the running pods.
        autoscalers: lists of the autoscalers; None without access to the Kubernetes API.
    """

    name: str
    provider: PodUseProvider
    pods: FirstWorking
    autoscalers: AutoscalerLists | None = None

    def read(self, window: Window, deadline: Deadline) -> "tuple[ContainerUse, RunningPods]":
        """Return the use of all containers and the running pods.

        Raises:
            ProviderError: the use or the pods cannot be read.
        """
        pods = self.pods.running(Deadline.after(_PODS_SHARE * deadline.remaining_seconds()))
        return self.provider.pod_use(window, deadline), pods

    def autoscaling(self, deadline: Deadline) -> KnownAutoscalers:
        """Return the autoscalers; a list that cannot be read does not raise an error."""
        return KnownAutoscalers() if self.autoscalers is None else self.autoscalers.read(deadline)

    def close(self) -> None:
        """Close the source of pods and the provider."""
        self.pods.close()
        close_provider(self.provider)


def open_sources(settings: Settings, pods: ApiPods | None = None) -> PodUseSources:
    """Open the first provider that measures pods, and a source of the running pods.

    Args:
        settings: all settings.
        pods: source of the Kubernetes API's pods that the process has already; None to open one.

    Raises:
        SettingsError: no provider measures pods, or no source knows the running pods; the message has the remedy.
    """
    names = []
    for view in settings.for_each_provider():
        provider = open_provider(view)
        names.append(view.provider.name)
        if not isinstance(provider, PodUseProvider):
            close_provider(provider)
            continue
        try:
            return PodUseSources(view.provider.name, provider, *_open_pod_source(view, provider, pods))
        except SettingsError:
            close_provider(provider)
            raise
    raise SettingsError([f"{' and '.join(names)} cannot measure pods; {', '.join(_ABLE)} can (provider.name)"])
