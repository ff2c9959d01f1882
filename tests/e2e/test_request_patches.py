"""Patches of ``trimaran workloads --patch``, applied by the printed kubectl commands to a real API server."""

import json
import os
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
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
    amount = {"cpu_cores": 1, "memory_bytes": GIB}
    item = {
        "name": container, "requests": amount, "use": amount, "wasted": amount, "cpu_cores_percentiles": {"90": 0.3},
        "highest_memory_bytes": GIB, "recommended": {"cpu_cores": 0.345, "memory_bytes": GIB / 2},
        "verdict": dict.fromkeys(amount, "lower"), "reason": dict.fromkeys(amount), **times,
    }  # fmt: skip
    return {"namespace": "default", "kind": kind, "name": name, **times, "containers": [item]}


def apply(cluster: ControlPlane, folder: Path, *workloads: dict[str, Any]) -> list[subprocess.CompletedProcess[str]]:
    """Run the printed command of each patch on its document; return the finished commands."""
    body = json.dumps({"timestamp": NOW, "total": len(workloads), "workloads": workloads}).encode()
    with serving(lambda handler: reply(handler, body)) as fake:
        printed = CliRunner().invoke(main, ["workloads", "--watcher", fake.url, "--patch"])
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
