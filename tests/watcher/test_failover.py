"""Tests of several providers, of which the first that answers is served."""

import threading
import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from runtime.http.gather import Deadline
from watcher.errors import ProviderError, ProviderUnavailable
from watcher.findings import Finding, Kind
from watcher.model import Metric, NodeMetrics, Window
from watcher.providers.base import Check, Fetched
from watcher.providers.failover import Failover

WINDOW = Window("5m", 0, 300)


class Scripted:
    """Provider that returns CPU and memory of its nodes, fails, or is slow."""

    def __init__(self, failure: str = "", seconds: float = 0, **nodes: float) -> None:
        self.failure, self.seconds, self.nodes = failure, seconds, nodes
        self.asked = 0
        self._closed = threading.Event()

    @property
    def closed(self) -> bool:
        """Return whether the provider was closed."""
        return self._closed.is_set()

    def fetch(self, window: Window, deadline: Deadline) -> Fetched:
        """Return the scripted result."""
        self.asked += 1
        self._closed.wait(self.seconds)
        if self.failure:
            raise ProviderUnavailable(self.failure)
        nodes = {
            name: NodeMetrics(
                (Metric("cpu", "CPU", "AVG", "5m", value), Metric("memory", "Memory", "Latest", "5m", value))
            )
            for name, value in self.nodes.items()
        }
        return Fetched(nodes, (Finding(Kind.NOT_FINITE, "of its own"),) if nodes else ())

    def check(self) -> Iterator[Check]:
        """Yield one step."""
        yield Check("ask", ok=not self.failure, message=self.failure, setting="provider.address")

    def close(self) -> None:
        """Record the call; it ends a slow fetch."""
        self._closed.set()


def fetch(*providers: Scripted, seconds: float = 5) -> Fetched:
    """Fetch from several providers named A, B, C."""
    several = Failover(list(zip("ABC", providers, strict=False)))
    return several.fetch(WINDOW, Deadline.after(seconds))


def test_first_provider_is_served():
    """If the first provider answers, the others are not called, and the source is the first."""
    first, second = Scripted(a=10), Scripted(a=90)
    fetched = fetch(first, second)
    assert fetched.source == "A"
    assert fetched.nodes["a"].metrics[0].value == 10
    assert second.asked == 0
    assert [finding.message for finding in fetched.findings] == ["of its own"]


@pytest.mark.parametrize("broken", [Scripted("it is down"), Scripted()], ids=["failing", "empty"])
def test_next_provider_replaces_a_failed_one(broken):
    """A provider that fails or returns no nodes is replaced by the next, with a finding and the source's name."""
    fetched = fetch(broken, Scripted(a=90))
    assert fetched.source == "B"
    assert fetched.findings[0].kind is Kind.FELL_BACK
    assert fetched.findings[0].message.startswith("A failed")


def test_hanging_provider_leaves_time_for_the_next():
    """Each provider gets its share of the time, even if the one before ignores its deadline."""
    began = time.monotonic()
    with closing(Scripted(seconds=60, a=1)) as hanging:
        assert fetch(hanging, Scripted(a=90), seconds=1).source == "B"
        assert time.monotonic() - began < 30


def test_error_has_all_reasons():
    """If all providers fail, the error names every provider with its reason."""
    with pytest.raises(ProviderError, match=r"A: .*; B: "):
        fetch(Scripted("it is down"), Scripted("so is this"))


def test_check_and_close_of_all_providers():
    """check() yields each provider's steps with its name, and close() closes each provider."""
    providers = Scripted("it is down"), Scripted(a=1)
    several = Failover(list(zip("AB", providers, strict=True)))
    assert [(step.step, step.ok) for step in several.check()] == [("A: ask", False), ("B: ask", True)]
    several.close()
    assert all(provider.closed for provider in providers)


def test_hanging_provider_is_skipped_after_some_fetches():
    """A provider that ignores its deadline in every fetch is no longer called, and the next is used."""
    with closing(Scripted(seconds=60, a=1)) as hanging:
        several = Failover([("A", hanging), ("B", Scripted(a=90))])
        for _ in range(6):
            assert several.fetch(WINDOW, Deadline.after(0.8)).source == "B"
        assert hanging.asked == 3
