"""Patches of ``trimaran workloads --patch``, applied by the printed kubectl commands to a real API server."""

import json
import os
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from control_plane.builds import binary
from control_plane.cluster import ControlPlane
from support.servers import reply, serving

from trimaran.cli.main import main

pytestmark = pytest.mark.e2e
GIB, NOW, DAY = 2**30, 1.8e9, 86400.0
REQUESTS = {"cpu": "1", "memory": "1Gi"}
LIMITS = {"cpu": "2", "memory": "2Gi"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A Deployment and a CronJob, each with a container that requests a core and 1 GiB, and another one."""
    template = {
        "metadata": {"labels": {"app": "a"}},
        "spec": {
            "containers": [
                {"name": "main", "image": "i", "resources": {"requests": REQUESTS, "limits": LIMITS}},
                {"name": "other", "image": "j", "resources": {"requests": REQUESTS}},
            ]
        },
    }
    job = {"metadata": template["metadata"], "spec": {**template["spec"], "restartPolicy": "Never"}}
    cron = {"schedule": "0 3 * * *", "jobTemplate": {"spec": {"template": job}}}
    apps = {"selector": {"matchLabels": {"app": "a"}}, "template": template}
    with ControlPlane(tmp_path_factory.mktemp("cluster")) as cluster:
        cluster.api.create(
            {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata("web"), "spec": apps},
            {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": metadata("nightly"), "spec": cron},
        )
        yield cluster


def metadata(name: str) -> dict[str, str]:
    return {"name": name, "namespace": "default"}


def advised(kind: str, name: str, container: str) -> dict[str, Any]:
    """Return a workload as a watcher serves it, whose container is to request 345m and 512Mi."""
    times = {"first_seen": NOW - 10 * DAY, "last_seen": NOW, "pods": 1}
    amount, limits = {"cpu_cores": 1, "memory_bytes": GIB}, {"cpu_cores": 2, "memory_bytes": 2 * GIB}
    item = {
        "name": container, "role": "container", "requests": amount, "limits": limits, "recommended_limits": limits,
        "use": amount, "wasted": amount, "cpu_cores_percentiles": {"90": 0.3},
        "highest_memory_bytes": GIB, "recommended": {"cpu_cores": 0.345, "memory_bytes": GIB / 2},
        "verdict": dict.fromkeys(amount, "lower"), "reason": dict.fromkeys(amount), **times,
    }  # fmt: skip
    return {"namespace": "default", "kind": kind, "name": name, **times, "containers": [item]}


def printed_patches(*workloads: dict[str, Any], options: tuple[str, ...] = ()) -> Result:
    """Run ``trimaran workloads --patch`` with a watcher that serves these workloads."""
    document = {"timestamp": NOW, "total": len(workloads), "not_checked": [], "workloads": workloads}
    with serving(lambda handler: reply(handler, json.dumps(document).encode())) as fake:
        return CliRunner().invoke(main, ["workloads", "--watcher", fake.url, "--patch", *options])


def apply(
    cluster: ControlPlane, folder: Path, *workloads: dict[str, Any], options: tuple[str, ...] = ()
) -> list[subprocess.CompletedProcess[str]]:
    """Run the printed command of each patch on its document; return the finished commands."""
    printed = printed_patches(*workloads, options=options)
    assert printed.exit_code == 0, printed.output
    results = []
    for number, document in enumerate(printed.stdout.split("---\n")[1:]):
        file = folder / f"patch-{number}.yaml"
        file.write_text(document)
        words = shlex.split(document.splitlines()[0].removeprefix("# ").replace("FILE", str(file)))
        environment = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig())}
        command = [str(binary("kubectl")), *words[1:]]
        results.append(subprocess.run(command, env=environment, capture_output=True, text=True, check=False))
    return results


def test_the_printed_commands_change_the_requests_only(cluster: ControlPlane, tmp_path: Path) -> None:
    """The patches are accepted; the container has the recommended requests, and everything else stays."""
    web, nightly = (
        "/apis/apps/v1/namespaces/default/deployments/web",
        "/apis/batch/v1/namespaces/default/cronjobs/nightly",
    )

    def pod_specs() -> list[dict[str, Any]]:
        job = cluster.api.get(nightly)["spec"]["jobTemplate"]["spec"]
        return [each["template"]["spec"] for each in (cluster.api.get(web)["spec"], job)]

    expected = pod_specs()
    for spec in expected:
        spec["containers"][0]["resources"]["requests"] = {"cpu": "345m", "memory": "512Mi"}
    results = apply(cluster, tmp_path, advised("Deployment", "web", "main"), advised("CronJob", "nightly", "main"))
    assert [result.returncode for result in results] == [0, 0], results
    assert pod_specs() == expected


def test_the_api_server_refuses_a_container_outside_of_the_template(cluster: ControlPlane, tmp_path: Path) -> None:
    """A patch for a container that a webhook adds to pods does not add it to the template."""
    (result,) = apply(cluster, tmp_path, advised("Deployment", "web", "injected-proxy"))
    assert result.returncode != 0
    assert "containers[0].image: Required value" in result.stderr


def test_injected_containers_are_found_in_the_cluster(cluster: ControlPlane) -> None:
    """With a kubeconfig the template is read: a container that it does not have is noted, and not patched."""
    options = ("--kube-config", str(cluster.kubeconfig()))
    printed = printed_patches(advised("Deployment", "web", "injected-proxy"), options=options)
    assert printed.exit_code == 0, printed.output
    assert "# not patched: injected-proxy is not in the template, but injected into the pods" in printed.output
    assert "---" not in printed.output
    assert "name: main" in printed_patches(advised("Deployment", "web", "main"), options=options).output
    assert "name: main" in printed_patches(advised("Deployment", "gone", "main"), options=options).output


def test_running_pods_are_resized_in_place(cluster: ControlPlane, tmp_path: Path) -> None:
    """``--in-place`` prints a patch for each pod of the workload, which changes the pod and not the template."""
    deployment = cluster.api.get("/apis/apps/v1/namespaces/default/deployments/web")
    owner = {"controller": True, "uid": deployment["metadata"]["uid"]}
    labels = {"app": "a", "pod-template-hash": "5d4f"}
    template = {**deployment["spec"]["template"], "metadata": {"labels": labels}}
    cluster.api.create({
        "apiVersion": "apps/v1", "kind": "ReplicaSet",
        "metadata": {**metadata("web-5d4f"), "labels": labels,
                     "ownerReferences": [{**owner, "apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}]},
        "spec": {"replicas": 0, "selector": {"matchLabels": labels}, "template": template},
    })  # fmt: skip
    capacity = {"cpu": "8", "memory": "16Gi", "pods": "10"}
    status = {"capacity": capacity, "allocatable": capacity}
    cluster.api.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1"}, "status": status})
    resources = {"requests": REQUESTS, "limits": LIMITS}
    for name in ("web-5d4f-a", "web-5d4f-b", "other"):
        reference = {**owner, "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-5d4f"}
        references = {} if name == "other" else {"ownerReferences": [reference]}
        spec = {"nodeName": "node-1", "containers": [{"name": "main", "image": "i", "resources": resources}]}
        cluster.api.create(
            {"apiVersion": "v1", "kind": "Pod", "metadata": {**metadata(name), **references}, "spec": spec}
        )
    before = cluster.api.get("/apis/apps/v1/namespaces/default/deployments/web")["spec"]
    options = ("--in-place", "--kube-config", str(cluster.kubeconfig()))
    output = printed_patches(advised("Deployment", "web", "main"), options=options).output
    assert "# The next rollout, or any new pod, undoes a resize: patch the template, too" in output
    results = apply(cluster, tmp_path, advised("Deployment", "web", "main"), options=options)
    assert [result.returncode for result in results] == [0, 0], results
    pods = {name: cluster.api.get(f"/api/v1/namespaces/default/pods/{name}") for name in ("web-5d4f-a", "other")}
    requests = {name: pod["spec"]["containers"][0]["resources"]["requests"] for name, pod in pods.items()}
    assert requests == {"web-5d4f-a": {"cpu": "345m", "memory": "512Mi"}, "other": REQUESTS}
    assert cluster.api.get("/apis/apps/v1/namespaces/default/deployments/web")["spec"] == before
