"""Response times of the dashboard in a real browser: 5,000 nodes with a day of history, and 8,000 workloads.

Debian's Chromium draws without a graphics processor. Measured are the browser's first paint, the first drawing of the
Overview page with its ten hottest nodes, and that of all nodes on the Cluster page, each for the first and for later
visitors; and the time from a key press on the time line, or a letter typed in a filter, to the second frame after the
page shows the new state. The filter waits 100 ms for further letters, which is included. On the Nodes page these are a
letter in its filter and a click on another sort order. On the Workloads page these are a letter in its filter, a step
to another page, and a click on another sort order, for which the charts of the cluster are drawn again. The page's
watcher runs on the same machine. There is no baseline, but the processor times of browser and server are printed: an
idle machine needs at least these.

    python benchmarks/dashboard.py [--nodes 5000] [--workloads 8000] [--turns 40]
"""

import contextlib
import statistics
import tempfile
import time
from pathlib import Path

import psutil
from common import Table, options
from support.page import browser, dashboard, watched_day
from support.workload_days import fill_workloads

_FRAMES = "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
_CHANGED = """([selector, before]) => {
    const shown = document.querySelector(selector);
    return shown !== null && shown.innerText !== before;
}"""
_PLANE, _FIRST = "#plane-status", "#workloads-table tbody th"
_FIRST_NODE = "#nodes-table tbody th"
_SCREENS = (
    ("", "#overview-watcher tbody tr", "overview filled"),
    ("cluster", ".plane .scatterlayer .point", "all nodes drawn"),
)
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


def time_changes(page, act, turns: int, shown: str) -> list[float]:
    """Return, for each turn, the time in milliseconds from an action to the second frame after its result is shown.

    Args:
        page: page in the browser.
        act: function that does the action, such as pressing a key; its argument is the number of the turn.
        turns: number of turns.
        shown: selector of the element whose text the action changes.
    """
    times = []
    for turn in range(turns):
        before = page.inner_text(shown)
        start = time.perf_counter()
        act(turn)
        page.wait_for_function(_CHANGED, arg=[shown, before], polling="raf")
        page.evaluate(_FRAMES)
        times.append(1000 * (time.perf_counter() - start))
    return times


def time_loads(page, url: str, drawn: str, loads: int, name: str, table: Table) -> None:
    """Load a page several times; add rows for its first paint and for the time until it shows an element."""
    paints, times = [], []
    before = [processor_seconds(word) for word in PROGRAMS]
    for _ in range(loads):
        start = time.perf_counter()
        page.goto(url)
        page.wait_for_selector(drawn)
        times.append(1000 * (time.perf_counter() - start))
        paints.append(page.evaluate(_PAINT))
    spent = spent_since(before, loads)
    table.row(f"{name}: first paint", f"{statistics.median(paints):.0f}", p95_text(paints), "", "")
    table.row(name, f"{statistics.median(times):.0f}", p95_text(times), *spent)


def p95_text(times: list[float]) -> str:
    """Return the 95th percentile of times; empty for a single one."""
    return f"{statistics.quantiles(times, n=20)[-1]:.0f}" if len(times) > 1 else ""


def spent_since(before: list[float], turns: int) -> list[str]:
    """Return the processor time of browser and server since ``before``, milliseconds a turn."""
    after = [processor_seconds(word) for word in PROGRAMS]
    return [f"{1000 * (late - early) / turns:.0f}" for early, late in zip(before, after, strict=True)]


def main() -> None:
    """Run the benchmark and print its table."""
    size = options(__doc__, nodes=5_000, workloads=8_000, turns=40)
    folder = Path(tempfile.mkdtemp())
    fill_workloads(folder / "watcher.sqlite", size.workloads, int(time.time()) // 300 * 300 - 300)
    with (
        watched_day(folder, size.nodes, "--set", "workloads.enabled=false") as (service, _),
        dashboard(folder, service.url) as url,
        browser() as chromium,
    ):
        columns = ("action", "median, ms", "p95, ms (aim: 400)", "processor: browser, ms", "processor: server, ms")
        title = f"{size.nodes:,} nodes, a day of history, {size.workloads:,} workloads, {size.turns} turns"
        table = Table(title, columns)
        page = chromium.new_page(viewport={"width": 1280, "height": 900})
        page.set_default_timeout(120_000)
        for reader, loads in (("first", 1), ("later", size.turns)):
            for path, drawn, text in _SCREENS:
                time_loads(page, f"{url}/{path}", drawn, loads, f"{reader} reader, {text}", table)
        page.focus("#plane-time")
        actions = {
            "a step of the time line": (_PLANE, lambda _: page.keyboard.press("ArrowLeft")),
            "a letter in a filter": (_PLANE, lambda turn: page.fill("#plane-search", str(turn % 90 + 1))),
        }
        measure(page, actions, size.turns, table)
        page.goto(f"{url}/nodes?sort=name")
        page.wait_for_selector(_FIRST_NODE)
        orders = ("CPU", "name")
        actions = {
            "nodes: a letter in a filter": (_FIRST_NODE, lambda turn: page.fill("#nodes-search", str(turn % 90 + 2))),
            "nodes: another sort order": (_FIRST_NODE, lambda turn: page.click(f"a:text-is('{orders[turn % 2]}')")),
        }
        measure(page, actions, size.turns, table)
        start = time.perf_counter()
        page.goto(f"{url}/workloads")
        page.wait_for_selector(_FIRST)
        table.row("first reader of a round: workloads", f"{1000 * (time.perf_counter() - start):.0f}", "", "", "")
        sorts = ("waste memory", "waste CPU")
        actions = {
            "workloads: a letter in a filter": (
                _FIRST,
                lambda turn: page.fill("#workloads-search", f"web-{turn % 9 + 1}"),
            ),
            "workloads: another sort order": (_FIRST, lambda turn: page.click(f"a:text-is('{sorts[turn % 2]}')")),
            "workloads: another page": (_FIRST, lambda turn: page.fill("#workloads-page", str(turn % 9 + 2))),
        }
        measure(page, actions, size.turns, table)


def measure(page, actions, turns: int, table: Table) -> None:
    """Add a row for each action to the table: its times, and the processor times of browser and server."""
    for name, (shown, act) in actions.items():
        before = [processor_seconds(word) for word in PROGRAMS]
        times = time_changes(page, act, turns, shown)
        table.row(name, f"{statistics.median(times):.0f}", p95_text(times), *spent_since(before, turns))


if __name__ == "__main__":
    main()
