"""Timing, options and tables that benchmarks share.

Importing this module adds ``tests/`` to the import path, because benchmarks use the tests' servers.
"""

import argparse
import os
import platform
import statistics
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from watcher.model import Metric, NodeMetrics, WatcherMetrics, Window

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))

TYPES = ("CPU", "Memory", "Bandwidth", "Storage")
NOW = 1_700_000_000
Call = Callable[[], object]


def options(description: str | None, **defaults: float | Path | None) -> argparse.Namespace:
    """Parse the command line and return the values of its options.

    Args:
        description: text of ``--help``.
        defaults: default of each option, by the option's name. An option has the type of its default; a default of None
            stands for an optional path, and False for a flag.
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in defaults.items():
        option = f"--{name.replace('_', '-')}"
        if default is False:
            parser.add_argument(option, action="store_true")
        else:
            kind = Path if default is None else type(default)
            parser.add_argument(option, type=kind, default=default, help="default: %(default)s")
    return parser.parse_args()


# -- time and memory --------------------------------------------------------------------------------------------------


def clock_ms(call: Call) -> float:
    """Return the wall-clock time of a call in milliseconds."""
    start = time.perf_counter()
    call()
    return 1000 * (time.perf_counter() - start)


def processor_ms(call: Call, repeat: int = 1) -> float:
    """Return the processor time of a call in milliseconds: the mean of ``repeat`` calls in a row."""
    start = time.process_time()
    for _ in range(repeat):
        call()
    return 1000 * (time.process_time() - start) / repeat


def in_turns(calls: Mapping[str, Call], rounds: int, timer: Callable[[Call], Any] = clock_ms) -> dict[str, list[Any]]:
    """Return the times of each call, one per round.

    The calls take turns in each round, so that the varying load of the machine affects all of them alike.

    Args:
        calls: calls to time, by name.
        rounds: number of rounds.
        timer: function that runs a call and returns its time.
    """
    times: dict[str, list[Any]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            times[name].append(timer(call))
    return times


def median_ratio(numerators: Iterable[float], denominators: Iterable[float]) -> float:
    """Return the median of the ratios numerator / denominator, each of two figures from the same round."""
    return statistics.median(above / below for above, below in zip(numerators, denominators, strict=True))


def peak_bytes(call: Call) -> int:
    """Return the peak memory in bytes that Python allocates during a call, including the call's result."""
    tracemalloc.start()
    result = call()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    del result
    return peak


def process_memory(master: psutil.Process) -> float:
    """Return the memory of a process and its children together in MiB, where shared pages count once (PSS)."""
    return sum(process.memory_full_info().pss for process in (master, *master.children())) / 2**20


def compare_fetches(table: "Table", calls: Mapping[str, Call], rounds: int) -> None:
    """Print times and peak memory of ways to fetch the same metrics, which take turns.

    Args:
        table: table with the columns :data:`FETCH_COLUMNS`.
        calls: ways to fetch, by name; the first is the baseline, which only sends the queries.
        rounds: number of rounds.
    """

    def timed(call: Call) -> tuple[float, float]:
        start = time.process_time()
        return clock_ms(call), 1000 * (time.process_time() - start)

    for call in calls.values():  # warm-up
        call()
    times = in_turns(calls, rounds, timed)
    bare = [clock for clock, _ in next(iter(times.values()))]
    for name, turns in times.items():
        clock, computed = zip(*turns, strict=True)
        figures = f"{statistics.median(clock):,.0f}", f"{statistics.median(computed):,.0f}"
        table.row(name, *figures, f"{peak_bytes(calls[name]) / 1e6:.0f}", f"{median_ratio(clock, bare):.2f}")


#: Columns of the table that :func:`compare_fetches` prints.
FETCH_COLUMNS = ("fetch", "median, ms", "of it computed here, ms", "peak, MB", "times the bare queries")


# -- output -----------------------------------------------------------------------------------------------------------


def machine() -> str:
    """Return a description of the machine: processor, load, system and versions."""
    cpu_info = Path("/proc/cpuinfo")
    lines = cpu_info.read_text().splitlines() if cpu_info.exists() else []
    model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())
    versions = f"Python {platform.python_version()}, numpy {np.__version__}"
    return f"{model}, {os.cpu_count()} processors at load {os.getloadavg()[0]:.1f}, {platform.system()}, {versions}"


class Table:
    """Markdown table that is printed row by row, after a line that describes the measurement and the machine.

    Args:
        description: description of the measurement, such as its size and number of rounds.
        columns: headings of the columns.
        text_columns: number of columns, from the left, that contain text; the others contain figures.
    """

    def __init__(self, description: str, columns: Sequence[str], text_columns: int = 1) -> None:
        print(f"{description}. {machine()}.\n")
        print(f"| {' | '.join(columns)} |")
        print("|" + "---|" * text_columns + "---:|" * (len(columns) - text_columns), flush=True)

    def row(self, *cells: object) -> None:
        """Print a row."""
        print(f"| {' | '.join(map(str, cells))} |", flush=True)


# -- data -------------------------------------------------------------------------------------------------------------


def snapshot(node_count: int, window: str = "15m", end: int = NOW, turn: int = 0) -> WatcherMetrics:
    """Return a snapshot of nodes with average and deviation of four resources; values differ from node to node.

    Args:
        node_count: number of nodes.
        window: length of the window in minutes, such as ``15m``.
        end: end of the window, Unix seconds.
        turn: number that changes all values.
    """
    node_metrics = {
        f"node-{number}.eu-west-1.compute.internal": NodeMetrics(
            tuple(
                Metric(f"instance:node_{kind.lower()}:ratio", kind, operator, window, percent)
                for place, kind in enumerate(TYPES)
                for operator, percent in (
                    ("AVG", 100 * ((number * 7919 + 31 * place + turn) % 9973) / 9973),
                    ("STD", 10 * ((number * 104729 + 17 * place + turn) % 9973) / 9973),
                )
            ),
            {"smoothing": "5m"},
        )
        for number in range(node_count)
    }
    seconds = 60 * int(window.removesuffix("m"))
    return WatcherMetrics(end, Window(window, end - seconds, end), "benchmark", node_metrics)
