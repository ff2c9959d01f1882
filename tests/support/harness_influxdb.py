"""InfluxDB 1.x under the contract: a real influxd with what Telegraf would have written."""

import math
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from support.influxdb_server import run_influxdb

from watcher.settings import InfluxDbSettings, ProviderSettings, Settings
from watcher.testing import Series, WindowSource


def lines(node: str, series: Series, tags: str = "") -> Iterator[str]:
    """Yield a node's samples as Telegraf writes them; line protocol has no NaN and no infinity."""
    for at, cpu, memory in zip(series.times, series.cpu, series.memory, strict=True):
        if math.isfinite(cpu):
            idle = 100 - cpu if abs(cpu) < 1e300 else cpu
            yield f"cpu,cpu=cpu-total,host={node}{tags} usage_idle={float(idle)!r} {at}"
            yield f"cpu,cpu=cpu0,host={node}{tags} usage_idle=1 {at}"
        if math.isfinite(memory):
            yield f"mem,host={node}{tags} available_percent={float(100 - memory)!r},used_percent=1 {at}"


class Harness:
    """The version is found out where there is a server, and given where something else answers."""

    name = "InfluxDB"
    tolerance = 1e-9

    @contextmanager
    def running(self, nodes: Mapping[str, Series], duplicated: str = "") -> Iterator[WindowSource]:
        """Start influxd; a doubled node has two Telegraf agents that differ in a tag."""
        with tempfile.TemporaryDirectory() as folder, run_influxdb(Path(folder)) as server:
            for node, series in nodes.items():
                server.write(lines(node, series))
            if duplicated:
                server.write(lines(duplicated, nodes[duplicated], tags=",agent=second"))
            yield WindowSource(Settings(provider=ProviderSettings(name=self.name, address=server.url)))

    def settings(self, address: str) -> Settings:
        """Return settings with a token, of a version that needs no asking."""
        provider = ProviderSettings(name=self.name, address=address, token="right-token")
        return Settings(provider=provider, influxdb=InfluxDbSettings(version="1"))
