"""Data sources that the dashboard reads in addition to the watcher: files, the API server, extender, rebalancer."""

from dataclasses import dataclass, field
from pathlib import Path

from runtime.kubernetes.api import ApiServerConfig, KubernetesApi, default_kubeconfig
from runtime.server.serving import MAX_BODY_BYTES
from trimaran.dashboard import labels
from trimaran.dashboard.extender import Decisions
from trimaran.dashboard.labels import NodeLabels
from trimaran.dashboard.rebalancer import RebalancerState


@dataclass(frozen=True, slots=True)
class PageContext:
    """Data sources in addition to the watcher. Every viewer whom the watcher admits sees their data.

    Attributes:
        nodes_file: file with the cluster's nodes, for the Pod page.
        pods_file: file with the cluster's pods, for the Pod page.
        labels: labels of the cluster's nodes.
        decisions: decisions of an extender; None if no extender is configured.
        rebalancer: state of a rebalancer; None if no rebalancer is configured.
        max_request_bytes: largest request body that the dashboard's server accepts.
    """

    nodes_file: Path | None = None
    pods_file: Path | None = None
    labels: NodeLabels = field(default_factory=NodeLabels)
    decisions: Decisions | None = None
    rebalancer: RebalancerState | None = None
    max_request_bytes: int = MAX_BODY_BYTES


def open_labels(*, cluster: bool, kube_config: Path | None = None, nodes_file: Path | None = None) -> NodeLabels:
    """Return the node labels from the API server or a file; without both, from the watcher's metadata alone.

    Args:
        cluster: read the labels from the API server.
        kube_config: kubeconfig file; None for kubectl's, or else the pod's service account.
        nodes_file: file with the nodes, if ``cluster`` is not set.

    Raises:
        InvalidApiServerConfig: neither a kubeconfig nor a service account is available.
    """
    if cluster:
        names = {"kube_config": "--cluster needs a kubeconfig, KUBECONFIG"}
        api = KubernetesApi(ApiServerConfig(kube_config=kube_config or default_kubeconfig(), option_names=names))
        return NodeLabels(labels.nodes_from_cluster(api))
    return NodeLabels(labels.nodes_from_file(nodes_file)) if nodes_file else NodeLabels()
