"""The contract's harness for KubernetesMetricsServer: a fake API server whose present moves from sample to sample."""

import math
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from support.fake_kubernetes import FakeKubernetes, node, node_metrics, run_fake_kubernetes
from support.provider_contract import Series

from watcher.model import Window
from watcher.providers.base import Fetched
from watcher.providers.kubernetes_metrics_server import KubernetesMetricsServerProvider
from watcher.providers.sampled import Sampled
from watcher.settings import ProviderSettings, Settings
from watcher.store import Store
from watcher.transport.gather import Deadline

CORES, GIBIBYTES = 64, 512


class Source:
    """A cluster that has lived through all samples."""

    def __init__(self, fake: FakeKubernetes, nodes: Mapping[str, Series], settings: Settings) -> None:
        self._now = 0.0
        self._store = Store(None)
        self._sampled = Sampled(
            KubernetesMetricsServerProvider(settings), settings.watch, self._store, "test", clock=lambda: self._now
        )
        for at in sorted({int(time) for series in nodes.values() for time in series.times}):
            self._now = at
            fake.metrics = {name: _metrics(name, series, at) for name, series in nodes.items() if at in series.times}
            self._sampled.sample_once()

    def fetch(self, window: Window) -> Fetched:
        """Fetch what the samples so far make, without waiting for more."""
        try:
            return self._sampled.fetch(window, Deadline.after(0))
        finally:
            self._sampled.close()
            self._store.close()


class Harness:
    """Samples become usage of 64 cores and 512 GiB."""

    name = "KubernetesMetricsServer"
    tolerance = 1e-9
    over_http = True
    duplicates = False

    @contextmanager
    def running(self, nodes: Mapping[str, Series], duplicated: str = "") -> Iterator[Source]:
        """Run the fake and take every sample."""
        with tempfile.TemporaryDirectory() as folder, run_fake_kubernetes(Path(folder)) as fake:
            fake.nodes = {name: node(name, cpu=str(CORES), memory=f"{GIBIBYTES}Gi") for name in nodes}
            yield Source(fake, nodes, self.settings(fake.url, ca_file=fake.ca_file))

    def settings(self, address: str, **more: Path) -> Settings:
        """Return settings that reach an API server directly."""
        return Settings(provider=ProviderSettings(name=self.name, address=address, token="right-token", **more))


def _metrics(name: str, series: Series, at: int) -> dict[str, object]:
    moment = int((series.times == at).argmax())
    cpu, memory = float(series.cpu[moment]), float(series.memory[moment])
    return node_metrics(name, _usage(cpu, CORES * 10**9, "n"), _usage(memory, GIBIBYTES * 2**30, ""), at)


def _usage(percent: float, capacity: int, suffix: str) -> str:
    if not math.isfinite(percent) or percent > 1e6:
        return str(percent)
    return f"{round(percent / 100 * capacity)}{suffix}"
