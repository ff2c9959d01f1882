"""A watcher with a scripted provider and a clock that the test sets."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from werkzeug.test import TestResponse

from runtime.http.gather import Deadline
from watcher.api.app import create_app
from watcher.errors import ProviderUnavailable
from watcher.findings import Finding
from watcher.model import Metric, NodeMetrics, Window
from watcher.pipeline.watcher import Watcher
from watcher.providers.base import Check, Fetched
from watcher.settings import QualitySettings, WatchSettings
from watcher.store import Store
from watcher.telemetry import WatcherTelemetry
from watcher.wire import Dialect

START = 1_700_000_000.0


def one_node_result(window: Window, value: float = 50, *findings: Finding) -> Fetched:
    """Return a provider's result: one node with one value."""
    node = NodeMetrics((Metric("cpu", "CPU", "AVG", window.duration, value),))
    return Fetched({"a": node}, findings)


class Source:
    """A provider; ``answers`` maps a window to a function that replaces the default result."""

    def __init__(self) -> None:
        self.answers: dict[str, Callable[[Window], Any]] = {}
        self.windows: list[Window] = []
        self.closed = False

    def fetch(self, window: Window, deadline: Deadline) -> Fetched:
        self.windows.append(window)
        result: Fetched = self.answers.get(window.duration, one_node_result)(window)
        return result

    def check(self) -> Iterator[Check]:
        yield Check("look", ok=True, message="fine")

    def close(self) -> None:
        self.closed = True


def unreachable(window: Window) -> Fetched:
    """Raise the error of an unreachable provider."""
    raise ProviderUnavailable(f"no route ({window.duration})")


class Bench:
    """A watcher with a ``Source`` as its provider and a clock that stands still until the test sets it."""

    def __init__(
        self, path: Path | None = None, quality: QualitySettings | None = None, now: float = START, **settings: Any
    ) -> None:
        self.now = now
        self.source = Source()
        self.telemetry = WatcherTelemetry()
        self.watcher = Watcher(
            self.source, Store(path), WatchSettings(**settings), quality, source="Test", telemetry=self.telemetry,
            clock=lambda: self.now,
        )  # fmt: skip

    def fail(self, *windows: str) -> None:
        self.source.answers = dict.fromkeys(windows, unreachable)

    def served(self, window: str | None = None) -> tuple[str, str | float | None]:
        """Return the served window and the grade of its node."""
        metrics = self.watcher.published(window).metrics
        node = metrics.data["a"]
        assert {metric.rollup for metric in node.metrics} == {metrics.window.duration}
        return metrics.window.duration, node.metadata.get("grade")


class Api(Bench):
    """A bench with a test client of the watcher's REST API."""

    def __init__(self, dialect: Dialect = Dialect.DOCUMENTED, **settings: Any) -> None:
        super().__init__(**settings)
        self.app = create_app(self.watcher, self.telemetry, dialect=dialect)
        self.client = self.app.test_client()

    def get(self, path: str, **headers: str) -> TestResponse:
        return self.client.get(path, headers={name.replace("_", "-"): value for name, value in headers.items()})
