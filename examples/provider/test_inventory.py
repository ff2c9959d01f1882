"""Provider contract for the inventory, with a server that responds to /load as the source."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from watcher.settings import ProviderSettings, Settings
from watcher.testing import (
    BrokenNodeContract,
    HttpContract,
    ProviderContract,
    SampledSource,
    Series,
    reply,
    serving,
)


class InventoryHarness:
    """Harness for the inventory, which only knows the present: the provider takes every sample in turn."""

    name = "Inventory"
    tolerance = 1e-9

    @contextmanager
    def running(self, nodes: Mapping[str, Series], broken: str = "") -> Iterator[SampledSource]:
        load: dict[str, dict[str, float]] = {}

        def show(at: int, present: Mapping[str, tuple[float, float]]) -> None:
            load.clear()
            load.update({node: {"at": at, "cpu": cpu, "memory": memory} for node, (cpu, memory) in present.items()})
            if broken:
                del load[broken]["cpu"]

        with (
            serving(lambda handler: reply(handler, load)) as server,
            SampledSource(self.settings(server.url), nodes, show) as source,
        ):
            yield source

    def settings(self, address: str) -> Settings:
        return Settings(provider=ProviderSettings(name=self.name, address=address, token="right-token"))


class TestInventory(ProviderContract, HttpContract, BrokenNodeContract):
    """Tests of the contract."""

    harness = InventoryHarness()
