"""Interface that a provider's author implements for the contract tests: the provider, and the source behind it."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from runtime.http.gather import Deadline
from watcher.model import Window
from watcher.providers.base import Fetched, PastProvider, WindowProvider, close_provider, open_provider
from watcher.providers.sampled import Sampled
from watcher.settings import Settings
from watcher.store import Store
from watcher.windows.past_metrics import PastMetrics

STEP_SECONDS = 60
_TIMEOUT_SECONDS = 20


@dataclass(frozen=True)
class Series:
    """Samples of one node, one per minute.

    Attributes:
        times: Unix seconds, whole minutes, ascending, shape (samples,).
        cpu: CPU in percent of capacity, shape (samples,).
        memory: memory in percent of capacity, shape (samples,).
    """

    times: NDArray[np.int64]
    cpu: NDArray[np.float64]
    memory: NDArray[np.float64]

    def inside(self, window: Window) -> "Series":
        """Return the series' samples whose times are inside a window."""
        inside = (self.times > window.start) & (self.times <= window.end)
        return Series(self.times[inside], self.cpu[inside], self.memory[inside])


class RunningSource(Protocol):
    """Running source with the samples that it was started with."""

    def fetch(self, window: Window) -> Fetched:
        """Fetch from the source with the provider, built from settings like a user's."""
        ...


class Harness(Protocol):
    """Provider under test, and its source: the real source if it can run here, else a fake.

    Attributes:
        name: the provider's name for METRICS_PROVIDER_NAME. Its package must be installed, so that the name is found.
        tolerance: largest relative error of AVG and STD compared with numpy; 1e-9 unless the source is less exact.
    """

    name: str
    tolerance: float

    def running(self, nodes: Mapping[str, Series]) -> AbstractContextManager[RunningSource]:
        """Start the source with these nodes' samples.

        Args:
            nodes: node name to its samples, the newest less than a minute old. Values may be NaN, infinite, negative,
                or 1e308: pass them on if the source can hold them.

        Returns:
            a :class:`WindowSource` or a :class:`SampledSource` while the source runs.
        """
        ...

    def settings(self, address: str) -> Settings:
        """Return settings for an address, with the token ``right-token`` if the provider uses tokens."""
        ...


class DuplicatingHarness(Harness, Protocol):
    """Harness of a source that can hold two series of one node."""

    def running(self, nodes: Mapping[str, Series], duplicated: str = "") -> AbstractContextManager[RunningSource]:
        """Start the source with these nodes' samples.

        Args:
            nodes: as in :meth:`Harness.running`.
            duplicated: the node with a second, identical series, as from two highly available collectors.
        """
        ...


class BreakingHarness(Harness, Protocol):
    """Harness of a source whose description of a single node can be unreadable."""

    def running(self, nodes: Mapping[str, Series], broken: str = "") -> AbstractContextManager[RunningSource]:
        """Start the source with these nodes' samples.

        Args:
            nodes: as in :meth:`Harness.running`.
            broken: the node whose part of the source's answer is unreadable, such as an object without its keys, or
                text in place of a number; for a source that is asked for each node, an error for this node.
        """
        ...


class WindowSource:
    """Source behind a provider that computes windows itself. Every fetch uses a new provider."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def fetch(self, window: Window) -> Fetched:
        """Fetch like the watcher."""
        provider = open_provider(self._settings)
        assert isinstance(provider, WindowProvider), "use SampledSource for a provider with sample()"
        try:
            return provider.fetch(window, Deadline.after(_TIMEOUT_SECONDS))
        finally:
            close_provider(provider)

    def past(self, window: str, ends: range) -> PastMetrics:
        """Read windows of the past like the watcher, for a provider that has ``past()``."""
        provider = open_provider(self._settings)
        assert isinstance(provider, PastProvider), "the provider has no past()"
        try:
            return provider.past(window, ends, Deadline.after(_TIMEOUT_SECONDS))
        finally:
            close_provider(provider)


class SampledSource:
    """Source that only knows the present: the provider samples it at every time of the series.

    Use it as a context manager: the samples are taken once, on entering.

    Args:
        settings: settings like a user's.
        nodes: as in :meth:`Harness.running`.
        show: a function that sets what the source reports next. Its arguments are the time in Unix seconds, and each
            node's CPU and memory in percent.
    """

    def __init__(
        self,
        settings: Settings,
        nodes: Mapping[str, Series],
        show: Callable[[int, Mapping[str, tuple[float, float]]], None],
    ) -> None:
        provider = open_provider(settings)
        assert not isinstance(provider, WindowProvider), "use WindowSource for a provider with fetch()"
        self._now = 0
        self._store = Store(None)
        self._sampled = Sampled(provider, settings.watch, self._store, "contract", clock=lambda: self._now)
        self._nodes = nodes
        self._show = show

    def __enter__(self) -> Self:
        """Let the provider take all its samples."""
        try:
            self._take_samples()
        except BaseException:  # then there is no __exit__
            self.__exit__()
            raise
        return self

    def _take_samples(self) -> None:
        rounds: dict[int, dict[str, tuple[float, float]]] = {}
        for node, series in self._nodes.items():
            for time, cpu, memory in zip(series.times, series.cpu, series.memory, strict=True):
                rounds.setdefault(int(time), {})[node] = (float(cpu), float(memory))
        for time, present in sorted(rounds.items()):
            self._now = time
            self._show(time, present)
            self._sampled.sample_once()

    def __exit__(self, *_: object) -> None:
        """Close the provider and the store."""
        self._sampled.close()
        self._store.close()

    def fetch(self, window: Window) -> Fetched:
        """Fetch a window of the samples, without waiting for more."""
        return self._sampled.fetch(window, Deadline.after(0))
