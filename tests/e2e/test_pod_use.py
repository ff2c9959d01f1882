"""The use of pods with a real API server, KWOK's kubelets and the real metrics-server, or a real Prometheus."""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from control_plane.cluster import ControlPlane
from control_plane.manifests import node, pod
from control_plane.usage import CPU_ANNOTATION, MEMORY_ANNOTATION, Kwok, MetricsServer
from support.servers import run_prometheus, wait_until

from runtime.http.gather import Deadline
from runtime.kubernetes.api import ApiServerConfig, KubernetesApi
from runtime.kubernetes.metadata import MetadataApi
from runtime.kubernetes.workloads import Workload
from watcher.settings import ProviderSettings, Settings
from watcher.usage.rounds import PodUseRounds
from watcher.usage.sources.pods import Capacity, PodKey, RunningPods
from watcher.windows.container_use import ContainerUse

pytestmark = pytest.mark.e2e
MANIFEST = Path(__file__).parents[2] / "deploy/kubernetes/watcher.yaml"
RIGHTS = {"Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding"}
MEBI = 2**20
WORKLOADS = {
    "web-7f9c-a": Workload("default", "Deployment", "web"),
    "web-5d4b-b": Workload("default", "Deployment", "web"),
    "canary-1-c": Workload("default", "Rollout", "canary"),
    "db-0": Workload("default", "StatefulSet", "db"),
    "alone": Workload("default", "Pod", "alone"),
}


class LastRound:
    """An observer with the use and the pods of the last round."""

    def observe(self, use: ContainerUse, pods: RunningPods, _capacity: Capacity | None = None) -> None:
        self.use, self.pods = use, pods


def owned(kind: str, name: str) -> list[dict[str, Any]]:
    return [{"apiVersion": "v1", "kind": kind, "name": name, "uid": f"uid-of-{name}", "controller": True}]


