"""What every provider's harness offers to the contract suite in test_provider_contract.py.

A harness is a class ``Harness`` in ``tests/harness_<provider>.py``. It stands for one provider and the source behind
it: the real one where it runs here, a fake written from its documentation where it does not.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from watcher.model import Window
from watcher.providers.base import Fetched, WindowProvider, close_provider, open_provider
from watcher.settings import Settings
from watcher.transport.gather import Deadline

STEP_SECONDS = 60


@dataclass(frozen=True)
class Series:
    """Samples of one node, one a minute: ``times`` in unix seconds, both resources in percent of capacity."""

    times: np.ndarray
    cpu: np.ndarray
    memory: np.ndarray


class Source(Protocol):
    """A source that runs and holds what it was started with."""

    def fetch(self, window: Window) -> Fetched:
        """Return what the provider, built from settings like a user's, makes of the source."""
        ...


class WindowSource:
    """A source behind a provider that computes windows itself; every fetch is made by a provider of its own."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def fetch(self, window: Window) -> Fetched:
        """Fetch as the watcher would."""
        provider = open_provider(self._settings)
        assert isinstance(provider, WindowProvider)
        try:
            return provider.fetch(window, Deadline.after(20))
        finally:
            close_provider(provider)


class Harness(Protocol):
    """One provider under test.

    Attributes:
        name: the provider's name in METRICS_PROVIDER_NAME.
        tolerance: largest relative error of AVG and STD against numpy; 1e-9 unless the source itself is less exact.
        over_http: whether the provider talks HTTP to ``provider.address``, so that the fault tests apply.
        duplicates: whether the source can hold two series of one node; ``running`` then takes ``duplicated``.
    """

    name: str
    tolerance: float
    over_http: bool
    duplicates: bool

    def running(self, nodes: Mapping[str, Series], duplicated: str = "") -> AbstractContextManager[Source]:
        """Start the source with these nodes' samples. Values may be NaN, infinite, negative, or 1e308 where it can.

        Args:
            nodes: node name to its samples, all at the same times, the newest less than a minute old.
            duplicated: a node to hold a second, identical, series of, as from a pair of highly available collectors.
        """
        ...

    def settings(self, address: str) -> Settings:
        """Return settings that send the provider to an address, with token ``right-token`` where it takes one."""
        ...
