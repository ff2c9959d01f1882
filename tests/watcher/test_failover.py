"""Several providers: the first that answers is served."""

import time
from collections.abc import Iterator

import pytest

from runtime.http.gather import Deadline
from watcher.errors import ProviderError, ProviderUnavailable
from watcher.findings import Finding, Kind
from watcher.model import Metric, NodeMetrics, Window
from watcher.providers.base import Check, Fetched
from watcher.providers.failover import Failover

WINDOW = Window("5m", 0, 300)


class Scripted:
    """Answers with CPU and memory of its nodes, fails, or takes its time."""

    def __init__(self, failure: str = "", seconds: float = 0, **nodes: float) -> None:
        self.failure, self.seconds, self.nodes = failure, seconds, nodes
        self.asked = 0
        self.closed = False

    def fetch(self, window: Window, deadline: Deadline) -> Fetched:
        """Answer."""
        self.asked += 1
        time.sleep(self.seconds)
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
        """Remember it."""
        self.closed = True


def fetch(*providers: Scripted, seconds: float = 5) -> Fetched:
    """Fetch from several providers called A, B, C."""
    several = Failover(list(zip("ABC", providers, strict=False)))
    return several.fetch(WINDOW, Deadline.after(seconds))


def test_the_first_that_answers_is_served_alone():
    """When the first provider answers, the others are not asked, and the source is the first."""
    first, second = Scripted(a=10), Scripted(a=90)
    fetched = fetch(first, second)
    assert fetched.source == "A"
    assert fetched.nodes["a"].metrics[0].value == 10
    assert second.asked == 0
    assert [finding.message for finding in fetched.findings] == ["of its own"]


@pytest.mark.parametrize("broken", [Scripted("it is down"), Scripted()], ids=["failing", "empty"])
def test_the_next_one_stands_in(broken):
    """A provider that fails or knows no node is replaced by the next, with a finding and the source's name."""
    fetched = fetch(broken, Scripted(a=90))
    assert fetched.source == "B"
    assert fetched.findings[0].kind is Kind.FELL_BACK
    assert fetched.findings[0].message.startswith("A failed, B is used instead")


def test_a_provider_that_hangs_leaves_time_for_the_next():
    """Each provider has its share of the time, also when the one before ignores its own."""
    began = time.monotonic()
    assert fetch(Scripted(seconds=3, a=1), Scripted(a=90), seconds=1).source == "B"
    assert time.monotonic() - began < 2.5


def test_when_all_fail_all_reasons_are_named():
    """The error names every provider with its reason."""
    with pytest.raises(ProviderError, match="A: it is down; B: so is this"):
        fetch(Scripted("it is down"), Scripted("so is this"))


def test_checks_and_closing_reach_all():
    """check() names each provider's steps, and close() closes each."""
    providers = Scripted("it is down"), Scripted(a=1)
    several = Failover(list(zip("AB", providers, strict=True)))
    assert [(step.step, step.ok) for step in several.check()] == [("A: ask", False), ("B: ask", True)]
    several.close()
    assert all(provider.closed for provider in providers)


def test_a_provider_that_hangs_is_not_asked_for_ever():
    """A provider that ignores its deadline fetch after fetch is left alone after a few, and the next one answers."""
    hanging = Scripted(seconds=4, a=1)
    several = Failover([("A", hanging), ("B", Scripted(a=90))])
    for _ in range(6):
        assert several.fetch(WINDOW, Deadline.after(0.8)).source == "B"
    assert hanging.asked == 3
