"""Harness that runs the provider contract tests on Fake: its file holds the mean and deviation of the samples."""

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
    """A Fake provider whose file is written before each fetch."""

    def __init__(self, file: Path, nodes: Mapping[str, Series]) -> None:
        self._file = file
        self._nodes = nodes

    def fetch(self, window: Window) -> Fetched:
        """Write the nodes with samples in the window to the file, and fetch."""
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
    """The Fake provider: no HTTP, and no duplicate nodes."""

    name = "Fake"
    tolerance = 1e-9

    @contextmanager
    def running(self, nodes: Mapping[str, Series]) -> Iterator[Source]:
        """Create a folder for the file; yield the source."""
        with tempfile.TemporaryDirectory() as folder:
            yield Source(Path(folder) / "nodes.json", nodes)

    def settings(self, address: str) -> Settings:
        """Return settings without a file."""
        return Settings(provider=ProviderSettings(name=self.name))
