"""A day of everything going wrong, in seconds: the clock is set by the test, nothing sleeps, chance is seeded."""

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
from watcher.telemetry import Telemetry

INTERVAL_SECONDS, EXPIRY_SECONDS = 60, 300
NODES = 8


class World:
    """True time, the clock that should show it and does not always, and a provider that fails in every way.

    What was measured carries the true time in its tags, so that whoever is served it can tell its true age.
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
        """Let a minute pass; now and then an outage begins or ends, and the clock is set. Return whether it was."""
        self.true_time += INTERVAL_SECONDS
        before = self.offset
        if self.random.random() < 0.02:
            # Steps that hide in one interval are left out: they make nothing older than that interval.
            self.offset = self.random.choice([0.0, 200.0, -200.0, 3600.0, -3600.0, 86400.0 * 400])
            self.happened["the clock was set"] += 1
        if self.random.random() < 0.1:
            self.outage = self.random.choice([None, "unavailable", "hangs", "refused"])
        return self.offset != before

    def fetch(self, window: Window, deadline: Deadline) -> Fetched:
        kinds = ["good"] * 6 + ["unavailable", "hangs", "refused", "defect", "empty", "nothing", "not finite"]
        kinds += ["nodes missing", "half a node", "wrong scale", "twice", "no name", "not a number"]
        what = self.outage or self.random.choice(kinds)
        self.happened[what] += 1
        match what:
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
                return Fetched({name: self.node(window, what) for name in self.some_names()})
            case "no name":
                return Fetched({**{name: self.node(window, what) for name in self.some_names()}, "": NodeMetrics(())})
            case _:
                return Fetched({f"node-{number}": self.node(window, what) for number in range(NODES)})

    def some_names(self) -> list[str]:
        return self.random.sample([f"node-{number}" for number in range(NODES)], self.random.randint(1, NODES - 1))

    def node(self, window: Window, what: str) -> NodeMetrics:
        value: float = self.random.uniform(0, 100)
        if what == "not finite" and self.random.random() < 0.7:
            value = self.random.choice([math.nan, math.inf, -math.inf])
        if what == "wrong scale":
            value *= 1000
        if what == "not a number" and self.random.random() < 0.1:
            value = "17"  # type: ignore[assignment]
        metrics = [
            Metric(f"n:{type_}", type_, operator, window.duration, value if operator == "AVG" else 1.0)
            for type_ in (("CPU",) if what == "half a node" else ("CPU", "Memory"))
            for operator in ("AVG", "STD")
        ]
        return NodeMetrics(tuple(metrics * 2 if what == "twice" else metrics), {"measured": repr(self.true_time)})

    def check(self) -> Iterator[Check]:
        yield from ()


def watch(world: World, path: Path) -> tuple[Watcher, Client]:
    """Start a watcher over a file, as a restart does."""
    telemetry = Telemetry()
    settings = WatchSettings(interval_seconds=INTERVAL_SECONDS, expiry_seconds=EXPIRY_SECONDS)
    watcher = Watcher(world, Store(path), settings, source="Test", telemetry=telemetry, clock=world.clock)
    return watcher, create_app(watcher, telemetry).test_client()


def refuse(token: str) -> float:
    """Fail on NaN and Infinity, which json reads although JSON has neither."""
    pytest.fail(f"{token} was served")


def check_what_is_served(world: World, client: Client) -> None:
    """Check every route: a documented status, finite values in range, and nothing older than it may be."""
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
def test_a_day_with_everything_going_wrong(tmp_path: Path, seed: int, caplog: pytest.LogCaptureFixture) -> None:
    """Over 24 hours no exception escapes, no NaN is served, nothing old passes for fresh, and memory stays flat."""
    caplog.set_level(logging.CRITICAL)  # what is logged is kept, and would count as memory
    world = World(seed)
    watcher, client = watch(world, tmp_path / "store.sqlite")
    held: list[int] = []
    try:
        for minute in range(24 * 60):
            clock_was_set = world.pass_time()
            # Nobody can tell that the clock was set while nobody watched it.
            if not clock_was_set and world.random.random() < 0.01:
                watcher.stop()
                watcher, client = watch(world, tmp_path / "store.sqlite")
                world.happened["restarts"] += 1
                check_what_is_served(world, client)
            watcher.fetch_once()
            check_what_is_served(world, client)
            if minute % 60 == 59:
                gc.collect()
                held.append(sys.getallocatedblocks())
    finally:
        watcher.stop()
    first, last = max(held[:6]), max(held[-6:])
    assert last < 1.1 * first, held
    everything = {"good", "unavailable", "refused", "hangs", "defect", "empty", "nothing", "not finite", "restarts"}
    everything |= {"nodes missing", "half a node", "wrong scale", "twice", "no name", "not a number"}
    everything |= {"the clock was set", "measured", "last_good", "shorter_window", "/watcher 200", "/watcher 404"}
    assert everything <= world.happened.keys()
