"""The example of a plugin in the scheduler with a real API server and the rights of the scheduler's manifest."""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import requests
from control_plane.cluster import ControlPlane
from control_plane.processes import Process
from support.ports import free_port
from support.servers import Service
from support.standalone import NAME, all_bound, pending, pods_of, standalone_cluster

pytestmark = pytest.mark.e2e

EXAMPLE = Path(__file__).parents[2] / "examples" / "scheduler.py"
LOADS = {"node-0": 90, "node-1": 20, "node-2": 85}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A cluster of three nodes, of which two are hot, with the scheduler's account."""
    with standalone_cluster(tmp_path_factory.mktemp("cluster"), len(LOADS)) as cluster:
        yield cluster


@pytest.fixture
def example(
    cluster: ControlPlane, watch: Callable[..., Service], tmp_path: Path
) -> Iterator[Callable[..., tuple[Process, str]]]:
    """Start the example with a watcher that serves the loads; return its process and its address."""
    file = tmp_path / "loads.json"
    loads = {name: {kind: {"average": load} for kind in ("cpu", "memory")} for name, load in LOADS.items()}
    file.write_text(json.dumps(loads))
    watcher = watch("--provider", "Fake", TRIMARAN_FAKE__FILE=str(file))
    watcher.wait_for("/readyz")
    token = cluster.service_account("trimaran", "trimaran-standalone").token
    started: list[Process] = []

    def start(*options: str) -> tuple[Process, str]:
        port = free_port()  # the example does not log its address
        command = [
            sys.executable, EXAMPLE, "--name", NAME, "--watcher", watcher.url, "--port", str(port),
            "--kube-config", cluster.kubeconfig("example", token=token), *options,
        ]  # fmt: skip
        process = Process(command, tmp_path / f"example-{len(started)}.log")
        started.append(process)
        return process, f"http://127.0.0.1:{port}"

    yield start
    for process in started:
        process.terminate()
    cluster.api.delete("/api/v1/namespaces/default/pods")


def test_pods_go_to_the_cool_node_until_it_is_full(
    cluster: ControlPlane, example: Callable[..., tuple[Process, str]]
) -> None:
    """The plugin refuses hot nodes with its reason: eight pods of half a core fill the cool node, the ninth waits."""
    process, _ = example()
    cluster.api.create(*(pending(f"web-{number}") for number in range(8)))
    process.wait_until(lambda: all_bound(cluster, "web", 8), "the pods are bound", 90)
    assert {each["spec"]["nodeName"] for each in pods_of(cluster, "web")} == {"node-1"}
    cluster.api.create(pending("late"))

    def messages() -> list[str]:
        return [each.get("message", "") for each in pods_of(cluster, "late")[0]["status"].get("conditions") or ()]

    process.wait_until(messages, "the pod has the reason")
    assert "2 node(s) had a high CPU use" in messages()[0]


def test_in_shadow_it_places_nothing(cluster: ControlPlane, example: Callable[..., tuple[Process, str]]) -> None:
    """With --shadow the pod stays pending, and ``GET /shadow`` compares with the scheduler that binds it."""
    process, url = example("--shadow")
    process.wait_until(lambda: requests.get(f"{url}/readyz", timeout=5).ok, "it is ready")
    cluster.api.create(pending("seen"))
    metric = "trimaran_scheduler_shadow_pods_total"
    process.wait_until(lambda: metric in requests.get(f"{url}/metrics", timeout=5).text, "it serves metrics")
    assert not pods_of(cluster, "seen")[0]["spec"].get("nodeName")
    assert requests.get(f"{url}/shadow", timeout=60).json()["compared"] == 0
