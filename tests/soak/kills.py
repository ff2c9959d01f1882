"""A writer, and a whole watcher, killed 500 times each in the middle of their work, and what each restart finds.

    python tests/soak/kills.py [--kills 500] [--nodes 300] [--seed 903]

A process writes three windows a fetch as fast as it can, and says of each fetch that it was committed. It gets SIGKILL
at a random moment. Then the file is opened as a restart opens it: SQLite must find it sound, every fetch in it must be
whole, the newest must be equal to what was written, and no older than the last one that was said to be committed.

Then the same with a watcher that fetches as fast as it can, and a reader beside it that says which snapshot is served:
after a restart nothing older may be.
"""

import argparse
import random
import signal
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from watcher.store import Store

sys.path.insert(0, str(Path(__file__).parent.parent))
from support.snapshots import WINDOWS, WRITER, loaded, snapshot

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


def killed(program: str, path: Path, random_: random.Random, **values: int) -> int:
    """Run a program until it is killed at a random moment; return the last fetch that it said was there."""
    program = program.format(tests=str(Path(__file__).parent.parent), path=str(path), **values)
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    said = [process.stdout.readline(), process.stdout.readline()]
    time.sleep(random_.uniform(0, 0.1))
    process.send_signal(signal.SIGKILL)
    said += process.stdout.read().splitlines()
    process.wait()
    whole = [line for line in said if line.strip()]
    return int(whole[-1])


def check(path: Path, committed: int, nodes: int) -> tuple[list[str], float]:
    """Return what is wrong with the file after a kill, and how many seconds opening and reading took."""
    wrong = []
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    soundness = connection.execute("pragma integrity_check").fetchone()[0]
    if soundness != "ok":
        wrong.append(f"integrity_check: {soundness}")
    torn = "select timestamp from snapshots group by 1 having count(*) != ?"
    if connection.execute(torn, [len(WINDOWS)]).fetchall():
        wrong.append("a fetch is not whole")
    connection.close()
    began = time.perf_counter()
    store = Store(path)
    found = loaded(store)
    took = time.perf_counter() - began
    if store.set_aside or store.failure:
        wrong.append(f"the store was not usable: {store.set_aside or store.failure}")
    store.close()
    newest = {metrics.timestamp for metrics in found.values()}
    if set(found) != set(WINDOWS) or len(newest) != 1:
        wrong.append(f"not one fetch of all windows is served: {newest}")
    for metrics in found.values():
        if metrics.timestamp < committed:
            wrong.append(f"fetch {committed} was committed, and {metrics.timestamp} is served")
        if metrics != snapshot(metrics.timestamp, metrics.timestamp % 100, nodes=nodes):
            wrong.append(f"fetch {metrics.timestamp} is not what was written")
    return wrong, took


def watched(path: Path, kills: int, nodes: int, random_: random.Random) -> list[str]:
    """Kill a watcher again and again; return what was served after a restart that is older than what was before."""
    faults, start = [], 1000
    for number in range(1, kills + 1):
        served = killed(WATCHER, path, random_, nodes=nodes, start=start)
        store = Store(path)
        kept = {metrics.timestamp for metrics in store.load_snapshots(["Test"], WINDOWS).values()}
        store.close()
        start = max(kept, default=0)
        if len(kept) != 1 or start < served:
            faults.append(f"watcher, kill {number}: {served} was served, and {start} is there")
    return faults


def main() -> None:
    """Kill, check and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=500)
    parser.add_argument("--nodes", type=int, default=300)
    parser.add_argument("--seed", type=int, default=903)
    arguments = parser.parse_args()
    random_, faults, took = random.Random(arguments.seed), [], []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "watcher.sqlite"
        for number in range(1, arguments.kills + 1):
            committed = killed(WRITER, path, random_, nodes=arguments.nodes)
            wrong, seconds = check(path, committed, arguments.nodes)
            faults += [f"kill {number}: {each}" for each in wrong]
            took.append(seconds)
            if number % 50 == 0:
                print(f"{number} kills, {committed} fetches committed, {len(faults)} faults", flush=True)
        size = path.stat().st_size / 2**20
        served = watched(Path(folder) / "watched.sqlite", arguments.kills, arguments.nodes, random_)
        faults += served
    print(*faults, sep="\n")
    print(
        f"{arguments.kills} kills, {committed} fetches of {len(WINDOWS)} windows x {arguments.nodes} nodes: "
        f"{len(faults)} faults; file {size:.0f} MiB; "
        f"opened and read in {statistics.median(took):.3f} s, at most {max(took):.3f} s\n"
        f"{arguments.kills} kills of a watcher: {len(served)} times older metrics than a reader had seen"
    )
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
