"""The running pods of the Kubernetes API, with their workloads and requests, on a fake API server over TLS."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.fake_kubernetes import TOKEN, FakeKubernetes, run_fake_kubernetes
from support.servers import wait_until

from runtime.http.gather import Deadline
from runtime.kubernetes.api import ApiServerConfig, KubernetesApi
from runtime.kubernetes.workloads import ContainerRole, Workload
from watcher.errors import ProviderError, ProviderUnavailable
from watcher.usage.sources.api_pods import ApiPods
from watcher.usage.sources.manifests import ManifestReader
from watcher.usage.sources.pods import ContainerResources, ContainerRestart, PodKey

MEBI = 2**20


def owned(name: str, kind: str = "", owner: str = "", **labels: str) -> dict[str, Any]:
    references = [{"kind": "Other", "name": "no-controller"}]
    references += [{"kind": kind, "name": owner, "controller": True}] if kind else []
    return {"namespace": "shop", "name": name, "uid": name, "labels": labels, "ownerReferences": references}


def pod(name: str, kind: str = "", owner: str = "", *, phase: str = "Running", **labels: str) -> dict[str, Any]:
    resources = {"requests": {"cpu": "250m", "memory": "64Mi"}, "limits": {"memory": "128Mi"}}
    return {
        "metadata": owned(name, kind, owner, **labels),
        "spec": {"nodeName": "node-1", "containers": [{"name": "app", "resources": resources}, {"name": "log"}],
                 "initContainers": [{"name": "once"}, {"name": "mesh", "restartPolicy": "Always"}]},
        "status": {"phase": phase, "startTime": "2026-11-25T12:00:00Z"},
    }  # fmt: skip


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[FakeKubernetes]:
    with run_fake_kubernetes(tmp_path) as fake:
        yield fake


@pytest.fixture
def source(fake: FakeKubernetes) -> Iterator[ApiPods]:
    api = KubernetesApi(ApiServerConfig(address=fake.url, token=TOKEN, ca_file=fake.ca_file))
    source = ApiPods(api, ("team",))
    yield source
    source.close()


def names(source: ApiPods, seconds: float = 10) -> dict[str, tuple[str, str]]:
    """Return kind and name of each pod's workload."""
    return {key.name: pod.template.workload[1:] for key, pod in source.running(Deadline.after(seconds)).items()}


def test_pods_have_workload_revision_and_resources(fake: FakeKubernetes, source: ApiPods) -> None:
    """A pod has its Deployment, its template's hash, and the requests and limits of containers and sidecars."""
    fake.put("replicasets", {"metadata": owned("web-7f9c", "Deployment", "web")})
    fake.put("pods", pod("web-7f9c-a", "ReplicaSet", "web-7f9c", **{"pod-template-hash": "7f9c"}))
    fake.put("pods", pod("web-7f9c-b", "ReplicaSet", "web-7f9c", **{"pod-template-hash": "7f9c"}))
    running = source.running(Deadline.after(10))
    first, second = (running[PodKey("shop", f"web-7f9c-{letter}")] for letter in "ab")
    assert first.template is second.template
    assert (first.template.workload, first.template.revision) == (Workload("shop", "Deployment", "web"), "7f9c")
    assert first.template.containers == (
        ContainerResources("app", 250, 64 * MEBI, None, 128 * MEBI, ContainerRole.CONTAINER),
        ContainerResources("log", role=ContainerRole.CONTAINER), ContainerResources("mesh", role=ContainerRole.SIDECAR),
    )  # fmt: skip
    assert (first.template.init_containers, first.template.is_guaranteed, first.restarts) == (("once",), False, ())
    assert first.started_at == 1795608000


def test_finished_and_unbound_pods_are_left_out(fake: FakeKubernetes, source: ApiPods) -> None:
    """A pod without a node, a pod that has finished and a deleted one are not running; changes are followed."""
    pending = pod("pending")
    del pending["spec"]["nodeName"]
    for each in (pending, pod("done", phase="Succeeded"), pod("a"), pod("b")):
        fake.put("pods", each)
    assert names(source).keys() == {"a", "b"}
    fake.put("pods", pod("a", phase="Failed"))
    fake.delete("pods", fake.pods["shop/b"])
    fake.put("pods", pod("pending"))
    wait_until(lambda: names(source).keys() == {"pending"}, "the changes are seen")


def test_killed_pods_that_do_not_start_again_are_known(fake: FakeKubernetes, source: ApiPods) -> None:
    """A Job's pod that was killed and has failed is among the killed ones, an evicted one is not."""
    ended = {"terminated": {"reason": "OOMKilled", "exitCode": 137, "finishedAt": "2026-11-25T12:30:00Z"}}
    killed = pod("save-x", "Job", "save-29038120", phase="Failed")
    killed["status"]["containerStatuses"] = [{"name": "app", "restartCount": 0, "state": ended}]
    for each in (killed, pod("evicted", phase="Failed"), pod("running")):
        fake.put("pods", each)
    (found,) = source.killed(Deadline.after(10))
    assert found.template.workload == Workload("shop", "CronJob", "save")
    assert found.restarts == (ContainerRestart("app", 1795609800.0, was_out_of_memory=True),)
    assert names(source).keys() == {"running"}
    fake.forbidden = {("", "pods", "list")}
    with pytest.raises(ProviderError, match='cannot list resource "pods"'):
        source.killed(Deadline.after(10))


