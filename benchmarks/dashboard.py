"""Response times of the dashboard page in a real browser, with 5,000 nodes and a day of history.

Debian's Chromium draws without a graphics processor. Four times are measured: the browser's first paint and the first
drawing of all nodes, both for the first and for a later visitor, and the time from a key press on the time line, or a
letter typed in a filter, to the second frame after the page shows the new state. The filter waits 100 ms for further
letters, which is included. The page's watcher runs on the same machine. There is no baseline, but the processor times
of browser and server are printed: an idle machine needs at least these.

    python benchmarks/dashboard.py [--nodes 5000] [--turns 40]
"""

import contextlib
import statistics
import tempfile
import time
from pathlib import Path

import psutil
from common import Table, options
from support.page import browser, dashboard, watched_day

_FRAMES = "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
_CHANGED = "before => document.querySelector('#plane-status').innerText !== before"
_PAINT = "() => performance.getEntriesByName('first-contentful-paint')[0].startTime"
PROGRAMS = ("chromium", "dashboard")


def processor_seconds(word: str) -> float:
    """Return the processor time in seconds of the child processes whose command line contains a word."""
    seconds = 0.0
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if any(word in part for part in process.cmdline()):
                seconds += sum(process.cpu_times()[:2])
    return seconds


def time_changes(page, act, turns: int) -> list[float]:
    """Return, for each turn, the time in milliseconds from an action to the second frame after its result is shown.

    Args:
        page: page in the browser.
        act: function that does the action, such as pressing a key; its argument is the number of the turn.
        turns: number of turns.
    """
    times = []
    for turn in range(turns):
        before = page.inner_text("#plane-status")
        start = time.perf_counter()
        act(turn)
        page.wait_for_function(_CHANGED, arg=before, polling="raf")
        page.evaluate(_FRAMES)
        times.append(1000 * (time.perf_counter() - start))
    return times


def main() -> None:
    """Run the benchmark and print its table."""
    size = options(__doc__, nodes=5_000, turns=40)
    folder = Path(tempfile.mkdtemp())
    with (
        watched_day(folder, size.nodes) as (service, _),
        dashboard(folder, service.url) as url,
        browser() as chromium,
    ):
        columns = ("action", "median, ms", "p95, ms (aim: 400)", "processor: browser, ms", "processor: server, ms")
        table = Table(f"{size.nodes:,} nodes, a day of history, {size.turns} turns", columns)
        page = chromium.new_page(viewport={"width": 1280, "height": 900})
        page.set_default_timeout(120_000)
        for reader in ("first", "later"):
            start = time.perf_counter()
            page.goto(url)
            page.wait_for_selector(".plane .scatterlayer .point")
            drawn = time.perf_counter() - start
            table.row(f"{reader} reader: first paint", f"{page.evaluate(_PAINT):.0f}", "", "", "")
            table.row(f"{reader} reader: all nodes drawn", f"{1000 * drawn:.0f}", "", "", "")
        page.focus("#plane-time")
        actions = {
            "a step of the time line": lambda _: page.keyboard.press("ArrowLeft"),
            "a letter in a filter": lambda turn: page.fill("#plane-search", str(turn % 90 + 1)),
        }
        for name, act in actions.items():
            before = [processor_seconds(word) for word in PROGRAMS]
            times = time_changes(page, act, size.turns)
            after = [processor_seconds(word) for word in PROGRAMS]
            spent = [1000 * (late - early) / size.turns for early, late in zip(before, after, strict=True)]
            p95 = statistics.quantiles(times, n=20)[-1]
            table.row(name, f"{statistics.median(times):.0f}", f"{p95:.0f}", *(f"{each:.0f}" for each in spent))


if __name__ == "__main__":
    main()
