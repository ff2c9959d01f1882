"""Writers that are killed at a random moment, and the state in which they leave the store."""

import random
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

from support.snapshots import WINDOWS, load_windows, snapshot

from watcher.store import Store


def run_and_kill(program: str, path: Path, random_: random.Random, *, lines: int = 2, **values: int) -> int:
    """Run a program and kill it at a random moment after some lines; return the last write that it reported."""
    program = program.format(tests=str(Path(__file__).parent.parent), path=str(path), **values)
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        reported = [process.stdout.readline() for _ in range(lines)]
        time.sleep(random_.uniform(0, 0.1))
        process.kill()
        reported += process.stdout.read().splitlines()
    return int([line for line in reported if line.strip()][-1])


def integrity(path: Path) -> str:
    """Return SQLite's finding about a file, which is ok for a sound one."""
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        return str(connection.execute("pragma integrity_check").fetchone()[0])
    finally:
        connection.close()


def check(path: Path, committed: int, nodes: int) -> tuple[list[str], float]:
    """Return the faults of the file after a kill, and the seconds for opening and reading it."""
    faults = []
    if (soundness := integrity(path)) != "ok":
        faults.append(f"integrity_check: {soundness}")
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
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
