"""Library mode: the cluster view and the embedded watcher share one list and one watch of all pods."""

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.extending import CONFIGURATION
from support.fake_kubernetes import FakeKubernetes, node, pod, pod_metrics, run_fake_kubernetes
from support.servers import wait_until

from client import ClientError
from runtime.http.gather import Deadline
from runtime.kubernetes.api import ApiServerConfig, KubernetesApi
from runtime.server.access import AccessCheck
from runtime.settings.loading import load
from trimaran.cluster.view import ClusterView
from trimaran.extender.profiles import Profiles
from trimaran.extender.settings import ExtenderSettings
from trimaran.extender.worker import ExtenderWorker
from watcher.usage.sources.api_pods import ApiPods

PODS = 8


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[FakeKubernetes]:
    """An API server with pods of two Deployments, their ReplicaSets and their metrics."""
    with run_fake_kubernetes(tmp_path) as fake:
        fake.put("nodes", node("node-1"))
        for number in range(PODS):
            fake.put("pods", owned(number))
            name = f"web-{number % 2}-7f9c-{number}"
            fake.pod_metrics[f"default/{name}"] = pod_metrics(name, time.time(), ("main", "100m", "64Mi"))
        for number in range(2):
            owner = {"kind": "Deployment", "name": f"shop-{number}", "controller": True}
            metadata = {"namespace": "default", "name": f"web-{number}-7f9c", "ownerReferences": [owner]}
            fake.put("replicasets", {"metadata": metadata})
        yield fake


def owned(number: int) -> dict[str, Any]:
    """Return a running pod of one of the two Deployments."""
    manifest = pod(f"web-{number % 2}-7f9c-{number}", "node-1")
    owner = {"kind": "ReplicaSet", "name": f"web-{number % 2}-7f9c", "controller": True}
    manifest["metadata"]["ownerReferences"] = [owner]
    return manifest


def requests_of_pods(fake: FakeKubernetes) -> Counter[str]:
    """Return the number of lists and of kinds of watches of all pods so far."""
    queries = [query for path, query, _ in fake.requests if path == "/api/v1/pods"]
    lists = [query for query in queries if "watch" not in query and "continue" not in query]
    watches = {query["resourceVersion"] for query in queries if "watch" in query}
    return Counter(lists=len(lists), watches=len(watches))


def client_of(fake: FakeKubernetes) -> KubernetesApi:
    return KubernetesApi(ApiServerConfig(kube_config=fake.kube_config()))


def test_an_extender_with_an_embedded_watcher_lists_pods_once(
    fake: FakeKubernetes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scores and learned use come from one list and one watch of pods; without sharing there would be two of each."""
    monkeypatch.setattr("watcher.usage.rounds._DELAY_SECONDS", 0.05)
    config = str(fake.kube_config())
    flags = {
        "provider.name": "KubernetesMetricsServer", "provider.kube_config": config, "cluster.kube_config": config,
        "extender.learned_use": True,
    }  # fmt: skip
    loaded = load(ExtenderSettings, flags)
    api = loaded.settings.cluster.open_api()
    worker = ExtenderWorker(loaded, Profiles.read(CONFIGURATION), [api], AccessCheck())
    worker.start()
    try:
        measured = "/apis/metrics.k8s.io/v1beta1/pods"
        wait_until(lambda: any(path == measured for path, *_ in fake.requests), "pods are measured")
        assert requests_of_pods(fake) == {"lists": 1, "watches": 1}
    finally:
        worker.close()


def test_both_copies_follow_the_same_changes(fake: FakeKubernetes) -> None:
    """A pod that starts or ends after the list, and all pods after a relist, are the same in view and source."""
    view, pods = ClusterView(client_of(fake)), ApiPods(client_of(fake))
    pods.share(view.pods)

    def are_equal(count: int) -> bool:
        with view.reading() as table:
            placed = {(each.pod.namespace, each.pod.name) for _, each in table.placed_pods()}
        return len(placed) == count and {tuple(key) for key in pods.running(Deadline.after(5))} == placed

    view.start()
    try:
        wait_until(lambda: are_equal(PODS), "the list is in both")
        named = {pod.template.workload.name for pod in pods.running(Deadline.after(5)).values()}
        assert named == {"shop-0", "shop-1"}
        fake.put("pods", owned(PODS))
        fake.delete("pods", owned(0))
        fake.delete("pods", owned(1))
        wait_until(lambda: are_equal(PODS - 1), "changes are in both")
        assert requests_of_pods(fake)["lists"] == 1
    finally:
        pods.close()
        view.close()


def test_a_broken_list_leaves_both_copies(fake: FakeKubernetes) -> None:
    """A list that fails on its way replaces neither copy."""
    view, pods = ClusterView(client_of(fake)), ApiPods(client_of(fake))
    pods.share(view.pods)
    view.start()
    try:
        assert view.wait(10)
        before = pods.running(Deadline.after(5))

        def broken() -> Iterator[dict[str, Any]]:
            yield owned(77)
            raise ClientError("the connection ended")

        with pytest.raises(ClientError):
            list(pods._store.follow(broken()))
        assert pods.running(Deadline.after(5)) == before
    finally:
        pods.close()
        view.close()