def test_owners_are_looked_up_when_they_arrive(fake: FakeKubernetes, source: ApiPods) -> None:
    """A pod whose ReplicaSet or Job becomes known later is named by its controller from then on."""
    fake.put("pods", pod("shop-1-x", "ReplicaSet", "shop-1"))
    fake.put("pods", pod("train-x", "Job", "train-abcde"))
    fake.put("pods", pod("api-x", "Job", "api", team="search"))
    assert names(source) == {
        "shop-1-x": ("ReplicaSet", "shop-1"), "train-x": ("Job", "train-abcde"), "api-x": ("Label", "search")
    }  # fmt: skip
    fake.put("replicasets", {"metadata": owned("shop-1", "Rollout", "shop")})
    fake.put("jobs", {"metadata": owned("train-abcde", "JobSet", "train")})
    expected = {"shop-1-x": ("Rollout", "shop"), "train-x": ("JobSet", "train"), "api-x": ("Label", "search")}
    wait_until(lambda: names(source) == expected, "the controllers are known")


def test_without_rights_for_owners_names_decide(fake: FakeKubernetes, source: ApiPods) -> None:
    """Without the right to list ReplicaSets and Jobs pods are named by hashes and names, and the reason is known."""
    fake.forbidden = {("apps", "replicasets", "list"), ("batch", "jobs", "list")}
    fake.put("pods", pod("web-7f9c-a", "ReplicaSet", "web-7f9c", **{"pod-template-hash": "7f9c"}))
    fake.put("pods", pod("save-x", "Job", "save-29038120"))
    assert names(source) == {"web-7f9c-a": ("Deployment", "web"), "save-x": ("CronJob", "save")}
    assert 'resources: ["jobs"]' in source.problems[1]


def test_without_the_right_for_pods_the_error_names_the_rule(fake: FakeKubernetes, source: ApiPods) -> None:
    """Without the right to list pods the error has the rule that is missing, and comes at once."""
    fake.forbidden = {("", "pods", "list")}
    with pytest.raises(ProviderUnavailable, match=r'resources: \["pods"\]'):
        source.running(Deadline.after(60))


@pytest.mark.parametrize(
    "change",
    [
        {"metadata": {"name": "p", "labels": [7], "ownerReferences": [7, {"controller": True}, {"kind": 1}]}},
        {"spec": {"nodeName": "n", "containers": [7, {"resources": {"requests": {"cpu": "-1", "memory": "1e30"}}}]}},
        {"spec": {"nodeName": "n", "containers": "x", "initContainers": {"a": 1}}},
        {"spec": {"nodeName": "n", "containers": [{"name": "c", "resources": {"limits": {"cpu": {}}}}]}},
        {"status": {"startTime": "yesterday"}},
        {"status": 7},
    ],
)
def test_invalid_fields_count_as_missing(change: dict[str, Any]) -> None:
    """A pod with invalid fields is read without them."""
    read = ManifestReader().read({**pod("p"), **change})
    assert read is not None
    assert all(amount is None or 0 <= amount < 2**54 for each in read[0].template.containers for amount in each[1:])


def test_restarts_and_kills_are_read_from_the_status(fake: FakeKubernetes, source: ApiPods) -> None:
    """A restarted container has the end of its last run, and whether memory was short; bad times are left out."""
    at, killed = "2026-11-25T12:00:00Z", {"reason": "OOMKilled", "finishedAt": "2026-11-25T13:00:00Z"}
    bad = pod("bad")
    bad["status"] |= {
        "qosClass": "Guaranteed",
        "containerStatuses": [
            {"name": "app", "restartCount": 3, "state": {"running": {}}, "lastState": {"terminated": killed}},
            {"name": "log", "restartCount": 1, "lastState": {"terminated": {"reason": "Error", "finishedAt": at}}},
            {"name": "lost", "restartCount": 2, "lastState": {"terminated": {"finishedAt": "yesterday"}}},
            {"name": "fine", "restartCount": 0, "state": {"running": {}}, "lastState": {}},
            "nonsense",
        ],
        "initContainerStatuses": [
            {"name": "once", "restartCount": 0, "state": {"terminated": {"reason": "Completed", "finishedAt": at}}},
            {"name": "mesh", "restartCount": 0, "state": {"terminated": killed}},
        ],
    }
    fake.put("pods", bad)
    fake.put("pods", pod("good"))
    running = source.running(Deadline.after(10))
    assert running[PodKey("shop", "bad")].restarts == (
        ContainerRestart("app", 1795611600.0, True), ContainerRestart("log", 1795608000.0, False),
        ContainerRestart("mesh", 1795611600.0, True),
    )  # fmt: skip
    assert running[PodKey("shop", "bad")].template.is_guaranteed
    assert running[PodKey("shop", "good")].restarts == ()
