"""The example of a whole scheduler against a real API server, with no more rights than it says that it needs."""

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
# Zone a is idle and small, zone b is large and used; hot nodes are in both.
LOADS = {"a-0": 5, "a-1": 5, "a-2": 5, "a-3": 90, "b-0": 40, "b-1": 40, "b-2": 40, "b-3": 90}
CORES = {"a": 4, "b": 16}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """Return two zones of four nodes."""
    with ControlPlane(tmp_path_factory.mktemp("cluster")) as cluster:
        cluster.api.create(*(in_zone(name, name[0], CORES[name[0]]) for name in LOADS))
        yield cluster


@pytest.fixture(scope="module")
def kubeconfig(cluster: ControlPlane) -> Path:
    """Return the way in of an account that may do what the example needs and nothing else."""
    return cluster.kubeconfig("scheduler", token=cluster.account("scheduler", *RIGHTS).token)


@pytest.fixture
def scheduler(
    cluster: ControlPlane, kubeconfig: Path, watch: Callable[..., Service], tmp_path: Path
) -> Iterator[Process]:
    """Run the example, with a watcher that knows how loaded the nodes are; the test's pods are deleted afterwards."""
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


def wanted(name: str, cpu: str = "500m", gang: str = "", size: int = 1, **spec: object) -> Object:
    """Return a pod for the example, of a gang if that has a name."""
    made = pod(name, container(requests={"cpu": cpu, "memory": "512Mi"}), schedulerName="trimaran", **spec)
    made["metadata"]["labels"] = {f"{GROUP}/name": gang, f"{GROUP}/min-available": str(size)} if gang else {}
    return made


def nodes_of(cluster: ControlPlane, prefix: str) -> list[str]:
    """Return the nodes that the pods whose names begin so are on, "" for each that is on none."""
    pods = cluster.api.items("/api/v1/pods")
    return [each["spec"].get("nodeName", "") for each in pods if each["metadata"]["name"].startswith(prefix)]


def refusal(cluster: ControlPlane, name: str) -> str:
    """Return what a pod's status says about why it is not placed."""
    conditions = cluster.api.get(f"/api/v1/namespaces/default/pods/{name}")["status"].get("conditions") or []
    return next((each["message"] for each in conditions if each.get("reason") == "Unschedulable"), "")


def test_pods_go_to_the_nodes_with_little_load(cluster: ControlPlane, scheduler: Process) -> None:
    """Pods spread over the idle nodes; one goes where it must; those of other schedulers are left alone."""
    on_a_hot_node = {"nodeSelector": {"kubernetes.io/hostname": "b-3"}}
    cluster.api.create(
        *(wanted(f"web-{number}") for number in range(6)), wanted("must", **on_a_hot_node), pod("another")
    )
    scheduler.wait_until(lambda: all(nodes_of(cluster, "web") + nodes_of(cluster, "must")), "the pods are placed")
    assert set(nodes_of(cluster, "web")) == {"a-0", "a-1", "a-2"}
    assert nodes_of(cluster, "must") == ["b-3"]
    assert nodes_of(cluster, "another") == [""]


def test_a_gang_is_placed_in_one_zone_or_not_at_all(cluster: ControlPlane, scheduler: Process) -> None:
    """It waits until it is complete, takes the zone that has room for all of it, and none while there is none."""
    cluster.api.create(*(wanted(f"gang-{number}", "3", "gang", 8) for number in range(7)))
    scheduler.wait_until(lambda: refusal(cluster, "gang-0"), "the gang's pods are told what they wait for")
    assert "7 of 8" in refusal(cluster, "gang-0")
    assert set(nodes_of(cluster, "gang")) == {""}
    cluster.api.create(wanted("gang-7", "3", "gang", 8))
    scheduler.wait_until(lambda: all(nodes_of(cluster, "gang")), "the gang is placed")
    assert {name[0] for name in nodes_of(cluster, "gang")} == {"b"}

    cluster.api.create(*(wanted(f"large-{number}", "3", "large", 20) for number in range(20)))
    scheduler.wait_until(lambda: "no feasible node" in refusal(cluster, "large-0"), "the second gang is refused")
    assert set(nodes_of(cluster, "large")) == {""}
    cluster.api.create(in_zone("b-new", "b", 64))
    try:
        scheduler.wait_until(lambda: all(nodes_of(cluster, "large")), "the second gang is placed")
        assert {name[0] for name in nodes_of(cluster, "large")} == {"b"}
    finally:
        cluster.api.delete("/api/v1/nodes/b-new")


def test_the_rest_of_a_gang_follows_what_is_bound(cluster: ControlPlane, scheduler: Process) -> None:
    """After a failure in the middle of a gang the others go to its zone, though another one is idle."""
    cluster.api.create(wanted("half-0", "1", "half", 3, nodeName="b-0"))
    cluster.api.create(*(wanted(f"half-{number}", "1", "half", 3) for number in (1, 2)))
    scheduler.wait_until(lambda: all(nodes_of(cluster, "half")), "the gang is placed")
    assert {name[0] for name in nodes_of(cluster, "half")} == {"b"}


def test_it_goes_on_after_the_api_server_was_killed(cluster: ControlPlane, scheduler: Process) -> None:
    """What was pending is placed once the API server is back."""
    cluster.apiserver.kill()
    cluster.apiserver.restart()
    wait_until(lambda: cluster.api.create(wanted("later")), "the API answers again", 60)
    scheduler.wait_until(lambda: all(nodes_of(cluster, "later")), "the pod is placed", 40)
