"""Harness that runs the provider contract tests on Datadog."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from support.fake_datadog import FakeDatadog, running
from support.fake_datadog import Series as StoredSeries

from watcher.settings import ProviderSettings, Settings
from watcher.testing import Series, WindowSource

METRICS = {"cpu.utilization": "cpu", "memory.utilization": "memory"}


class Harness:
    """Datadog, with the fake service."""

    name = "Datadog"
    tolerance = 1e-9

    @contextmanager
    def running(self, nodes: Mapping[str, Series], duplicated: str = "", broken: str = "") -> Iterator[WindowSource]:
        stored = [
            StoredSeries(metric, {"host": name}, each.times, getattr(each, part))
            for name, each in nodes.items()
            for metric, part in METRICS.items()
        ]
        with running(FakeDatadog(stored, twice=frozenset([duplicated]), broken=frozenset([broken]))) as url:
            yield WindowSource(self.settings(url))

    def settings(self, address: str) -> Settings:
        access = ProviderSettings(name=self.name, address=address, token="right-token", app_key="right-app-key")
        return Settings(provider=access)
