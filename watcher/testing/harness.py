"""What a provider's author brings to the contract: the provider under test, and the source behind it."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from runtime.http.gather import Deadline
from watcher.model import Window
from watcher.providers.base import Fetched, WindowProvider, close_provider, open_provider
from watcher.providers.sampled import Sampled
from watcher.settings import Settings
from watcher.store import Store

STEP_SECONDS = 60
_TIMEOUT_SECONDS = 20


@dataclass(frozen=True)
class Series:
    """Samples of one node, one a minute.

    Attributes:
        times: unix seconds, whole minutes, rising; shape (samples,).
        cpu: percent of capacity at these times; same shape.
        memory: the same for memory.
    """

    times: NDArray[np.int64]
    cpu: NDArray[np.float64]
    memory: NDArray[np.float64]

    def inside(self, window: Window) -> "Series":
        """Return the samples that a window covers."""
        kept = (self.times > window.start) & (self.times <= window.end)
        return Series(self.times[kept], self.cpu[kept], self.memory[kept])


class RunningSource(Protocol):
    """A source that runs and holds what it was started with."""

    def fetch(self, window: Window) -> Fetched:
        """Return what the provider, built from settings like a user's, makes of the source."""
        ...


class Harness(Protocol):
    """One provider under test, and its source: the real one where it can run, else a fake of it.

    Attributes:
        name: the provider's name in METRICS_PROVIDER_NAME; its package is installed, so that it is found by it.
        tolerance: largest relative error of AVG and STD against numpy; 1e-9 unless the source itself is less exact.
    """

    name: str
    tolerance: float

    def running(self, nodes: Mapping[str, Series]) -> AbstractContextManager[RunningSource]:
        """Start the source with these nodes' samples.

        Args:
            nodes: node name to its samples, the newest less than a minute old. Values may be NaN, infinite, negative,
                or 1e308: hand them on wherever the source can hold such a thing.

        Returns:
            a :class:`WindowSource` or a :class:`SampledSource` while the source runs.
        """
        ...

    def settings(self, address: str) -> Settings:
        """Return settings that send the provider to an address, with the token ``right-token`` where it takes one."""
        ...


class DuplicatingHarness(Harness, Protocol):
    """A harness of a source that can hold two series of one node."""

    def running(self, nodes: Mapping[str, Series], duplicated: str = "") -> AbstractContextManager[RunningSource]:
        """Start the source with these nodes' samples.

        Args:
            nodes: as in :meth:`Harness.running`.
            duplicated: a node to hold a second, identical, series of, as from a pair of highly available collectors.
        """
        ...


class WindowSource:
    """A source behind a provider that computes windows itself; every fetch is made by a provider of its own."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def fetch(self, window: Window) -> Fetched:
        """Fetch as the watcher would."""
        provider = open_provider(self._settings)
        assert isinstance(provider, WindowProvider), "a provider with sample() stands behind a SampledSource"
        try:
            return provider.fetch(window, Deadline.after(_TIMEOUT_SECONDS))
        finally:
            close_provider(provider)


class SampledSource:
    """A source that only knows the present: the provider samples it at every time that the series have.

    A context manager, as it keeps what it sampled: the samples are taken once, on entering.

    Args:
        settings: settings like a user's.
        nodes: as in :meth:`Harness.running`.
        show: sets the source's present: unix seconds, and each node's CPU and memory then, in percent.
    """

    def __init__(
        self,
        settings: Settings,
        nodes: Mapping[str, Series],
        show: Callable[[int, Mapping[str, tuple[float, float]]], None],
    ) -> None:
        provider = open_provider(settings)
        assert not isinstance(provider, WindowProvider), "a provider with fetch() stands behind a WindowSource"
        self._now = 0
        self._store = Store(None)
        self._sampled = Sampled(provider, settings.watch, self._store, "contract", clock=lambda: self._now)
        self._nodes = nodes
        self._show = show

    def __enter__(self) -> Self:
        """Let the source live through all the samples."""
        rounds: dict[int, dict[str, tuple[float, float]]] = {}
        for node, series in self._nodes.items():
            for at, cpu, memory in zip(series.times, series.cpu, series.memory, strict=True):
                rounds.setdefault(int(at), {})[node] = (float(cpu), float(memory))
        for at, present in sorted(rounds.items()):
            self._now = at
            self._show(at, present)
            self._sampled.sample_once()
        return self

    def __exit__(self, *_: object) -> None:
        """Close provider and store."""
        self._sampled.close()
        self._store.close()

    def fetch(self, window: Window) -> Fetched:
        """Fetch what the samples make, without waiting for more."""
        return self._sampled.fetch(window, Deadline.after(0))
