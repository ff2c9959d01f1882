"""The contract of providers that measure pods: a real Prometheus, and the metrics API of a fake API server."""

import math
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.fake_kubelet import run_fake_kubelet, stats
from support.fake_kubernetes import TOKEN, pod_metrics, run_fake_kubernetes
from support.servers import run_prometheus

from runtime.errors import SettingsError
from watcher.providers.base import PodUseProvider, close_provider, known_providers, open_provider
from watcher.settings import ProviderSettings, Settings
from watcher.testing import (
    ContainerId,
    MeasuredContainer,
    PodUseContract,
    PodUseHttpContract,
    ProviderSource,
)

Containers = Mapping[ContainerId, MeasuredContainer]
RECENT_SECONDS = 120


class PrometheusHarness:
    """One of the servers with Prometheus' query API, with the series of cAdvisor."""

    name = "Prometheus"
    tolerance = 1e-9

    def __init__(self, server: str = "prometheus") -> None:
        self._server = server

    @contextmanager
    def measuring(self, containers: Containers, end: int) -> Iterator[ProviderSource]:
        lines = self._lines(containers, end)
        with tempfile.TemporaryDirectory() as folder, run_prometheus(Path(folder), lines, server=self._server) as url:
            yield ProviderSource(self.settings(url))

    def settings(self, address: str) -> Settings:
        return Settings(provider=ProviderSettings(name=self.name, address=address, token="right-token"))

    def _lines(self, containers: Containers, end: int) -> Iterator[str]:
        for metric, kind in (
            ("container_cpu_usage_seconds_total", "counter"), ("container_memory_working_set_bytes", "gauge")
        ):  # fmt: skip
            yield f"# TYPE {metric.removesuffix('_total')} {kind}\n"
            for key, measured in containers.items():
                labels = ",".join(f'{name}="{value}"' for name, value in zip(key._fields, key, strict=True))
                for age in measured.ages.tolist():
                    value = 1e5 - measured.cpu_cores * age if kind == "counter" else measured.memory_bytes
                    yield f'{metric}{{{labels},image="i"}} {value!r} {end - age}\n'


class MetricsServerHarness:
    """A fake API server; like metrics-server it lists containers that were measured twice, and lately."""

    name = "KubernetesMetricsServer"
    tolerance = 1e-8

    @contextmanager
    def measuring(self, containers: Containers, end: int) -> Iterator[ProviderSource]:
        with tempfile.TemporaryDirectory() as folder, run_fake_kubernetes(Path(folder)) as fake:
            for key, measured in containers.items():
                if len(measured.ages) >= 2 and measured.ages[-1] < RECENT_SECONDS:
                    name = f"{key.namespace}/{key.pod}"
                    listed = fake.pod_metrics.setdefault(name, pod_metrics(key.pod, end, namespace=key.namespace))
                    usage = {"cpu": f"{round(measured.cpu_cores * 1e9)}n", "memory": _text(measured.memory_bytes)}
                    listed["containers"].append({"name": key.container, "usage": usage})
            yield ProviderSource(self.settings(fake.url, ca_file=fake.ca_file, token=TOKEN))

    def settings(self, address: str, **options: object) -> Settings:
        return Settings(
            provider=ProviderSettings(name=self.name, address=address, **{"token": "right-token", **options})
        )


class KubeletHarness:
    """A fake kubelet with the containers of one node; a container that was measured once has no ``usageNanoCores``."""

    name = "Kubelet"
    tolerance = 1e-8

    @contextmanager
    def measuring(self, containers: Containers, end: int) -> Iterator[ProviderSource]:
        with (
            tempfile.TemporaryDirectory() as folder,
            run_fake_kubernetes(Path(folder)) as fake,
            run_fake_kubelet(Path(folder)) as kubelet,
        ):
            pods: dict[tuple[str, str], list[dict[str, object]]] = {}
            for key, measured in containers.items():
                at, cores = end - int(measured.ages[-1]), {}
                if len(measured.ages) > 1:
                    cores = {"usageNanoCores": round(measured.cpu_cores * 1e9)}
                memory = measured.memory_bytes
                written = round(memory) if math.isfinite(memory) and memory < 1e18 else str(memory)
                pods.setdefault((key.namespace, key.pod), []).append(
                    {
                        "name": key.container,
                        "cpu": stats(at, **cores),
                        "memory": stats(at, workingSetBytes=written),
                    }
                )
            kubelet.summary = {
                "node": {},
                "pods": [
                    {"podRef": {"namespace": namespace, "name": name, "uid": "u"}, "containers": of_pod}
                    for (namespace, name), of_pod in pods.items()
                ],
            }
            fake.nodes = {"node-1": kubelet.node("node-1")}
            yield ProviderSource(self.settings(fake.url, ca_file=fake.ca_file, token=TOKEN))

    def settings(self, address: str, **options: object) -> Settings:
        return Settings(
            provider=ProviderSettings(name=self.name, address=address, **{"token": "right-token", **options})
        )


def _text(memory: float) -> str:
    return str(round(memory)) if math.isfinite(memory) and memory < 1e18 else str(memory)


@pytest.mark.server
class TestPrometheus(PodUseContract, PodUseHttpContract):
    harness = PrometheusHarness()


@pytest.mark.server
class TestPrometheus3(PodUseContract):
    harness = PrometheusHarness("prometheus-3")


@pytest.mark.server
class TestVictoriaMetrics(PodUseContract):
    harness = PrometheusHarness("victoria-metrics")


class TestKubelet(PodUseContract, PodUseHttpContract):
    harness = KubeletHarness()


class TestKubernetesMetricsServer(PodUseContract, PodUseHttpContract):
    harness = MetricsServerHarness()


def test_every_provider_that_measures_pods_has_the_contract() -> None:
    """The providers with this ability are tested, except Fake, which makes its pods up."""
    able = set()
    for name in known_providers():
        settings = Settings(provider=ProviderSettings(name=name, address="http://a", token="t", app_key="k"))
        try:
            provider = open_provider(settings)
        except SettingsError:  # a provider that needs a package or other settings does not measure pods
            continue
        able |= {name} if isinstance(provider, PodUseProvider) else set()
        close_provider(provider)
    assert able - {"Fake"} == {suite.harness.name for suite in PodUseContract.__subclasses__()}
