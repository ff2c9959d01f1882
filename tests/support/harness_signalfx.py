"""Harness that runs the provider contract tests on SignalFx."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from support.fake_signalfx import FakeSignalFx, running
from support.fake_signalfx import Series as StoredSeries

from watcher.settings import ProviderSettings, Settings
from watcher.testing import Series, WindowSource

METRICS = {"cpu.utilization": "cpu", "memory.utilization": "memory"}


class Harness:
    """SignalFx, with the fake service."""

    name = "SignalFx"
    tolerance = 1e-9

    @contextmanager
    def running(self, nodes: Mapping[str, Series], duplicated: str = "", broken: str = "") -> Iterator[WindowSource]:
        stored = [
            StoredSeries(
                f"{number}-{metric}-{copy}", metric, {"host": name, "plugin": copy}, each.times, getattr(each, part)
            )
            for number, (name, each) in enumerate(nodes.items())
            for metric, part in METRICS.items()
            for copy in (("a", "b") if name == duplicated else ("a",))
        ]
        with running(FakeSignalFx(stored, broken=frozenset([broken]))) as url:
            yield WindowSource(self.settings(url))

    def settings(self, address: str) -> Settings:
        return Settings(provider=ProviderSettings(name=self.name, address=address, token="right-token"))
