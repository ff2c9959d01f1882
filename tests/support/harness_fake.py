"""The provider Fake under the contract: its file holds what the samples in the window come to."""

import json
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from runtime.http.gather import Deadline
from watcher.model import Window
from watcher.providers.base import Fetched
from watcher.providers.fake import FakeProvider
from watcher.settings import FakeSettings, ProviderSettings, Settings
from watcher.testing import Series


class Source:
    """A provider over a file."""

    def __init__(self, file: Path, nodes: Mapping[str, Series]) -> None:
        self._file = file
        self._nodes = nodes

    def fetch(self, window: Window) -> Fetched:
        """Describe the nodes that have samples in the window, and fetch."""
        described = {}
        for node, series in self._nodes.items():
            inside = series.inside(window)
            if inside.times.size:
                with np.errstate(all="ignore"):
                    described[node] = {
                        "cpu": {"average": inside.cpu.mean(), "deviation": inside.cpu.std()},
                        "memory": {"average": inside.memory.mean(), "deviation": inside.memory.std()},
                    }
        self._file.write_text(json.dumps(described))
        return FakeProvider(Settings(fake=FakeSettings(file=self._file))).fetch(window, Deadline.after(5))


class Harness:
    """No HTTP, and a node cannot be there twice."""

    name = "Fake"
    tolerance = 1e-9

    @contextmanager
    def running(self, nodes: Mapping[str, Series]) -> Iterator[Source]:
        """Make a folder for the file."""
        with tempfile.TemporaryDirectory() as folder:
            yield Source(Path(folder) / "nodes.json", nodes)

    def settings(self, address: str) -> Settings:
        """Return settings without a file."""
        return Settings(provider=ProviderSettings(name=self.name))
