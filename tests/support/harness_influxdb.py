"""Harness that runs the provider contract tests on InfluxDB 1.x: a real influxd with samples as from Telegraf."""

import math
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from support.influxdb_server import run_influxdb

from watcher.settings import InfluxDbSettings, ProviderSettings, Settings
from watcher.testing import Series, WindowSource


def lines(node: str, series: Series, tags: str = "") -> Iterator[str]:
    """Yield a node's samples as Telegraf writes them, without NaN and infinity, which line protocol does not allow."""
    for at, cpu, memory in zip(series.times, series.cpu, series.memory, strict=True):
        if math.isfinite(cpu):
            idle = 100 - cpu if abs(cpu) < 1e300 else cpu
            yield f"cpu,cpu=cpu-total,host={node}{tags} usage_idle={float(idle)!r} {at}"
            yield f"cpu,cpu=cpu0,host={node}{tags} usage_idle=1 {at}"
        if math.isfinite(memory):
            yield f"mem,host={node}{tags} available_percent={float(100 - memory)!r},used_percent=1 {at}"


class Harness:
    """InfluxDB 1.x; the version is detected if a server runs, and set if a stand-in responds."""

    name = "InfluxDB"
    tolerance = 1e-9

    @contextmanager
    def running(self, nodes: Mapping[str, Series], duplicated: str = "") -> Iterator[WindowSource]:
        """Run influxd; a duplicated node has two Telegraf agents that differ in a tag."""
        with tempfile.TemporaryDirectory() as folder, run_influxdb(Path(folder)) as server:
            for node, series in nodes.items():
                server.write(lines(node, series))
            if duplicated:
                server.write(lines(duplicated, nodes[duplicated], tags=",agent=second"))
            yield WindowSource(Settings(provider=ProviderSettings(name=self.name, address=server.url)))

    def settings(self, address: str) -> Settings:
        """Return settings with a token and a fixed version."""
        provider = ProviderSettings(name=self.name, address=address, token="right-token")
        return Settings(provider=provider, influxdb=InfluxDbSettings(version="1"))
