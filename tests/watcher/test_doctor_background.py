"""Checks inside the running service, which are repeated while something is wrong."""

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.servers import Fake, reply, serving, two_nodes, wait_until

from watcher.doctor import Doctor
from watcher.settings import ProviderSettings, Settings, StoreSettings


@pytest.fixture
def prometheus() -> Iterator[tuple[Fake, SimpleNamespace]]:
    """Prometheus that has series as soon as node_exporter is scraped."""
    state = SimpleNamespace(scraped=False)

    def answer(handler: BaseHTTPRequestHandler) -> None:
        if state.scraped:
            two_nodes(handler)
        else:
            reply(handler, {"status": "success", "data": {"resultType": "vector", "result": []}})

    with serving(answer) as server:
        yield server, state


def test_a_mended_problem_ends_with_the_next_fetch(prometheus: tuple[Fake, SimpleNamespace], tmp_path: Path) -> None:
    """A failed check is repeated after the next fetch, at most every 10 seconds, else after 5 minutes."""
    server, state = prometheus
    settings = Settings(
        provider=ProviderSettings(name="Prometheus", address=server.url), store=StoreSettings(path=tmp_path / "store")
    )
    time = SimpleNamespace(now=1000.0, fetched=1)
    doctor = Doctor(settings, lambda: time.fetched, lambda: time.now)
    doctor.start()
    try:
        (problem,) = wait_until(doctor.problems, "the check fails")
        assert "node_exporter" in problem
        checked = len(server.requests)
        for time.now, time.fetched in ((1001.0, 2), (1009.9, 3), (1009.9, 1), (1299.0, 1)):
            doctor._stop.wait(0.6)  # longer than the pause between two looks at the time
            assert len(server.requests) == checked, json.dumps([time.now, time.fetched])
        time.now = 1300.0
        wait_until(lambda: len(server.requests) == 2 * checked, "it is checked again after 5 minutes")
        assert doctor.problems() == (problem,)
        state.scraped = True
        doctor._stop.wait(0.6)
        time.now, time.fetched = 1310.0, 4
        wait_until(lambda: doctor.problems() == (), "the problem ends after the next fetch")
    finally:
        doctor.stop()
