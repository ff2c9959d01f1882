"""Harness that runs the provider contract tests on a real Prometheus, with a series of CPU and the rule of memory.

The rule of CPU is a rate, which has an average of its own: that of the rates that together span the window.
"""

import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from support.servers import run_prometheus

from watcher.settings import PrometheusQuery, PrometheusSettings, ProviderSettings, Settings
from watcher.testing import Series, WindowSource

_CPU = "own:cpu:ratio"


class Harness:
    """One of the servers; samples become series of a custom query and of a rule, as ratios from 0 to 1."""

    name = "Prometheus"
    tolerance = 1e-9

    def __init__(self, server: str = "prometheus") -> None:
        self._server = server

    @contextmanager
    def running(self, nodes: Mapping[str, Series], duplicated: str = "") -> Iterator[WindowSource]:
        lines = _lines(nodes, duplicated)
        with tempfile.TemporaryDirectory() as folder, run_prometheus(Path(folder), lines, server=self._server) as url:
            yield WindowSource(self.settings(url))

    def settings(self, address: str) -> Settings:
        query = PrometheusQuery(name=_CPU, type="CPU", query=f"{_CPU}{{$matchers}}")
        return Settings(
            provider=ProviderSettings(name="Prometheus", address=address, token="right-token"),
            prometheus=PrometheusSettings(queries=[query]),
        )


def _lines(nodes: Mapping[str, Series], duplicated: str) -> Iterator[str]:
    for rule, field in ((_CPU, "cpu"), ("instance:node_memory_utilisation:ratio", "memory")):
        yield f"# TYPE {rule} gauge\n"
        for name, series in nodes.items():
            for replica in ("a", "b") if name == duplicated else ("a",):
                for at, value in zip(series.times, getattr(series, field), strict=True):
                    # promtool drops samples more than half an hour in the future.
                    assert at <= time.time() + 60
                    yield f'{rule}{{instance="{name}:9100",prometheus="{replica}"}} {float(value) / 100!r} {int(at)}\n'
