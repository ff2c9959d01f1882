"""Harness that runs the provider contract tests on KubernetesMetricsServer: a fake API server, sample by sample."""

import atexit
import math
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from support.fake_kubernetes import node, node_metrics, run_fake_kubernetes
from support.leaks import kept_by_session

from watcher.settings import ProviderSettings, Settings
from watcher.testing import SampledSource, Series

CORES, GIBIBYTES = 64, 512


@cache
def certificate_folder() -> Path:
    """Return the folder of the fakes' certificates, which are created once."""
    with kept_by_session("certificates"):
        folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


class Harness:
    """metrics-server; samples become usage of 64 cores and 512 GiB."""

    name = "KubernetesMetricsServer"
    tolerance = 1e-9

    @contextmanager
    def running(self, nodes: Mapping[str, Series], broken: str = "") -> Iterator[SampledSource]:
        """Run the fake; yield a source that reads every sample."""
        with run_fake_kubernetes(certificate_folder()) as fake:
            fake.nodes = {name: node(name, cpu=str(CORES), memory=f"{GIBIBYTES}Gi") for name in nodes}

            def show(at: int, present: Mapping[str, tuple[float, float]]) -> None:
                fake.metrics = {name: _metrics(name, cpu, memory, at) for name, (cpu, memory) in present.items()}
                if broken:
                    fake.metrics[broken]["usage"] = {"cpu": "much"}

            with SampledSource(self.settings(fake.url, ca_file=fake.ca_file), nodes, show) as source:
                yield source

    def settings(self, address: str, **more: Path) -> Settings:
        """Return settings that connect directly to an API server."""
        return Settings(provider=ProviderSettings(name=self.name, address=address, token="right-token", **more))


def _metrics(name: str, cpu: float, memory: float, at: int) -> dict[str, object]:
    return node_metrics(name, _usage(cpu, CORES * 10**9, "n"), _usage(memory, GIBIBYTES * 2**30, ""), at)


def _usage(percent: float, capacity: int, suffix: str) -> str:
    if not math.isfinite(percent) or percent > 1e6:
        return str(percent)
    return f"{round(percent / 100 * capacity)}{suffix}"
