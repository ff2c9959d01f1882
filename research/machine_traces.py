"""Loads of real machines from public traces, as samples; evidence/detectors.md has the addresses of the traces.

Each trace has one fleet of machines, in two halves: the machines with even numbers were used to tune the defaults of
the watcher's quality detectors, the others were not.
"""

import argparse
import csv
import gzip
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

Floats = np.ndarray
DAY = 86400
SOURCES = {
    "alibaba": "alibaba/v2018_machine_usage_11m.csv.gz",
    "planetlab": "planetlab/planetlab_cpu_288x5min.npz",
    "bitbrains": "bitbrains/bitbrains_vm_full_metrics.csv",
    "bitbrains, 50 machines": "bitbrains/bitbrains-small_trace.parquet",
    "nab": "nab/ec2_cpu_utilization_24ae8d.csv",
}


@dataclass(frozen=True)
class Trace:
    """Samples of the loads of a fleet of machines, as their metrics source measured them.

    Attributes:
        step: seconds from one sample to the next.
        samples: percent of capacity by resource, shape (nodes, times); NaN for gaps.
    """

    step: int
    samples: dict[str, Floats]

    @property
    def shape(self) -> tuple[int, int]:
        """Number of nodes, and number of samples of each node."""
        nodes, times = self.samples["CPU"].shape
        return nodes, times

    @property
    def node_days(self) -> float:
        """Total time that all nodes were measured, in days."""
        return float((~np.isnan(self.samples["CPU"])).sum()) * self.step / DAY

    def resampled(self, step: int) -> "Trace":
        """Return a copy with ``step`` seconds between samples: samples are repeated, or some are left out."""
        times = self.shape[1]
        at = np.arange(0, times * self.step, step) // self.step
        return replace(self, step=step, samples={name: values[:, at] for name, values in self.samples.items()})

    def half(self, parity: int) -> "Trace":
        """Return the samples of half of the nodes.

        Args:
            parity: 0 for the nodes with even numbers, on which the detectors' defaults were tuned, 1 for the others.
        """
        return replace(self, samples={name: values[parity::2] for name, values in self.samples.items()})


