"""``trimaran scheduler`` as a process on a control plane, and checks of where the pods of a test are."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import requests
import yaml
from control_plane.cluster import ControlPlane
from control_plane.manifests import container, node, pod
from control_plane.processes import Process, numbered
from control_plane.usage import Kwok
from control_plane.varied import varied
from support.ports import nowhere

MANIFEST = Path(__file__).parents[2] / "deploy/kubernetes/standalone-scheduler.yaml"
NAME = "trimaran-standalone"
SECTION = "trimaran.scheduler.service.settings:SchedulerSection"
LEASE_SECONDS = 9  # a busy machine takes seconds to renew it
CORES = 4  # of each node
_RIGHTS = {"ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"}


@contextmanager
def standalone_cluster(folder: Path, nodes: int) -> Iterator[ControlPlane]:
    """Run a cluster of simulated nodes with the scheduler's account and the rights of its manifest."""
    with ControlPlane(folder) as cluster, Kwok(cluster) as kubelets:
        cluster.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "trimaran"}})
        for manifest in yaml.safe_load_all(MANIFEST.read_text()):
            if manifest["kind"] in _RIGHTS:
                cluster.api.create(manifest)
        cluster.api.create(*(kubelets.for_kwok(node(f"node-{number}", str(CORES))) for number in range(nodes)))
        yield cluster


class RunningScheduler:
    """A replica of the scheduler, without a watcher, so that it scores by the fallback policy.

    Args:
        cluster: the cluster.
        server: address of the API server, such as a relay's; by default the cluster's own.
        options: options of the command; by default it places the pods that name it.
        constants: constants of the section that are no settings, and their other values.
    """

    def __init__(
        self, cluster: ControlPlane, server: str = "", options: Sequence[str] = ("--name", NAME),
        constants: Mapping[str, float] | None = None,
    ) -> None:  # fmt: skip
        token = cluster.service_account("trimaran", "trimaran-standalone").token
        command = [
            *varied(SECTION, {"lease_seconds": LEASE_SECONDS, **(constants or {})}), "scheduler", "--port", "0",
            "--kube-config", str(cluster.kubeconfig("standalone", token=token, server=server)),
            "--watcher", nowhere(), *options,
        ]  # fmt: skip
        self.process = Process(command, numbered(cluster.folder, "scheduler.log"))

    @property
    def url(self) -> str:
        """Address of its probes, metrics and state."""
        return self.process.url

    @property
    def metrics(self) -> str:
        """Text of its metrics; "" if it does not answer."""
        try:
            return requests.get(f"{self.url}/metrics", timeout=60).text
        except requests.RequestException:
            return ""

    @property
    def leads(self) -> bool:
        """True once it decides."""
        text = self.metrics
        return "trimaran_scheduler_leads 1.0" in text and "trimaran_scheduler_api_age_seconds 0.0" not in text

    def value(self, sample: str) -> float:
        """Return the value of a metric; 0 if it is missing."""
        lines = (line.rpartition(" ") for line in self.metrics.splitlines())
        return next((float(value) for name, _, value in lines if name == sample), 0.0)


def pending(name: str, cpu: str = "500m", scheduler: str = NAME) -> dict[str, Any]:
    """Return a pod that needs half a core."""
    return pod(name, container(requests={"cpu": cpu, "memory": "64Mi"}), schedulerName=scheduler)


def pods_of(cluster: ControlPlane, prefix: str) -> list[dict[str, Any]]:
    """Return the pods whose names begin with a prefix."""
    return [each for each in cluster.api.items("/api/v1/pods") if each["metadata"]["name"].startswith(prefix)]


def all_bound(cluster: ControlPlane, prefix: str, count: int) -> bool:
    """Return whether all pods with a prefix exist and have a node."""
    found = pods_of(cluster, prefix)
    return len(found) == count and all(each["spec"].get("nodeName") for each in found)


def overcommitted(cluster: ControlPlane) -> dict[str, int]:
    """Return the number of pods beyond each node's room; all pods request half a core."""
    counts = Counter(
        each["spec"]["nodeName"] for each in cluster.api.items("/api/v1/pods")
        if each["spec"].get("nodeName") and each["status"].get("phase") != "Failed"
    )  # fmt: skip
    return {name: count - 2 * CORES for name, count in counts.items() if count > 2 * CORES}


def scheduled_events(cluster: ControlPlane, prefix: str) -> Counter[str]:
    """Return the number of Scheduled Events by pod: a pod that was bound twice has two."""
    events = cluster.api.items("/apis/events.k8s.io/v1/events")
    return Counter(
        each["regarding"]["name"] for each in events
        if each["reason"] == "Scheduled" and each["regarding"]["name"].startswith(prefix)
    )  # fmt: skip
