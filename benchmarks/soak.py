"""A writer killed 500 times in the middle of its work, and what each restart finds.

    python benchmarks/soak.py [--kills 500] [--nodes 300] [--seed 903]

A process writes three windows a fetch as fast as it can, and says of each fetch that it was committed. It gets SIGKILL
at a random moment. Then the file is opened as a restart opens it: SQLite must find it sound, every fetch in it must be
whole, the newest must be equal to what was written, and no older than the last one that was said to be committed.
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

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from test_store import WINDOWS, WRITER, loaded, snapshot


def killed(path: Path, random_: random.Random, nodes: int) -> int:
    """Run a writer until it is killed at a random moment; return the last fetch that it said was committed."""
    program = WRITER.format(tests=str(Path(__file__).parent.parent / "tests"), path=str(path), nodes=nodes)
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
            committed = killed(path, random_, arguments.nodes)
            wrong, seconds = check(path, committed, arguments.nodes)
            faults += [f"kill {number}: {each}" for each in wrong]
            took.append(seconds)
            if number % 50 == 0:
                print(f"{number} kills, {committed} fetches committed, {len(faults)} faults", flush=True)
        size = path.stat().st_size / 2**20
    print(*faults, sep="\n")
    print(
        f"{arguments.kills} kills, {committed} fetches of {len(WINDOWS)} windows x {arguments.nodes} nodes: "
        f"{len(faults)} faults; file {size:.0f} MiB; "
        f"opened and read in {statistics.median(took):.3f} s, at most {max(took):.3f} s"
    )
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