def planetlab(folder: Path) -> Trace:
    """Return CPU in whole percents every 5 minutes: one day each of 300 virtual machines of PlanetLab."""
    with np.load(folder / SOURCES["planetlab"]) as days:
        values = np.concatenate([days[name] for name in days.files if not name.endswith("_names")]).astype(float)
    return Trace(300, {"CPU": values[:: len(values) // 300][:300]})


def alibaba(folder: Path) -> Trace:
    """Return CPU, memory, network and disk of Alibaba's hosts, with batch and online load, for eight days.

    The samples are whole percents, about one a minute.
    """
    machines = defaultdict(list)
    with gzip.open(folder / SOURCES["alibaba"], "rt") as file:
        for row in csv.reader(file):
            machines[row[0]].append([float(row[i] or "nan") for i in (1, 2, 3, 6, 8)])
    times = np.arange(0, 8 * DAY, 60)
    samples: dict[str, list[Floats]] = defaultdict(list)
    for name in sorted(machines):
        rows = np.array(sorted(machines[name]))
        at = np.searchsorted(rows[:, 0], times, side="right") - 1
        fresh = (at >= 0) & (times - rows[at, 0] < 600)  # longer gaps are gaps
        for column, resource in enumerate(("CPU", "Memory", "Bandwidth", "Storage"), 1):
            samples[resource].append(np.where(fresh, rows[at, column], np.nan))
    return Trace(60, {resource: np.array(values) for resource, values in samples.items()})


def bitbrains(folder: Path) -> Trace:
    """Return CPU and memory of one virtual machine of Bitbrains every 5 minutes; each day of a month is one node."""
    with (folder / SOURCES["bitbrains"]).open() as file:
        rows = np.array([[float(cell) for cell in row] for row in list(csv.reader(file, delimiter=";"))[1:]])
    slots = ((rows[:, 0] - rows[0, 0]) / 300).round().astype(int)
    values = np.full((2, (slots[-1] // 288 + 1) * 288), np.nan)
    values[:, slots] = rows[:, 4], 100 * rows[:, 6] / rows[:, 5]
    cpu, memory = values.reshape(2, -1, 288)
    return Trace(300, {"CPU": cpu, "Memory": memory})


def bitbrains_50(folder: Path) -> Trace:
    """Return CPU of 50 virtual machines of Bitbrains, most of them idle, every 5 minutes for a month."""
    from pyarrow.parquet import read_table  # not needed for anything else

    columns = read_table(folder / SOURCES["bitbrains, 50 machines"]).to_pydict()
    meta = read_table(folder / "bitbrains/bitbrains-small_meta.parquet").to_pydict()
    capacity = dict(zip(meta["id"], meta["cpu_capacity"], strict=True))
    machines = defaultdict(list)
    rows = zip(*(columns[column] for column in ("id", "timestamp", "duration", "cpu_usage")), strict=True)
    for name, at, lasts, used in rows:
        machines[name].append((at.timestamp(), lasts / 1000, 100 * used / capacity[name]))
    cpu = np.full((len(machines), 30 * 288), np.nan)
    for node, name in enumerate(sorted(machines)):
        rows = np.array(sorted(machines[name]))
        for ends, lasts, value in rows:
            slot = round((ends - rows[0, 0]) / 300)
            cpu[node, max(0, slot + 1 - round(lasts / 300)) : slot + 1] = value  # equal samples are one row
    return Trace(300, {"CPU": cpu})


def nab(folder: Path) -> Trace:
    """Return CPU of unrelated machines of a public cloud every 5 minutes for two weeks (Numenta benchmark, NAB)."""
    machines = []
    for path in sorted((folder / SOURCES["nab"]).parent.glob("*cpu_utilization*.csv")):
        with path.open() as file:
            machines.append([float(row["value"]) for row in csv.DictReader(file)])
    return Trace(300, {"CPU": np.array(machines)})


LOADERS: dict[str, Callable[[Path], Trace]] = {
    "alibaba": alibaba,
    "planetlab": planetlab,
    "bitbrains": bitbrains,
    "bitbrains, 50 machines": bitbrains_50,
    "nab": nab,
}


def add_folder(parser: argparse.ArgumentParser) -> None:
    """Add the command-line argument that names the folder of the traces."""
    default = os.environ.get("TRIMARAN_TRACES", ".")
    parser.add_argument("folder", nargs="?", type=Path, default=default, help="default: $TRIMARAN_TRACES")


def load_traces(folder: Path, only: str | None = None) -> Iterator[tuple[str, Trace]]:
    """Yield the name and the samples of each trace in a folder; print a message for each trace that is missing.

    Args:
        folder: folder of the traces.
        only: name of the only trace to load; None loads all.
    """
    for name in [only] if only else LOADERS:
        if not (folder / SOURCES[name]).is_file():
            print(f"Skipped: {name}: {folder} has no {SOURCES[name]}.")
            continue
        try:
            yield name, LOADERS[name](folder)
        except ImportError as error:
            print(f"Skipped: {name}: {error}")


def windows(trace: Trace, spans: Iterable[int], fetches: Floats) -> dict[tuple[str, str, int], Floats]:
    """Return the mean and the standard deviation of every window at each fetch, as a metrics source answers them.

    Args:
        trace: samples of a fleet.
        spans: lengths of the windows, seconds.
        fetches: time of each fetch, seconds after the start of the trace, shape (fetches,).

    Returns:
        Values of shape (nodes, fetches) by resource, operator (AVG, STD) and length of the window. The key ("",
        "coverage", length) has the share of a window's CPU samples that exist.
    """
    published: dict[tuple[str, str, int], Floats] = {}
    last = (fetches // trace.step).astype(int)
    for resource, samples in trace.samples.items():
        for span in spans:
            length = max(1, span // trace.step)
            padded = np.concatenate([np.full((len(samples), length - 1), np.nan), samples], axis=1)
            views = np.lib.stride_tricks.sliding_window_view(padded, length, axis=1)[:, last]
            present = ~np.isnan(views)
            counts = present.sum(axis=2)
            some = np.maximum(counts, 1)
            means = np.where(present, views, 0).sum(axis=2) / some
            squares = (np.where(present, views - means[:, :, None], 0) ** 2).sum(axis=2) / some
            published[resource, "AVG", span] = np.where(counts > 0, means, np.nan)
            published[resource, "STD", span] = np.where(counts > 0, np.sqrt(squares), np.nan)
            if resource == "CPU":
                published["", "coverage", span] = counts / length
    return published
