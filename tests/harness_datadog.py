"""Datadog in the contract suite."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from fake_datadog import FakeDatadog, running
from fake_datadog import Series as Held
from provider_contract import Series

from watcher.gather import Deadline
from watcher.model import Window
from watcher.providers.base import Fetched
from watcher.providers.datadog import DatadogProvider
from watcher.settings import ProviderSettings, Settings

METRICS = {"cpu.utilization": "cpu", "memory.utilization": "memory"}


class Harness:
    """Datadog, over the fake."""

    name = "Datadog"
    tolerance = 1e-9
    over_http = True
    duplicates = True

    @contextmanager
    def running(self, nodes: Mapping[str, Series], duplicated: str = "") -> Iterator["Source"]:
        held = [
            Held(metric, {"host": name}, each.times, getattr(each, part))
            for name, each in nodes.items()
            for metric, part in METRICS.items()
        ]
        with running(FakeDatadog(held, twice=frozenset([duplicated]))) as url:
            provider = DatadogProvider(self.settings(url))
            yield Source(provider)
            provider.close()

    def settings(self, address: str) -> Settings:
        access = ProviderSettings(name=self.name, address=address, token="right-token", app_key="right-app-key")
        return Settings(provider=access)


class Source:
    """The provider and the fake behind it."""

    def __init__(self, provider: DatadogProvider) -> None:
        self._provider = provider

    def fetch(self, window: Window) -> Fetched:
        return self._provider.fetch(window, Deadline(time.monotonic() + 20))
