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
import signal
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from watcher.store import Store

sys.path.insert(0, str(Path(__file__).parent.parent))
from support.snapshots import WINDOWS, WRITER, load_windows, snapshot
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


def run_and_kill(program: str, path: Path, random_: random.Random, **values: int) -> int:
    """Run a program and kill it at a random moment; return the last fetch that it reported."""
    program = program.format(tests=str(Path(__file__).parent.parent), path=str(path), **values)
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline(), process.stdout.readline()]
        time.sleep(random_.uniform(0, 0.1))
        process.send_signal(signal.SIGKILL)
        lines += process.stdout.read().splitlines()
    return int([line for line in lines if line.strip()][-1])


def check(path: Path, committed: int, nodes: int) -> tuple[list[str], float]:
    """Return the faults of the file after a kill, and the seconds for opening and reading it."""
    faults = []
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    soundness = connection.execute("pragma integrity_check").fetchone()[0]
    if soundness != "ok":
        faults.append(f"integrity_check: {soundness}")
    torn = "select timestamp from snapshots group by 1 having count(*) != ?"
    if connection.execute(torn, [len(WINDOWS)]).fetchall():
        faults.append("a fetch is incomplete")
    connection.close()
    start = time.perf_counter()
    store = Store(path)
    snapshots = load_windows(store)
    took = time.perf_counter() - start
    if store.set_aside or store.failure:
        faults.append(f"the store was not usable: {store.set_aside or store.failure}")
    store.close()
    newest = {metrics.timestamp for metrics in snapshots.values()}
    if set(snapshots) != set(WINDOWS) or len(newest) != 1:
        faults.append(f"the windows are not of one fetch: {newest}")
    for metrics in snapshots.values():
        if metrics.timestamp < committed:
            faults.append(f"fetch {committed} was committed, but {metrics.timestamp} is served")
        if metrics != snapshot(metrics.timestamp, metrics.timestamp % 100, nodes=nodes):
            faults.append(f"fetch {metrics.timestamp} differs from the written one")
    return faults, took


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
