"""How long the page takes in a real browser, with 5,000 nodes and a day of history.

    python benchmarks/dashboard.py [--nodes 5000] [--turns 40]

Debian's Chromium draws without a graphics processor. Measured are the time to the browser's first paint and to the
first drawing of all nodes, and from a key at the time line, or a letter in a filter, to the second frame after the new
state is said (a filter waits 100 ms for more letters, which is in its figure). Beside the page runs the watcher that it
asks.
The processor's time, of all of the browser and of the page's server, says what a machine with nothing else to do would
take at least.
"""

import argparse
import contextlib
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from support.page import browser, dashboard, watched_day

_FRAMES = "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
_CHANGED = "said => document.querySelector('#plane-said').innerText !== said"


_PAINT = "() => performance.getEntriesByName('first-contentful-paint')[0].startTime"


def processor(word: str) -> float:
    """Return the seconds of the processor that what we started took, of programs whose command has a word in it."""
    took = 0.0
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if any(word in part for part in process.cmdline()):
                took += sum(process.cpu_times()[:2])
    return took


def changes(page, act, turns: int) -> list[float]:
    """Return how long each of some changes took until it was drawn, in ms."""
    found = []
    for turn in range(turns):
        said = page.inner_text("#plane-said")
        began = time.perf_counter()
        act(turn)
        page.wait_for_function(_CHANGED, arg=said, polling="raf")
        page.evaluate(_FRAMES)
        found.append(1000 * (time.perf_counter() - began))
    return found


def main() -> None:
    """Serve, look, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--turns", type=int, default=40)
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp())
    with (
        watched_day(folder, arguments.nodes) as (service, _),
        dashboard(folder, service.url) as url,
        browser() as chromium,
    ):
        page = chromium.new_page(viewport={"width": 1280, "height": 900})
        page.set_default_timeout(120_000)
        for look in ("first", "second"):
            began = time.perf_counter()
            page.goto(url)
            page.wait_for_selector(".plane .scatterlayer .point")
            drawn = time.perf_counter() - began
            print(f"{look} look: first paint {page.evaluate(_PAINT) / 1000:.1f} s, all nodes drawn after {drawn:.1f} s")
        page.focus("#plane-time")
        acts = {
            "scrub": lambda _: page.keyboard.press("ArrowLeft"),
            "filter": lambda turn: page.fill("#plane-search", str(turn % 90 + 1)),
        }
        for name, act in acts.items():
            before = [processor(word) for word in ("chromium", "dashboard")]
            found = changes(page, act, arguments.turns)
            spent = [
                1000 * (processor(word) - earlier) / arguments.turns
                for word, earlier in zip(("chromium", "dashboard"), before, strict=True)
            ]
            p95 = statistics.quantiles(found, n=20)[-1]
            print(
                f"{name}: median {statistics.median(found):.0f} ms, p95 {p95:.0f} ms; "
                f"processor: browser {spent[0]:.0f} ms, server {spent[1]:.0f} ms"
            )
    print(f"load of the machine: {os.getloadavg()[0]:.0f} on {os.cpu_count()} processors")


if __name__ == "__main__":
    main()
