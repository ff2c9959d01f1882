"""What each service that acts on a cluster is told alike: where its watcher is, and where the API server."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import AfterValidator, Field

from runtime.settings.fields import Section, http_address
from watcher.errors import SettingsError
from watcher.settings import Settings

if TYPE_CHECKING:
    from client import WatcherClient
    from runtime.kubernetes.api import KubernetesApi


class ClusterSection(Section):
    """The settings that such a service's own section has beside others."""

    watcher: Annotated[str, AfterValidator(http_address)] | None = Field(
        None, description="the watcher's address; without one this process watches by itself"
    )
    watcher_token_file: Path | None = Field(None, description="a file with the token that the watcher asks for")
    watcher_ca_file: Path | None = Field(None, description="certificate authorities of the watcher")
    kube_config: Path | None = Field(None, description="a kubeconfig; in a cluster the pod's service account")
    kube_context: str = Field("", description="the kubeconfig's context; empty: its current one")

    def open_api(self, section: str) -> "KubernetesApi":
        """Return the API server.

        Args:
            section: this section's name, for errors.

        Raises:
            SettingsError: there is no way to it.
        """
        from runtime.kubernetes.api import Access, KubernetesApi
        from runtime.kubernetes.credentials import UnusableAccess  # a command's options need none of it

        names = {"kube_config": f"{section}.kube_config", "context": f"{section}.kube_context"}
        try:
            return KubernetesApi(Access(kube_config=self.kube_config, context=self.kube_context, names=names))
        except UnusableAccess as error:
            raise SettingsError([str(error)]) from error

    def open_watcher(self, settings: Settings) -> "WatcherClient":
        """Return a client of the watcher, or where there is none, one that watches by itself by these settings."""
        from client import connect  # the master needs none

        if self.watcher:
            return connect(self.watcher, token_file=self.watcher_token_file, ca_file=self.watcher_ca_file)
        return connect(settings=settings)
