"""The example scheduler with a real API server and only the documented rights."""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from control_plane.api import Object
from control_plane.cluster import ControlPlane
from control_plane.manifests import container, node, pod
from control_plane.processes import Process
from support.servers import Service, wait_until

pytestmark = pytest.mark.e2e

EXAMPLE = Path(__file__).parents[2] / "examples" / "scheduler.py"
RIGHTS = (
    {"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": ["list", "watch"]},
    {"apiGroups": [""], "resources": ["pods/binding"], "verbs": ["create"]},
    {"apiGroups": [""], "resources": ["pods/status"], "verbs": ["patch"]},
)
GROUP = "pod-group.scheduling.sigs.k8s.io"
ZONE = "topology.kubernetes.io/zone"
# Zone a is small and idle, zone b is large and loaded; both have a hot node.
LOADS = {"a-0": 5, "a-1": 5, "a-2": 5, "a-3": 90, "b-0": 40, "b-1": 40, "b-2": 40, "b-3": 90}
CORES = {"a": 4, "b": 16}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A cluster with two zones of four nodes each."""
    with ControlPlane(tmp_path_factory.mktemp("cluster")) as cluster:
        cluster.api.create(*(in_zone(name, name[0], CORES[name[0]]) for name in LOADS))
        yield cluster


@pytest.fixture(scope="module")
def kubeconfig(cluster: ControlPlane) -> Path:
    """Kubeconfig of an account with only the rights that the example needs."""
    return cluster.kubeconfig("scheduler", token=cluster.create_account("scheduler", *RIGHTS).token)


@pytest.fixture
def scheduler(
    cluster: ControlPlane, kubeconfig: Path, watch: Callable[..., Service], tmp_path: Path
) -> Iterator[Process]:
    """The running example, with a watcher that serves the nodes' loads; all pods are deleted afterwards."""
    file = tmp_path / "loads.json"
    loads = {name: {kind: {"average": load} for kind in ("cpu", "memory")} for name, load in LOADS.items()}
    file.write_text(json.dumps(loads))
    watcher = watch("--provider", "Fake", TRIMARAN_FAKE__FILE=str(file))
    watcher.wait_for("/readyz")
    command = [sys.executable, EXAMPLE, "--watcher", watcher.url, "--kube-config", kubeconfig]
    process = Process(command, tmp_path / "scheduler.log")
    yield process
    process.terminate()
    cluster.api.delete("/api/v1/namespaces/default/pods")


def in_zone(name: str, zone: str, cores: int) -> Object:
    return node(name, str(cores), f"{4 * cores}Gi", labels={ZONE: zone})


def pending_pod(name: str, cpu: str = "500m", gang: str = "", size: int = 1, **spec: object) -> Object:
    """Return a pod for the example, in a gang if ``gang`` is not empty."""
    manifest = pod(name, container(requests={"cpu": cpu, "memory": "512Mi"}), schedulerName="trimaran", **spec)
    manifest["metadata"]["labels"] = {f"{GROUP}/name": gang, f"{GROUP}/min-available": str(size)} if gang else {}
    return manifest


def nodes_of(cluster: ControlPlane, prefix: str) -> list[str]:
    """Return the nodes of the pods with this name prefix, "" for each pending pod."""
    pods = cluster.api.items("/api/v1/pods")
    return [each["spec"].get("nodeName", "") for each in pods if each["metadata"]["name"].startswith(prefix)]


def refusal(cluster: ControlPlane, name: str) -> str:
    """Return the reason in a pod's status why the pod is not placed, or ""."""
    conditions = cluster.api.get(f"/api/v1/namespaces/default/pods/{name}")["status"].get("conditions") or []
    return next((each["message"] for each in conditions if each.get("reason") == "Unschedulable"), "")