def replica_set(name: str, kind: str, owner: str) -> dict[str, Any]:
    """Return a ReplicaSet with a controller. KWOK ends pods of Jobs at once, so that none of them runs here."""
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "app", "image": "i"}]}}
    metadata = {"name": name, "namespace": "default", "ownerReferences": owned(kind, owner)}
    spec = {"replicas": 0, "selector": {"matchLabels": {"a": "b"}}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": metadata, "spec": spec}


def running_pod(name: str, number: int, references: list[dict[str, Any]], **labels: str) -> dict[str, Any]:
    annotations = {CPU_ANNOTATION: f"{100 + 50 * number}m", MEMORY_ANNOTATION: f"{100 + number}Mi"}
    manifest = pod(name, annotations=annotations, nodeName="node-0")
    manifest["metadata"] |= {"ownerReferences": references, "labels": labels}
    return manifest


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """One node with pods of several controllers, whose use metrics-server reports."""
    with ControlPlane(tmp_path_factory.mktemp("cluster")) as cluster, Kwok(cluster) as kwok:
        cluster.api.create(kwok.for_kwok(node("node-0")))
        for manifest in yaml.safe_load_all(MANIFEST.read_text()):
            if manifest["kind"] in RIGHTS:
                cluster.api.create(manifest)
        cluster.api.create(
            replica_set("web-7f9c", "Deployment", "web"),
            replica_set("web-5d4b", "Deployment", "web"),
            replica_set("canary-1", "Rollout", "canary"),
        )
        cluster.api.create(
            running_pod("web-7f9c-a", 0, owned("ReplicaSet", "web-7f9c"), **{"pod-template-hash": "7f9c"}),
            running_pod("web-5d4b-b", 1, owned("ReplicaSet", "web-5d4b"), **{"pod-template-hash": "5d4b"}),
            running_pod("canary-1-c", 2, owned("ReplicaSet", "canary-1")),
            running_pod("db-0", 3, owned("StatefulSet", "db"), **{"controller-revision-hash": "db-1"}),
            running_pod("alone", 4, []),
        )
        running = {"fieldSelector": "status.phase=Running"}
        wait_until(lambda: len(cluster.api.items("/api/v1/pods", **running)) == len(WORKLOADS), "all pods run")
        with MetricsServer(cluster) as metrics_server:
            metrics_server.wait_for(1)
            yield cluster


def account(cluster: ControlPlane) -> Path:
    """Return a kubeconfig with the rights of the shipped manifest."""
    return cluster.kubeconfig("watcher", token=cluster.service_account("trimaran", "trimaran-watcher").token)


def test_metrics_server_and_api_give_use_and_workloads(cluster: ControlPlane) -> None:
    """With the shipped rights a round has the use of every pod, and its workload by one hop of owners' metadata."""
    settings = Settings(provider=ProviderSettings(name="KubernetesMetricsServer", kube_config=account(cluster)))
    last = LastRound()
    rounds = PodUseRounds(settings, [last])

    def complete() -> bool:
        return rounds.run_once() and len(last.use) == len(WORKLOADS)

    try:
        wait_until(complete, "every pod is measured")
    finally:
        rounds.stop()
    assert {key.name: pod.template.workload for key, pod in last.pods.items()} == WORKLOADS
    revisions = {key.name: pod.template.revision for key, pod in last.pods.items()}
    assert (revisions["web-7f9c-a"], revisions["web-5d4b-b"], revisions["db-0"]) == ("7f9c", "5d4b", "db-1")
    for number, name in enumerate(WORKLOADS):
        row = list(last.use.pods).index(name)
        assert last.use.cpu_cores[row] == pytest.approx(0.1 + 0.05 * number, rel=0.05)
        assert last.use.memory_bytes[row] == (100 + number) * MEBI
    assert rounds.state.workloads == 4


def test_prometheus_gives_use_and_the_api_gives_workloads(cluster: ControlPlane, tmp_path: Path) -> None:
    """With cAdvisor's series in a real Prometheus, the pods still come from the API server, by the kubeconfig."""
    end = int(time.time()) - 5

    def series() -> Iterator[str]:
        for metric, kind in (
            ("container_cpu_usage_seconds_total", "counter"), ("container_memory_working_set_bytes", "gauge")
        ):  # fmt: skip
            yield f"# TYPE {metric.removesuffix('_total')} {kind}\n"
            for number, name in enumerate(WORKLOADS):
                labels = f'namespace="default",pod="{name}",container="app",image="i"'
                for before in range(600, -1, -30):
                    value = 1e5 - number * before if kind == "counter" else number * MEBI
                    yield f"{metric}{{{labels}}} {value} {end - before}\n"

    with run_prometheus(tmp_path, series()) as url:
        provider = ProviderSettings(name="Prometheus", address=url, kube_config=account(cluster))
        last = LastRound()
        rounds = PodUseRounds(Settings(provider=provider), [last], clock=lambda: end)
        try:
            assert rounds.run_once(), rounds.state.failure
        finally:
            rounds.stop()
    cores = dict(zip(last.use.pods, last.use.cpu_cores.tolist(), strict=True))
    assert cores == pytest.approx({name: number for number, name in enumerate(WORKLOADS)})
    assert {name: last.pods[PodKey("default", name)].template.workload for name in last.use.pods} == WORKLOADS


def test_only_the_metadata_of_owners_is_read(cluster: ControlPlane) -> None:
    """Lists and watches of ReplicaSets have their metadata and no specification, with images and environments."""
    path = "/apis/apps/v1/replicasets"
    with contextlib.closing(KubernetesApi(ApiServerConfig(kube_config=account(cluster)))) as api:
        (page,) = MetadataApi(api).pages(path, Deadline.after(10), page_seconds=10)
        assert {item["metadata"]["name"] for item in page.items} == {"web-7f9c", "web-5d4b", "canary-1"}
        assert not any("spec" in item or "status" in item for item in page.items)
        cluster.api.create(replica_set("late-1", "Deployment", "late"))
        events = MetadataApi(api).watch(path, page.resource_version, 10, timeoutSeconds="10")
        event = next(event for event in events if event.type == "ADDED")
    assert event.object["kind"] == "PartialObjectMetadata"
    assert event.object["metadata"]["ownerReferences"][0]["name"] == "late"
    assert "spec" not in event.object
