"""Snapshots for tests of the store, and readers of its file."""

import sqlite3
from pathlib import Path

from watcher.model import Metric, NodeMetrics, WatcherMetrics, Window
from watcher.store import Store

WINDOWS = ("15m", "10m", "5m")

# A process that writes until it is killed, and prints each committed fetch.
WRITER = """
import sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from support.snapshots import WINDOWS, load_windows, snapshot
from watcher.store import Store

store = Store(Path({path!r}))
start = max((s.timestamp for s in load_windows(store).values()), default=0)
for number in range(start + 1, 10**6):
    store.save_snapshots({{w: snapshot(number, number % 100, nodes={nodes}) for w in WINDOWS}})
    print(number, flush=True)
"""


def snapshot(timestamp: int = 1000, value: float = 20.5, nodes: int = 1, source: str = "x") -> WatcherMetrics:
    """Return a snapshot whose nodes all have the same value."""
    node = NodeMetrics((Metric("cpu", "CPU", "AVG", "15m", value),), {"step": "15s"}, {"coverage": 0.5})
    return WatcherMetrics(
        timestamp,
        Window("15m", timestamp - 900, timestamp),
        source,
        {f"node-{number}": node for number in range(nodes)},
    )


def load_windows(store: Store, source: str = "x") -> dict[str, WatcherMetrics]:
    """Load the default windows of a source from the store."""
    return store.load_snapshots([source], WINDOWS)


def rows(path: Path, columns: str = "*", table: str = "snapshots") -> list[tuple[object, ...]]:
    """Read rows of the file directly, without the store."""
    connection = sqlite3.connect(path)
    try:
        return connection.execute(f"select {columns} from {table}").fetchall()
    finally:
        connection.close()
