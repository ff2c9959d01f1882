"""How long the page takes in a real browser, with 5,000 nodes and a day of history.

    python benchmarks/dashboard.py [--nodes 5000] [--turns 40]

Debian's Chromium draws without a graphics processor. Measured are the time to the first drawing of all nodes, and from
a key at the time line, or a letter in the search, to the second frame after the new state is said (the search waits 150
ms for more letters, which is in its figure). Beside the page runs the watcher that it asks.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from support.page import browser, dashboard, watched_day

_FRAMES = "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
_CHANGED = "said => document.querySelector('#plane-said').innerText !== said"


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
            print(f"{look} look, all nodes drawn after {time.perf_counter() - began:.1f} s")
        page.focus("#plane-time")
        scrub = changes(page, lambda _: page.keyboard.press("ArrowLeft"), arguments.turns)
        search = changes(page, lambda turn: page.fill("#plane-search", str(turn % 90 + 1)), arguments.turns)
    for name, found in (("scrub", scrub), ("filter", search)):
        print(f"{name}: median {statistics.median(found):.0f} ms, p95 {statistics.quantiles(found, n=20)[-1]:.0f} ms")
    print(f"load of the machine: {os.getloadavg()[0]:.0f} on {os.cpu_count()} processors")


if __name__ == "__main__":
    main()
