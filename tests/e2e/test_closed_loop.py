"""From what pods use to what the watcher serves, and to where new pods go, through a real metrics-server and API."""

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
import yaml
from control_plane.api import Api, Object
from control_plane.cluster import ControlPlane
from control_plane.extender import Extender
from control_plane.manifests import node, pod
from control_plane.usage import CPU_ANNOTATION, MEMORY_ANNOTATION, Kwok, MetricsServer
from support.extending import CONFIGURATION
from support.servers import Service, wait_until

pytestmark = pytest.mark.e2e

NODES = 10
PODS_A_NODE = 3
CORES, GIBIBYTES = 8, 32
MANIFESTS = Path(__file__).parents[2] / "deploy/kubernetes/watcher.yaml"
OF_THE_WATCHER = {"Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """Ten nodes whose pods use what their annotations say, as a metrics-server sees them."""
    with ControlPlane(tmp_path_factory.mktemp("cluster")) as cluster, Kwok(cluster) as kwok:
        nodes = [node(f"node-{n}", str(CORES), f"{GIBIBYTES}Gi", reserved_cpu="7500m") for n in range(NODES)]
        cluster.api.create(*map(kwok.played, nodes))
        cluster.api.create(
            *(using(f"pod-{n}-{k}", f"node-{n}", *use(n, k)) for n in range(NODES) for k in range(PODS_A_NODE))
        )
        running = {"fieldSelector": "status.phase=Running"}
        wait_until(lambda: len(cluster.api.items("/api/v1/pods", **running)) == PODS_A_NODE * NODES, "all pods run")
        with MetricsServer(cluster) as metrics_server:  # last, so that it never sees a pod on its way up
            metrics_server.wait_for(NODES)
            yield cluster


def use(node: int, pod: int) -> tuple[int, int]:
    """Return what a pod uses, millicores and MiB: some nodes nearly idle, others nearly full."""
    return 20 + 230 * node + 15 * pod, 100 + 900 * (NODES - 1 - node) + 50 * pod


def using(name: str, node_name: str, milli_cpu: int, mebibytes: int) -> Object:
    """Return a pod that uses so much of the node that it is bound to."""
    annotations = {CPU_ANNOTATION: f"{milli_cpu}m", MEMORY_ANNOTATION: f"{mebibytes}Mi"}
    return pod(name, annotations=annotations, nodeName=node_name)


@cache
def watcher_account(cluster: ControlPlane) -> Api:
    """Return the way in that the shipped manifests give the watcher."""
    for wanted in yaml.safe_load_all(MANIFESTS.read_text()):
        if wanted["kind"] in OF_THE_WATCHER:
            cluster.api.create(wanted)
    return cluster.service_account("trimaran", "trimaran-watcher")


def test_watcher_serves_what_pods_use(cluster: ControlPlane, watch: Callable[..., Service], tmp_path: Path) -> None:
    """What pods use is what ``/watcher/<node>`` serves, with no more rights than the shipped manifests give."""
    token = tmp_path / "token"
    token.write_text(watcher_account(cluster).token)
    service = watch(
        "--provider", "KubernetesMetricsServer", "--address", cluster.url, "--interval", "5",
        TRIMARAN_PROVIDER__CA_FILE=str(cluster.certificates.certificate), TRIMARAN_PROVIDER__TOKEN_FILE=str(token),
        TRIMARAN_WATCH__SAMPLE_INTERVAL_SECONDS="5", TRIMARAN_WATCH__WINDOWS="5m",
    )  # fmt: skip
    for number in range(NODES):
        metrics = service.wait_for(f"/watcher/node-{number}", seconds=60).json()["data"][f"node-{number}"]["metrics"]
        served = {(metric["type"], metric["operator"]): metric["value"] for metric in metrics}
        used = [use(number, k) for k in range(PODS_A_NODE)]
        cpu = 100 * sum(milli_cpu for milli_cpu, _ in used) / (CORES * 1000)
        memory = 100 * sum(mebibytes for _, mebibytes in used) / (GIBIBYTES * 1024)
        # A rate over ten seconds, between moments that a busy machine tells apart from those it counts at: within 3
        # percent. It would be 7 percent off if it were of what is allocatable.
        assert served["CPU", "AVG"] == pytest.approx(cpu, rel=0.03)
        assert served["CPU", "STD"] < 0.05 * cpu
        assert served["Memory", "AVG"] == pytest.approx(memory, abs=1e-9)
        assert served["Memory", "STD"] == 0


def test_one_process_does_it_all(cluster: ControlPlane, tmp_path: Path) -> None:
    """An extender that watches by itself: kube-scheduler's pods go to the nodes whose pods use little of them."""
    token = tmp_path / "token"
    token.write_text(watcher_account(cluster).token)
    library = {
        "provider__name": "KubernetesMetricsServer", "provider__address": cluster.url, "provider__token_file": token,
        "provider__ca_file": cluster.certificates.certificate, "store__path": tmp_path / "extender.sqlite",
        "watch__sample_interval_seconds": 5, "watch__interval_seconds": 5, "watch__windows": "5m",
        "extender__refresh_seconds": 1, "extender__deadline_seconds": 0.4,
    }  # fmt: skip
    with Extender(cluster, CONFIGURATION, **library) as extender, extender.scheduler(verbosity=2):
        asked = pod("probe", schedulerName="load-aware")
        everywhere = [f"node-{n}" for n in range(NODES)]

        def scored() -> dict[str, int]:
            scores = extender.scores(asked, everywhere)
            return scores if len(set(scores.values())) > 1 else {}

        scores = wait_until(scored, "nodes are scored by what their pods use", 60)
        # Memory falls while CPU rises from node to node, so those in the middle have most of both left.
        assert max(scores, key=lambda name: scores[name]) in {"node-4", "node-5"}
        assert min(scores, key=lambda name: scores[name]) in {"node-0", "node-9"}
        before = extender.outcome("scored")
        cluster.api.create(*(pod(f"new-{n}", schedulerName="load-aware") for n in range(20)))

        def placed() -> list[str]:
            pods = cluster.api.items("/api/v1/pods")
            found = [each["spec"].get("nodeName", "") for each in pods if each["metadata"]["name"].startswith("new-")]
            return found if all(found) else []

        chosen = wait_until(placed, "the pods are placed", 60)
        assert extender.outcome("scored") == before + 20
        assert not {"node-0", "node-9"} & set(chosen)
