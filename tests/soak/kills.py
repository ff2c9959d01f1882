"""Kill a writer and a watcher at random moments, 500 times each, and check the state after each restart.

    python tests/soak/kills.py [--kills 500] [--nodes 300] [--seed 903] [--most-seconds SECONDS]

A process writes three windows per fetch as fast as it can, and reports each committed fetch. It gets SIGKILL at a
random moment. Then the file is opened as after a restart: SQLite's integrity check must pass, every fetch in the file
must be complete, and the newest fetch must equal the written one and be no older than the last reported commit.

Then a watcher fetches as fast as it can, and a reader reports the newest snapshot that the watcher serves: after a
restart the watcher may not serve an older snapshot. The time, if limited, is shared equally between writer and watcher.
"""

import argparse
import math
import random
import statistics
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from watcher.store import Store

sys.path.insert(0, str(Path(__file__).parent.parent))
from support.killed import check, run_and_kill
from support.snapshots import WINDOWS, WRITER
from support.waiting import within

WATCHER = """
import sys, threading
from pathlib import Path
sys.path.insert(0, {tests!r})
from support.bench import Bench
from support.snapshots import snapshot
from watcher.providers.base import Fetched

bench = Bench(Path({path!r}), now={start})
nodes = snapshot(nodes={nodes}).data
bench.source.answers = dict.fromkeys(("15m", "10m", "5m"), lambda window: Fetched(nodes))

def read():
    seen = 0
    while True:
        newest = bench.watcher.newest()
        if newest is not None and newest.timestamp > seen:
            seen = newest.timestamp
            print(seen, flush=True)

threading.Thread(target=read, daemon=True).start()
while True:
    bench.now += 1
    bench.watcher.fetch_once()
"""


def kill_watchers(path: Path, numbers: Iterable[int], nodes: int, random_: random.Random) -> tuple[int, list[str]]:
    """Kill a watcher once for each number; return the last number, and the restarts that served an older snapshot."""
    faults, start, number = [], 1000, 0
    for number in numbers:
        served = run_and_kill(WATCHER, path, random_, nodes=nodes, start=start)
        store = Store(path)
        stored = {metrics.timestamp for metrics in store.load_snapshots(["Test"], WINDOWS).values()}
        store.close()
        start = max(stored, default=0)
        if len(stored) != 1 or start < served:
            faults.append(f"watcher, kill {number}: {served} was served, but {start} is stored")
    return number, faults


def main() -> None:
    """Run all kills and print the faults; exit with status 1 if there are any."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=500)
    parser.add_argument("--nodes", type=int, default=300)
    parser.add_argument("--seed", type=int, default=903)
    parser.add_argument("--most-seconds", type=float, default=math.inf, help="end earlier; default: %(default)s")
    arguments = parser.parse_args()
    half, every = arguments.most_seconds / 2, range(1, arguments.kills + 1)
    random_, faults, took = random.Random(arguments.seed), [], []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "watcher.sqlite"
        for number in within(half, every):
            committed = run_and_kill(WRITER, path, random_, nodes=arguments.nodes)
            new_faults, seconds = check(path, committed, arguments.nodes)
            faults += [f"kill {number}: {fault}" for fault in new_faults]
            took.append(seconds)
            if number % 50 == 0:
                print(f"{number} kills, {committed} fetches committed, {len(faults)} faults", flush=True)
        size = path.stat().st_size / 2**20
        watched = Path(folder) / "watched.sqlite"
        watchers, served = kill_watchers(watched, within(half, every), arguments.nodes, random_)
        faults += served
    print(*faults, sep="\n")
    print(
        f"{number} kills, {committed} fetches of {len(WINDOWS)} windows x {arguments.nodes} nodes: "
        f"{len(faults)} faults; file {size:.0f} MiB; "
        f"opened and read in {statistics.median(took):.3f} s, at most {max(took):.3f} s\n"
        f"{watchers} kills of a watcher: {len(served)} times older metrics than a reader had seen"
    )
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
