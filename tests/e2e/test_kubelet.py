"""The provider Kubelet with a real API server and KWOK's kubelets, which serve ``/metrics/resource`` only."""

import time
from collections.abc import Iterator

import pytest
from control_plane.cluster import ControlPlane
from control_plane.manifests import node, pod
from control_plane.usage import CPU_ANNOTATION, MEMORY_ANNOTATION, Kwok
from support.servers import wait_until

from runtime.http.gather import Deadline
from watcher.errors import ProviderError
from watcher.model import Window
from watcher.providers.base import Samples, close_provider
from watcher.providers.kubelet.provider import KubeletProvider
from watcher.settings import KubeletSettings, ProviderSettings, Settings

pytestmark = pytest.mark.e2e
MEBI = 2**20
CORES, GIBIBYTES = 4, 16
#: Millicores and MiB of each pod, by its node.
USE = {"node-0": {"a": (500, 512), "b": (1500, 1024)}, "node-1": {"c": (200, 256)}}
RIGHTS = (
    {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list"]},
    {"apiGroups": [""], "resources": ["nodes/metrics", "nodes/stats"], "verbs": ["get"]},
)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """Two nodes of KWOK with running pods."""
    with ControlPlane(tmp_path_factory.mktemp("cluster")) as cluster, Kwok(cluster) as kwok:
        cluster.api.create(*(kwok.for_kwok(node(name, str(CORES), f"{GIBIBYTES}Gi")) for name in USE))
        for name, pods in USE.items():
            for own, (cpu, memory) in pods.items():
                use = {CPU_ANNOTATION: f"{cpu}m", MEMORY_ANNOTATION: f"{memory}Mi"}
                cluster.api.create(pod(own, annotations=use, nodeName=name))
        running = {"fieldSelector": "status.phase=Running"}
        wait_until(lambda: len(cluster.api.items("/api/v1/pods", **running)) == 3, "all pods run")
        yield cluster


@pytest.fixture(scope="module")
def token(cluster: ControlPlane) -> str:
    """The token of an account that has the documented rights only."""
    return cluster.create_account("kubelet-reader", *RIGHTS).token


@pytest.fixture
def provider(cluster: ControlPlane, token: str) -> Iterator[KubeletProvider]:
    """A provider of its own for each test."""
    access = ProviderSettings(
        name="Kubelet", address=cluster.url, token=token, ca_file=cluster.certificates.certificate
    )
    provider = KubeletProvider(Settings(provider=access, kubelet=KubeletSettings(insecure_skip_verify=True)))
    yield provider
    close_provider(provider)


def test_nodes_have_their_use(provider: KubeletProvider) -> None:
    """From the second measurement on every node has the CPU and the memory of its pods, and no pressure."""
    with pytest.raises(ProviderError, match="once"):
        provider.sample(Deadline.after(20))
    time.sleep(2)
    samples = provider.sample(Deadline.after(20))
    assert isinstance(samples, Samples)
    assert samples.keys() == USE.keys()
    for name, pods in USE.items():
        values = {reading.type: reading.value for reading in samples[name].readings}
        cores, mebibytes = (sum(each[column] for each in pods.values()) for column in (0, 1))
        assert values["CPU"] == pytest.approx(100 * cores / 1000 / CORES, rel=0.1)
        assert values["Memory"] == pytest.approx(100 * mebibytes / 1024 / GIBIBYTES)
        assert values.keys() == {"CPU", "Memory"}
    assert [finding.kind for finding in samples.findings] == ["unverified"]


def test_pods_have_their_use(provider: KubeletProvider) -> None:
    """From the second round on every container has its CPU and its memory."""
    now = int(time.time())
    window = Window("", now - 300, now)
    with pytest.raises(ProviderError, match="no container"):
        provider.pod_use(window, Deadline.after(20))
    time.sleep(2)
    use = provider.pod_use(window, Deadline.after(20))
    found = dict(zip(use.pods, zip(use.cpu_cores.tolist(), use.memory_bytes.tolist(), strict=True), strict=True))
    expected = {name: each for pods in USE.values() for name, each in pods.items()}
    assert found.keys() == expected.keys()
    for name, (cpu, memory) in expected.items():
        assert found[name][0] == pytest.approx(cpu / 1000, rel=0.1)
        assert found[name][1] == memory * MEBI


def test_check_reads_all_kubelets(provider: KubeletProvider) -> None:
    """Every step of the check succeeds."""
    steps = list(provider.check())
    assert all(step.ok for step in steps)
    assert "2 of 2 kubelets answer" in " ".join(step.message for step in steps)
