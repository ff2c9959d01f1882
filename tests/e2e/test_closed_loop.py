"""From the usage of pods to the watcher's metrics and the placement of new pods, with a real API and metrics-server."""

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
WATCHER_KINDS = {"Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """Ten nodes with pods whose usage comes from their annotations, as metrics-server reports it."""
    with ControlPlane(tmp_path_factory.mktemp("cluster")) as cluster, Kwok(cluster) as kwok:
        nodes = [node(f"node-{n}", str(CORES), f"{GIBIBYTES}Gi", reserved_cpu="7500m") for n in range(NODES)]
        cluster.api.create(*map(kwok.for_kwok, nodes))
        cluster.api.create(
            *(pod_with_usage(f"pod-{n}-{k}", f"node-{n}", *use(n, k)) for n in range(NODES) for k in range(PODS_A_NODE))
        )
        running = {"fieldSelector": "status.phase=Running"}
        wait_until(lambda: len(cluster.api.items("/api/v1/pods", **running)) == PODS_A_NODE * NODES, "all pods run")
        with MetricsServer(cluster) as metrics_server:  # last, so that it never reads a starting pod
            metrics_server.wait_for(NODES)
            yield cluster


def use(node: int, pod: int) -> tuple[int, int]:
    """Return the usage of a pod in millicores and MiB; some nodes are nearly idle, others nearly full."""
    return 20 + 230 * node + 15 * pod, 100 + 900 * (NODES - 1 - node) + 50 * pod


def pod_with_usage(name: str, node_name: str, milli_cpu: int, mebibytes: int) -> Object:
    """Return a pod on a node with this usage in its annotations."""
    annotations = {CPU_ANNOTATION: f"{milli_cpu}m", MEMORY_ANNOTATION: f"{mebibytes}Mi"}
    return pod(name, annotations=annotations, nodeName=node_name)


@cache
def watcher_account(cluster: ControlPlane) -> Api:
    """Return an API client with the watcher's account from the shipped manifests."""
    for manifest in yaml.safe_load_all(MANIFESTS.read_text()):
        if manifest["kind"] in WATCHER_KINDS:
            cluster.api.create(manifest)
    return cluster.service_account("trimaran", "trimaran-watcher")


def test_the_watcher_serves_the_usage_of_pods(
    cluster: ControlPlane, watch: Callable[..., Service], tmp_path: Path
) -> None:
    """``/watcher/<node>`` serves the usage of the node's pods, with the rights of the shipped manifests."""
    token = tmp_path / "token"
    token.write_text(watcher_account(cluster).token)
    service = watch(
        "--provider", "KubernetesMetricsServer", "--address", cluster.url, "--interval", "5",
        TRIMARAN_PROVIDER__CA_FILE=str(cluster.certificates.certificate), TRIMARAN_PROVIDER__TOKEN_FILE=str(token),
        TRIMARAN_WATCH__SAMPLE_INTERVAL_SECONDS="5", TRIMARAN_WATCH__WINDOWS="5m",
    )  # fmt: skip
    for number in range(NODES):
        metrics = service.wait_for(f"/watcher/node-{number}").json()["data"][f"node-{number}"]["metrics"]
        served = {(metric["type"], metric["operator"]): metric["value"] for metric in metrics}
        used = [use(number, k) for k in range(PODS_A_NODE)]
        cpu = 100 * sum(milli_cpu for milli_cpu, _ in used) / (CORES * 1000)
        memory = 100 * sum(mebibytes for _, mebibytes in used) / (GIBIBYTES * 1024)
        # A rate over ten seconds, with timestamps that are inexact on a busy machine: within 3 percent. A share of the
        # allocatable CPU instead of the capacity would be 7 percent off.
        assert served["CPU", "AVG"] == pytest.approx(cpu, rel=0.03)
        assert served["CPU", "STD"] < 0.05 * cpu
        assert served["Memory", "AVG"] == pytest.approx(memory, abs=1e-9)
        assert served["Memory", "STD"] == 0


def test_an_extender_with_an_embedded_watcher_places_pods_by_load(cluster: ControlPlane, tmp_path: Path) -> None:
    """With an extender that embeds its watcher, new pods avoid the most loaded nodes."""
    token = tmp_path / "token"
    token.write_text(watcher_account(cluster).token)
    library = {
        "provider__name": "KubernetesMetricsServer", "provider__address": cluster.url, "provider__token_file": token,
        "provider__ca_file": cluster.certificates.certificate, "store__path": tmp_path / "extender.sqlite",
        "watch__sample_interval_seconds": 5, "watch__interval_seconds": 5, "watch__windows": "5m",
        "extender__refresh_seconds": 1, "extender__deadline_seconds": 0.4,
    }  # fmt: skip
    with Extender(cluster, CONFIGURATION, **library) as extender, extender.scheduler(verbosity=2):
        probe = pod("probe", schedulerName="load-aware")
        node_names = [f"node-{n}" for n in range(NODES)]

        def scored() -> dict[str, int]:
            scores = extender.scores(probe, node_names)
            return scores if len(set(scores.values())) > 1 else {}

        scores = wait_until(scored, "nodes are scored by the usage of their pods")
        # From node to node memory falls while CPU rises, so the middle nodes have most of both left.
        assert max(scores, key=lambda name: scores[name]) in {"node-4", "node-5"}
        assert min(scores, key=lambda name: scores[name]) in {"node-0", "node-9"}
        before = extender.outcome("scored")
        cluster.api.create(*(pod(f"new-{n}", schedulerName="load-aware") for n in range(20)))

        def placed() -> list[str]:
            pods = cluster.api.items("/api/v1/pods")
            nodes = [item["spec"].get("nodeName", "") for item in pods if item["metadata"]["name"].startswith("new-")]
            return nodes if all(nodes) else []

        chosen = wait_until(placed, "the pods are placed")
        assert extender.outcome("scored") == before + 20
        assert not {"node-0", "node-9"} & set(chosen)
