"""Harness that runs the provider contract tests on Kubelet: a fake API server, and a fake kubelet for each node."""

import math
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from support.fake_kubelet import run_fake_kubelet, summary
from support.fake_kubernetes import run_fake_kubernetes
from support.harness_kubernetes_metrics_server import certificate_folder

from watcher.settings import KubeletSettings, ProviderSettings, Settings
from watcher.testing import SampledSource, Series

CORES, GIBIBYTES = 64, 512
UPTIME_SECONDS = 1e6


class Harness:
    """Kubelets; samples become counters of CPU time, and the working set of 512 GiB."""

    name = "Kubelet"
    tolerance = 1e-9

    @contextmanager
    def running(self, nodes: Mapping[str, Series], broken: str = "") -> Iterator[SampledSource]:
        """Run the fakes; yield a source that reads every sample."""
        with ExitStack() as stack:
            fake = stack.enter_context(run_fake_kubernetes(certificate_folder()))
            kubelets = {name: stack.enter_context(run_fake_kubelet(certificate_folder())) for name in nodes}
            fake.nodes = {name: each.node(name, str(CORES), f"{GIBIBYTES}Gi") for name, each in kubelets.items()}
            counters = dict.fromkeys(nodes, UPTIME_SECONDS)
            seen: dict[str, int] = {}

            def show(at: int, present: Mapping[str, tuple[float, float]]) -> None:
                for name, kubelet in kubelets.items():
                    kubelet.summary = 503
                    if name in present:
                        cpu, memory = present[name]
                        counters[name] += cpu / 100 * CORES * (at - seen.get(name, at))
                        seen[name] = at
                        kubelet.summary = summary(
                            at, _whole(counters[name] * 1e9), _whole(memory / 100 * GIBIBYTES * 2**30)
                        )
                if broken:
                    kubelets[broken].summary = b'{"node": {"cpu": "much"}}'

            settings = self.settings(fake.url, ca_file=fake.ca_file)
            with SampledSource(settings, nodes, show) as source:
                yield source

    def settings(self, address: str, **more: Path) -> Settings:
        """Return settings that connect directly to an API server."""
        return Settings(
            provider=ProviderSettings(name=self.name, address=address, token="right-token", **more),
            kubelet=KubeletSettings().model_copy(update={"timeout_seconds": 2}),
        )


def _whole(value: float) -> object:
    return round(value) if math.isfinite(value) else str(value)