def test_pods_go_to_the_nodes_with_little_load(cluster: ControlPlane, scheduler: Process) -> None:
    """Pods spread over idle nodes, a node selector is obeyed, and pods of other schedulers stay pending."""
    on_a_hot_node = {"nodeSelector": {"kubernetes.io/hostname": "b-3"}}
    cluster.api.create(
        *(pending_pod(f"web-{number}") for number in range(6)), pending_pod("must", **on_a_hot_node), pod("another")
    )
    scheduler.wait_until(lambda: all(nodes_of(cluster, "web") + nodes_of(cluster, "must")), "the pods are placed")
    assert set(nodes_of(cluster, "web")) == {"a-0", "a-1", "a-2"}
    assert nodes_of(cluster, "must") == ["b-3"]
    assert nodes_of(cluster, "another") == [""]


def test_a_gang_is_placed_in_one_zone_or_stays_pending(cluster: ControlPlane, scheduler: Process) -> None:
    """A gang waits until it is complete and a zone has room for all of its pods."""
    cluster.api.create(*(pending_pod(f"gang-{number}", "3", "gang", 8) for number in range(7)))
    scheduler.wait_until(lambda: refusal(cluster, "gang-0"), "the status of the gang's pods has the reason")
    assert "7 of 8" in refusal(cluster, "gang-0")
    assert set(nodes_of(cluster, "gang")) == {""}
    cluster.api.create(pending_pod("gang-7", "3", "gang", 8))
    scheduler.wait_until(lambda: all(nodes_of(cluster, "gang")), "the gang is placed")
    assert {name[0] for name in nodes_of(cluster, "gang")} == {"b"}

    cluster.api.create(*(pending_pod(f"large-{number}", "3", "large", 20) for number in range(20)))
    scheduler.wait_until(lambda: "no feasible node" in refusal(cluster, "large-0"), "the second gang is refused")
    assert set(nodes_of(cluster, "large")) == {""}
    cluster.api.create(in_zone("b-new", "b", 64))
    try:
        scheduler.wait_until(lambda: all(nodes_of(cluster, "large")), "the second gang is placed")
        assert {name[0] for name in nodes_of(cluster, "large")} == {"b"}
    finally:
        cluster.api.delete("/api/v1/nodes/b-new")


def test_the_rest_of_a_gang_follows_its_bound_pods(cluster: ControlPlane, scheduler: Process) -> None:
    """If part of a gang is bound, its other pods go to the same zone, even if another zone is idle."""
    cluster.api.create(pending_pod("half-0", "1", "half", 3, nodeName="b-0"))
    cluster.api.create(*(pending_pod(f"half-{number}", "1", "half", 3) for number in (1, 2)))
    scheduler.wait_until(lambda: all(nodes_of(cluster, "half")), "the gang is placed")
    assert {name[0] for name in nodes_of(cluster, "half")} == {"b"}


def test_the_example_says_what_it_expects(
    cluster: ControlPlane, kubeconfig: Path, watch: Callable[..., Service], tmp_path: Path
) -> None:
    """With ``--learned-use`` a pod is placed, and the output has its expected use or why its requests count."""
    watcher = watch("--provider", "Fake")
    watcher.wait_for("/readyz")
    command = [sys.executable, EXAMPLE, "--watcher", watcher.url, "--kube-config", kubeconfig, "--learned-use"]
    process = Process(command, tmp_path / "learned.log")
    try:
        cluster.api.create(pending_pod("learned"))
        process.wait_until(lambda: "" not in nodes_of(cluster, "learned"), "the pod is placed", 30)
        bound = "default/learned is bound to"
        process.wait_until(lambda: bound in process.log.read_text(), "the output has it", 10)
        line = next(line for line in process.log.read_text().splitlines() if line.startswith(bound))
        assert "; expected use: by requests: " in line
    finally:
        process.terminate()
        cluster.api.delete("/api/v1/namespaces/default/pods")


def test_the_example_recovers_from_a_killed_api_server(cluster: ControlPlane, scheduler: Process) -> None:
    """After a kill and restart of the API server the example places new pods."""
    cluster.apiserver.kill()
    cluster.apiserver.restart()
    wait_until(lambda: cluster.api.create(pending_pod("later")), "the API answers again", 60)
    scheduler.wait_until(lambda: all(nodes_of(cluster, "later")), "the pod is placed", 40)
