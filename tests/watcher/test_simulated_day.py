"""A simulated day of failures, in seconds: the test sets the clock, nothing sleeps, and the random source is seeded."""

import gc
import json
import logging
import math
import random
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.bench import START
from werkzeug.test import Client

from runtime.http.gather import Deadline
from watcher.api.app import create_app
from watcher.errors import ProviderRefused, ProviderUnavailable
from watcher.freshness import CLOCK_CORRECTION_SECONDS
from watcher.model import Metric, NodeMetrics, Window
from watcher.pipeline.watcher import Watcher
from watcher.providers.base import Check, Fetched
from watcher.settings import WatchSettings
from watcher.store import Store
from watcher.telemetry import WatcherTelemetry

INTERVAL_SECONDS, EXPIRY_SECONDS = 60, 300
NODES = 8


class FailingWorld:
    """The true time, a clock that may differ from it, and a provider that fails in every way.

    Nodes have the true time in their tags, so that a reader can compute their true age.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.true_time = START
        self.offset = 0.0
        self.outage: str | None = None
        self.happened: Counter[str] = Counter()

    def clock(self) -> float:
        return self.true_time + self.offset

    def pass_time(self) -> bool:
        """Advance by one interval, sometimes change the outage or the clock; return whether the clock changed."""
        self.true_time += INTERVAL_SECONDS
        before = self.offset
        if self.random.random() < 0.02:
            # Steps shorter than an interval are left out: they change a snapshot's age by less than one interval.
            self.offset = self.random.choice([0.0, 200.0, -200.0, 3600.0, -3600.0, 86400.0 * 400])
            self.happened["the clock was set"] += 1
        if self.random.random() < 0.1:
            self.outage = self.random.choice([None, "unavailable", "hangs", "refused"])
        return self.offset != before

    def fetch(self, window: Window, deadline: Deadline) -> Fetched:
        kinds = ["good"] * 6 + ["unavailable", "hangs", "refused", "defect", "empty", "nothing", "not finite"]
        kinds += ["nodes missing", "half a node", "wrong scale", "twice", "no name", "not a number"]
        outcome = self.outage or self.random.choice(kinds)
        self.happened[outcome] += 1
        match outcome:
            case "unavailable":
                raise ProviderUnavailable("no route")
            case "refused":
                raise ProviderRefused("not you")
            case "hangs":
                raise TimeoutError
            case "defect":
                raise ZeroDivisionError
            case "nothing":
                return None  # type: ignore[return-value]
            case "empty":
                return Fetched({})
            case "nodes missing":
                return Fetched({name: self.node(window, outcome) for name in self.some_names()})
            case "no name":
                return Fetched(
                    {**{name: self.node(window, outcome) for name in self.some_names()}, "": NodeMetrics(())}
                )
            case _:
                return Fetched({f"node-{number}": self.node(window, outcome) for number in range(NODES)})

    def some_names(self) -> list[str]:
        return self.random.sample([f"node-{number}" for number in range(NODES)], self.random.randint(1, NODES - 1))

    def node(self, window: Window, outcome: str) -> NodeMetrics:
        value: float = self.random.uniform(0, 100)
        if outcome == "not finite" and self.random.random() < 0.7:
            value = self.random.choice([math.nan, math.inf, -math.inf])
        if outcome == "wrong scale":
            value *= 1000
        if outcome == "not a number" and self.random.random() < 0.1:
            value = "17"  # type: ignore[assignment]
        metrics = [
            Metric(f"n:{type_}", type_, operator, window.duration, value if operator == "AVG" else 1.0)
            for type_ in (("CPU",) if outcome == "half a node" else ("CPU", "Memory"))
            for operator in ("AVG", "STD")
        ]
        return NodeMetrics(tuple(metrics * 2 if outcome == "twice" else metrics), {"measured": repr(self.true_time)})

    def check(self) -> Iterator[Check]:
        yield from ()


def watch(world: FailingWorld, path: Path) -> tuple[Watcher, Client]:
    """Start a watcher over a file, as after a restart."""
    telemetry = WatcherTelemetry()
    settings = WatchSettings(interval_seconds=INTERVAL_SECONDS, expiry_seconds=EXPIRY_SECONDS)
    watcher = Watcher(world, Store(path), settings, source="Test", telemetry=telemetry, clock=world.clock)
    return watcher, create_app(watcher, telemetry).test_client()


def refuse(token: str) -> float:
    """Fail on NaN and Infinity: the json module accepts both although JSON does not define them."""
    pytest.fail(f"{token} was served")


def check_served_metrics(world: FailingWorld, client: Client) -> None:
    """Check that every route has a documented status, and that served values are finite, in range and fresh."""
    for path in ("/watcher", "/watcher?window=15m", "/watcher?window=5m", "/compat/watcher", "/watcher/node-3"):
        response = client.get(path)
        assert response.status_code in {200, 404}, response.text
        world.happened[f"{path} {response.status_code}"] += 1
        document = json.loads(response.data, parse_constant=refuse)
        data = document.get("data", {})
        for node in data.get("NodeMetricsMap", data).values():
            assert all(0 <= metric["value"] <= 100 for metric in node["metrics"])
            age = world.true_time - float(node["tags"]["measured"])
            assert age <= EXPIRY_SECONDS + CLOCK_CORRECTION_SECONDS, (path, node)
            world.happened[node["metadata"].get("grade", "measured")] += 1
    for path in ("/watcher/health", "/readyz", "/findings", "/metrics"):
        assert client.get(path).status_code in {200, 503}


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_a_day_of_failures(tmp_path: Path, seed: int, caplog: pytest.LogCaptureFixture) -> None:
    """Over 24 hours no exception escapes, no NaN or expired value is served, and memory does not grow."""
    caplog.set_level(logging.CRITICAL)  # caplog keeps log records, which would count as memory
    world = FailingWorld(seed)
    watcher, client = watch(world, tmp_path / "store.sqlite")
    allocated_blocks: list[int] = []
    try:
        for minute in range(24 * 60):
            clock_was_set = world.pass_time()
            # A change of the clock between two runs cannot be detected, so the two are not combined.
            if not clock_was_set and world.random.random() < 0.01:
                watcher.stop()
                watcher, client = watch(world, tmp_path / "store.sqlite")
                world.happened["restarts"] += 1
                check_served_metrics(world, client)
            watcher.fetch_once()
            check_served_metrics(world, client)
            if minute % 60 == 59:
                gc.collect()
                allocated_blocks.append(sys.getallocatedblocks())
    finally:
        watcher.stop()
    at_start, at_end = max(allocated_blocks[:6]), max(allocated_blocks[-6:])
    assert at_end < 1.1 * at_start, allocated_blocks
    everything = {"good", "unavailable", "refused", "hangs", "defect", "empty", "nothing", "not finite", "restarts"}
    everything |= {"nodes missing", "half a node", "wrong scale", "twice", "no name", "not a number"}
    everything |= {"the clock was set", "measured", "last_good", "shorter_window", "/watcher 200", "/watcher 404"}
    assert everything <= world.happened.keys()
