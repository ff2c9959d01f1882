"""Settings that all controllers share: the section ``cluster``, access to the watcher and to the Kubernetes API."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import AfterValidator, Field

from runtime.settings.fields import ObjectName, Section, http_address
from watcher.errors import SettingsError
from watcher.settings import Settings

if TYPE_CHECKING:
    from client import WatcherClient
    from runtime.kubernetes.api import KubernetesApi
    from watcher.usage.sources.api_pods import ApiPods


class ClusterSection(Section):
    """Section ``cluster``: access of a controller to the watcher and to the Kubernetes API."""

    watcher: Annotated[str, AfterValidator(http_address)] | None = Field(
        None, description="URL of the watcher; without a URL the process embeds a watcher"
    )
    watcher_token_file: Path | None = Field(None, description="file with the token for the watcher")
    watcher_ca_file: Path | None = Field(None, description="PEM file with CA certificates to verify the watcher")
    kube_config: Path | None = Field(
        None, description="kubeconfig file; in a cluster the default is the pod's service account"
    )
    lease_namespace: ObjectName = Field(
        "trimaran", description="namespace of the Leases, and of the rebalancer's ConfigMap"
    )

    def open_api(self) -> "KubernetesApi":
        """Return a client of the Kubernetes API.

        Raises:
            SettingsError: no kubeconfig or service account can be used.
        """
        from runtime.http.credentials import InvalidApiServerConfig  # not needed for a command's options
        from runtime.kubernetes.api import ApiServerConfig, KubernetesApi

        names = {"kube_config": "cluster.kube_config (--kube-config)"}
        try:
            return KubernetesApi(ApiServerConfig(kube_config=self.kube_config, option_names=names))
        except InvalidApiServerConfig as error:
            raise SettingsError([str(error)]) from error

    def check_watcher(self, settings: Settings) -> None:
        """Check the access to the watcher at the start, before a worker process opens it; send nothing.

        Args:
            settings: all settings, for an embedded watcher.

        Raises:
            SettingsError: the token file, the CA file or a provider of the embedded watcher cannot be used.
        """
        from runtime.http.credentials import UnusableToken, read_token  # not needed for a command's options
        from watcher.providers.base import check_providers

        if self.watcher is None:
            check_providers(settings)
            return
        problems = []
        try:
            if self.watcher_token_file is not None:
                read_token(self.watcher_token_file)
        except UnusableToken as error:
            problems.append(f"cluster.watcher_token_file: {error}")
        if self.watcher_ca_file is not None and not self.watcher_ca_file.exists():
            problems.append(f"cluster.watcher_ca_file: {self.watcher_ca_file} does not exist")
        if problems:
            raise SettingsError(problems)

    def open_watcher(self, settings: Settings, pods: "ApiPods | None" = None) -> "WatcherClient":
        """Return a client of the watcher; if no URL is set, a client that embeds a watcher with these settings.

        Args:
            settings: all settings.
            pods: source of the running pods for an embedded watcher, which closes it; None to open one.
        """
        from client import connect  # not needed in gunicorn's master process

        if self.watcher:
            return connect(self.watcher, token_file=self.watcher_token_file, ca_file=self.watcher_ca_file)
        return connect(settings=settings, pods=pods)


class ControllerSettings(Settings):
    """Base class of all settings of a controller, which can embed a watcher."""

    cluster: ClusterSection = Field(default_factory=ClusterSection)
