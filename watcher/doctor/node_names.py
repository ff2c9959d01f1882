"""The names of the cluster's nodes, to hold those with metrics against."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from runtime.errors import SettingsError
from runtime.http.failures import describe
from runtime.http.gather import Deadline
from runtime.kubernetes import api as kubernetes
from runtime.kubernetes.manifests import read_objects
from watcher.providers.session import open_kubernetes
from watcher.settings import ProviderSettings, Settings

_SECONDS = 30.0


class NodeListError(ValueError):
    """The cluster's nodes cannot be told; the message says why."""


def read_node_names(file: Path) -> frozenset[str]:
    """Return the names of the nodes in a file, as ``kubectl get nodes -o yaml`` writes it.

    Raises:
        FileError: it cannot be used.
    """
    return _names(read_objects(file, "Node"))


def list_node_names(settings: Settings) -> frozenset[str]:
    """Return the names of the nodes that the API server has.

    Args:
        settings: ``provider.kube_config`` leads to it; without one the pod's service account, or what kubectl uses.

    Raises:
        UnknownNodes: there is no way to it, or it does not answer.
    """
    file = settings.provider.kube_config or kubernetes.kubectl_config()
    try:
        api = open_kubernetes(ProviderSettings(kube_config=file), settings.metrics_server.kube_context)
        try:
            return _names(api.list_items("/api/v1/nodes", Deadline.after(_SECONDS)))
        finally:
            api.close()
    except SettingsError as error:
        raise NodeListError("; ".join(error.problems)) from None
    except kubernetes.REQUEST_FAILURES as error:
        raise NodeListError(f"the API server does not list the nodes: {describe(error).reason}") from None


def _names(nodes: Iterable[Mapping[str, Any]]) -> frozenset[str]:
    names = [(node.get("metadata") or {}).get("name") for node in nodes]
    return frozenset(name for name in names if isinstance(name, str))
