"""A browser on the dashboard, with a real watcher that has a day of history."""

import os
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import requests
from support.days import fill, made_up_day
from support.ports import served_url
from support.servers import Service, need_server, start_command, wait_until

SCREEN = "..page.children...navigation.children.."  # outputs of the callback that draws a page
LAUNCH = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
)  # fmt: skip


@contextmanager
def watched_day(folder: Path, nodes: int, *arguments: str, minutes: int = 1440) -> Iterator[tuple[Service, object]]:
    """Run a watcher of synthetic nodes with a day of history; yield the watcher and the day's loads."""
    loads = made_up_day(nodes, minutes)
    path = folder / "watcher.sqlite"
    fill(path, loads, int(time.time()) // 60 * 60 - 60)
    service = Service(path, folder / "watcher.log", "--provider", "Fake", "--set", f"fake.nodes={nodes}", *arguments)
    try:
        service.wait_for("/readyz")
        yield service, loads
    finally:
        service.terminate()


@contextmanager
def dashboard(folder: Path, watcher: str, *arguments: str, **environment: str) -> Iterator[str]:
    """Run ``trimaran dashboard``; yield its address."""
    command = ("dashboard", "--watcher", watcher, "--port", "0", *arguments)
    log = folder / "dashboard.log"
    begin = log.stat().st_size if log.exists() else 0
    process = start_command(command, log, {**os.environ, **environment})
    try:
        url = served_url(log, lambda: process.poll() is not None, begin=begin)
        wait_until(lambda: requests.get(f"{url}/livez", timeout=5).ok, "the dashboard answers")
        yield url
    finally:
        process.terminate()
        process.wait(15)


def callback_request(output: str, **inputs: dict[str, Any]) -> dict[str, Any]:
    """Return a callback's request as the page sends it; ``inputs`` maps a component id to its properties."""
    return {
        "output": output,
        "outputs": [dict(zip(("id", "property"), each.split("."), strict=True)) for each in output[2:-2].split("...")],
        "inputs": [
            {"id": id_, "property": name, "value": value}
            for id_, properties in inputs.items()
            for name, value in properties.items()
        ],
        "changedPropIds": [],
        "state": [],
    }


def callback(url: str, output: str, **inputs: dict[str, Any]) -> requests.Response:
    """Return the response of a callback of the page."""
    answer = requests.post(f"{url}/_dash-update-component", json=callback_request(output, **inputs), timeout=60)
    answer.raise_for_status()
    answer.encoding = "utf-8"
    return answer


@contextmanager
def browser():
    """Run Debian's Chromium; yield Playwright's browser."""
    executable = need_server("chromium")
    sync = pytest.importorskip("playwright.sync_api")
    state = random.getstate()
    try:
        with sync.sync_playwright() as playwright:
            chromium = playwright.chromium.launch(executable_path=executable, headless=True, args=list(LAUNCH))
            try:
                yield chromium
            finally:
                chromium.close()
    finally:
        random.setstate(state)  # Playwright draws from the global generator
