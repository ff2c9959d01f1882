"""What the page reads beside the watcher, as it was told when it was started."""

from dataclasses import dataclass, field
from pathlib import Path

from runtime.kubernetes.api import Access, KubernetesApi, kubectl_config
from runtime.server.serving import MAX_BODY_BYTES
from trimaran.dashboard import labels
from trimaran.dashboard.extender import Decisions
from trimaran.dashboard.labels import Labels


@dataclass(frozen=True, slots=True)
class Beside:
    """It is the same for all readers: whoever may look at the watcher sees it.

    Attributes:
        nodes_file: the cluster's nodes, for the screen of one pod.
        pods_file: its pods.
        labels: of the cluster's nodes.
        decisions: of an extender; None where none is named.
        most_pasted_bytes: that the page's server takes at once.
    """

    nodes_file: Path | None = None
    pods_file: Path | None = None
    labels: Labels = field(default_factory=Labels)
    decisions: Decisions | None = None
    most_pasted_bytes: int = MAX_BODY_BYTES


def labels_from(*, cluster: bool, kube_config: Path | None = None, nodes_file: Path | None = None) -> Labels:
    """Return labels from where they are to be had: the cluster, a file of its nodes, or the watcher alone.

    Args:
        cluster: ask the API server, as kubectl or a pod reaches it.
        kube_config: the way to it; looked for when None.
        nodes_file: where they are else.

    Raises:
        UnusableAccess: there is no way to the API server.
    """
    if cluster:
        names = {"kube_config": "--cluster needs a kubeconfig, KUBECONFIG"}
        api = KubernetesApi(Access(kube_config=kube_config or kubectl_config(), names=names))
        return Labels(labels.of_cluster(api))
    return Labels(labels.of_file(nodes_file)) if nodes_file else Labels()
