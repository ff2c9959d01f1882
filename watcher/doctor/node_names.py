"""Names of the cluster's nodes, to compare with the nodes that have metrics."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from runtime.errors import SettingsError
from runtime.http.credentials import InvalidApiServerConfig
from runtime.http.failures import describe
from runtime.http.gather import Deadline
from runtime.kubernetes import api as kubernetes
from runtime.kubernetes.manifests import read_objects
from runtime.kubernetes.paths import NODES
from watcher.providers.session import open_kubernetes
from watcher.settings import ProviderSettings, Settings

_SECONDS = 30.0


class NodeListError(ValueError):
    """The cluster's nodes cannot be listed; the message has the reason."""


def read_node_names(file: Path) -> frozenset[str]:
    """Return the names of the nodes in a file, as written by ``kubectl get nodes -o yaml``.

    Raises:
        ManifestError: the file cannot be used.
    """
    return _names(read_objects(file, "Node"))


def list_node_names(settings: Settings) -> frozenset[str]:
    """Return the names of the nodes at the API server.

    Args:
        settings: all settings. ``provider.kube_config`` gives access to the cluster; without it the pod's service
            account or kubectl's configuration is used.

    Raises:
        NodeListError: there is no access, or the request failed.
    """
    try:
        file = settings.provider.kube_config or kubernetes.default_kubeconfig()
        api = open_kubernetes(ProviderSettings(kube_config=file))
        try:
            return _names(api.list_items(NODES, Deadline.after(_SECONDS)))
        finally:
            api.close()
    except SettingsError as error:
        raise NodeListError("; ".join(error.problems)) from None
    except InvalidApiServerConfig as error:
        raise NodeListError(str(error)) from None
    except kubernetes.REQUEST_FAILURES as error:
        raise NodeListError(f"the API server did not list the nodes: {describe(error).reason}") from None


def _names(nodes: Iterable[Mapping[str, Any]]) -> frozenset[str]:
    names = [(node.get("metadata") or {}).get("name") for node in nodes]
    return frozenset(name for name in names if isinstance(name, str))
