"""Data sources that the dashboard reads in addition to the watcher: files, the API server, and other services."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runtime.http.json_service import JsonService
from runtime.kubernetes.api import ApiServerConfig, KubernetesApi, default_kubeconfig
from runtime.kubernetes.manifests import ManifestError, read_objects
from runtime.server.serving import MAX_BODY_BYTES
from scoring import NodeTable
from trimaran.dashboard import labels
from trimaran.dashboard.alerts import Alerts
from trimaran.dashboard.extender import Decisions
from trimaran.dashboard.labels import NodeLabels
from trimaran.dashboard.live_cluster import LiveCluster
from trimaran.dashboard.rebalancer import RebalancerState
from trimaran.dashboard.scheduler_state import SchedulerState

#: Services that a dashboard can show: the name of their option and setting, and their name in messages.
SERVICES = {"extender": "extender", "rebalancer": "rebalancer", "scheduler": "scheduler", "alerts": "Prometheus"}


@dataclass(frozen=True, slots=True)
class PageContext:
    """Data sources in addition to the watcher. Every viewer whom the watcher admits sees their data.

    Attributes:
        nodes_file: file with the cluster's nodes, for the Pod page.
        pods_file: file with the cluster's pods, for the Pod page.
        labels: labels of the cluster's nodes.
        cluster: nodes and pods of the live cluster, for the Pod page; None if the API server is not read.
        decisions: decisions of an extender; None if no extender is configured.
        rebalancer: state of a rebalancer; None if no rebalancer is configured.
        scheduler: state of ``trimaran scheduler``; None if none is configured.
        alerts: alerts of a Prometheus; None if none is configured.
        max_request_bytes: largest request body that the dashboard's server accepts.
    """

    nodes_file: Path | None = None
    pods_file: Path | None = None
    labels: NodeLabels = field(default_factory=NodeLabels)
    cluster: LiveCluster | None = None
    decisions: Decisions | None = None
    rebalancer: RebalancerState | None = None
    scheduler: SchedulerState | None = None
    alerts: Alerts | None = None
    max_request_bytes: int = MAX_BODY_BYTES


def open_services(client: Callable[[str], JsonService | None]) -> dict[str, Any]:
    """Return the readers of the configured services, as keyword arguments of :class:`PageContext`.

    Args:
        client: returns the client of a key of :data:`SERVICES`; None if its address is not configured.
    """
    extender, rebalancer, scheduler, alerts = map(client, SERVICES)
    return {
        "decisions": Decisions(extender) if extender else None,
        "rebalancer": RebalancerState(rebalancer) if rebalancer else None,
        "scheduler": SchedulerState(scheduler) if scheduler else None,
        "alerts": Alerts(alerts) if alerts else None,
    }


def open_cluster(kube_config: Path | None = None) -> tuple[NodeLabels, LiveCluster]:
    """Return the labels of the nodes and the live cluster, both read from the API server.

    Args:
        kube_config: kubeconfig file; None for kubectl's file or, without one, the pod's service account.

    Raises:
        InvalidApiServerConfig: neither a kubeconfig nor a service account is available.
    """
    names = {"kube_config": "provider.kube_config" if kube_config else "KUBECONFIG"}
    api = KubernetesApi(ApiServerConfig(kube_config=kube_config or default_kubeconfig(), option_names=names))
    return NodeLabels(labels.nodes_from_cluster(api)), LiveCluster(api)


def check_files(nodes_file: Path | None, pods_file: Path | None) -> None:
    """Read the files once, so that a wrong file is an error at the start. Pages read them again when they need them.

    Raises:
        ManifestError: a file cannot be read, or does not hold nodes or pods.
    """
    if nodes_file is not None:
        nodes = read_objects(nodes_file, "Node")
        try:
            NodeTable.from_k8s(nodes)
        except ValueError as error:
            raise ManifestError(f"{nodes_file}: {error}") from error
    if pods_file is not None:
        read_objects(pods_file, "Pod")


def labels_of_file(nodes_file: Path | None) -> NodeLabels:
    """Return the node labels of a file; without a file, labels come from the watcher's metadata alone."""
    return NodeLabels(labels.nodes_from_file(nodes_file)) if nodes_file else NodeLabels()
