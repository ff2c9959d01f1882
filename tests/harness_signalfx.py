"""SignalFx in the contract suite."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from fake_signalfx import FakeSignalFx, running
from fake_signalfx import Series as Held
from provider_contract import Series

from watcher.gather import Deadline
from watcher.model import Window
from watcher.providers.base import Fetched
from watcher.providers.signalfx import SignalFxProvider
from watcher.settings import ProviderSettings, Settings

METRICS = {"cpu.utilization": "cpu", "memory.utilization": "memory"}


class Harness:
    """SignalFx, over the fake."""

    name = "SignalFx"
    tolerance = 1e-9
    over_http = True
    duplicates = True

    @contextmanager
    def running(self, nodes: Mapping[str, Series], duplicated: str = "") -> Iterator["Source"]:
        held = [
            Held(f"{number}-{metric}-{copy}", metric, {"host": name, "plugin": copy}, each.times, getattr(each, part))
            for number, (name, each) in enumerate(nodes.items())
            for metric, part in METRICS.items()
            for copy in (("a", "b") if name == duplicated else ("a",))
        ]
        with running(FakeSignalFx(held)) as url:
            provider = SignalFxProvider(self.settings(url))
            yield Source(provider)
            provider.close()

    def settings(self, address: str) -> Settings:
        return Settings(provider=ProviderSettings(name=self.name, address=address, token="right-token"))


class Source:
    """The provider and the fake behind it."""

    def __init__(self, provider: SignalFxProvider) -> None:
        self._provider = provider

    def fetch(self, window: Window) -> Fetched:
        return self._provider.fetch(window, Deadline(time.monotonic() + 20))
