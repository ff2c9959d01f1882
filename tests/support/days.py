"""A synthetic day of history in a watcher's store, for tests and benchmarks of history readers."""

from pathlib import Path

import numpy as np

from watcher.model import NodeColumns, WatcherMetrics, Window
from watcher.store import history
from watcher.store.schema import connect

SERIES = tuple(
    (f"fake:{type_.lower()}:percent", type_, operator, "15m")
    for type_ in ("CPU", "Memory")
    for operator in ("AVG", "STD")
)


def made_up_day(nodes, minutes=1440, seed=5):
    """Return loads in percent, shape (series, nodes, minutes): a level per node, a daily wave and a random walk."""
    random_ = np.random.default_rng(seed)
    wave = 15 * np.sin(2 * np.pi * (np.arange(minutes) / 1440 + random_.uniform(0, 0.2, (nodes, 1))))
    averages = [
        random_.uniform(15, 75, (nodes, 1)) + share * wave + np.cumsum(random_.normal(0, 0.3, (nodes, minutes)), axis=1)
        for share in (1, 0.2)
    ]
    deviations = [np.abs(random_.normal(level, 0.8, (nodes, minutes))) for level in (5, 1)]
    return np.clip(np.stack([averages[0], deviations[0], averages[1], deviations[1]]), 0, 100)


def fill(path: Path, loads, until: int, megabytes: float = 128) -> None:
    """Write loads to a store's file through the code that writes every fetch.

    Args:
        path: the store's file; it is created if missing.
        loads: array as from ``made_up_day``, for nodes ``node-1``, ``node-2``, ... of the source Fake.
        until: time of the last minute in Unix seconds.
        megabytes: maximum size of the history.
    """
    db = connect(path)
    names = [f"node-{number + 1}" for number in range(loads.shape[1])]
    minutes = loads.shape[2]
    for minute in range(minutes):
        timestamp = until - 60 * (minutes - 1 - minute)
        columns = NodeColumns([(names, SERIES, loads[:, :, minute].tolist())], {}, {})
        metrics = WatcherMetrics(timestamp, Window("15m", timestamp - 900, timestamp), "Fake", columns)
        with db.atomic():
            history.add(db, metrics, "", keep_hours=24, max_bytes=int(megabytes * 2**20))
    db.close()
