"""Harness that runs the provider contract tests on InfluxDB 2.x: a fake of its API, see fake_influxdb2."""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import numpy as np
from support.fake_influxdb2 import FakeInfluxDb2, StoredSeries, run_influxdb2

from watcher.settings import InfluxDbSettings, ProviderSettings, Settings
from watcher.testing import Series, WindowSource


def store(fake: FakeInfluxDb2, node: str, series: Series, **more_tags: str) -> None:
    """Store a node's samples as Telegraf writes them, without CPU samples that are NaN or infinite."""
    tags = {"host": node, **more_tags}
    idle = np.array([100 - cpu if abs(cpu) < 1e300 else cpu for cpu in series.cpu])
    writable = np.array([math.isfinite(value) for value in idle])
    fake.series += [
        StoredSeries("cpu", "usage_idle", {"cpu": "cpu-total", **tags}, series.times[writable], idle[writable]),
        StoredSeries("cpu", "usage_idle", {"cpu": "cpu0", **tags}, series.times, np.ones(len(series.times))),
        StoredSeries("mem", "available_percent", tags, series.times, 100 - series.memory),
        StoredSeries("mem", "used_percent", tags, series.times, np.ones(len(series.times))),
    ]


class Harness:
    """InfluxDB 2.x; the version is detected if the fake runs, and set if a stand-in responds."""

    name = "InfluxDB"
    tolerance = 1e-9

    @contextmanager
    def running(self, nodes: Mapping[str, Series], duplicated: str = "") -> Iterator[WindowSource]:
        """Run the fake; a duplicated node has two Telegraf agents that differ in a tag."""
        with run_influxdb2() as fake:
            for node, series in nodes.items():
                store(fake, node, series)
            if duplicated:
                store(fake, duplicated, nodes[duplicated], agent="second")
            provider = ProviderSettings(name=self.name, address=fake.url, token=fake.token)
            yield WindowSource(Settings(provider=provider, influxdb=InfluxDbSettings(organization=fake.organization)))

    def settings(self, address: str) -> Settings:
        """Return settings with a token and a fixed version."""
        provider = ProviderSettings(name=self.name, address=address, token="right-token")
        return Settings(provider=provider, influxdb=InfluxDbSettings(version="2", organization="acme"))
