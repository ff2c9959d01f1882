"""Loads of real machines as samples at their source, for ``research/detectors.py``; where they are from: README.md.

Each trace is one fleet, split in two: every other machine was used to tune the defaults, the others were not.
"""

import csv
import gzip
from collections import defaultdict
from collections.abc import Callable, Iterable
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
    """A fleet at its source.

    Attributes:
        step: seconds from one sample to the next.
        samples: resource to (nodes, times) percent; NaN for gaps.
    """

    step: int
    samples: dict[str, Floats]

    @property
    def shape(self) -> tuple[int, int]:
        """Nodes and times."""
        nodes, times = self.samples["CPU"].shape
        return nodes, times

    @property
    def node_days(self) -> float:
        """How long all nodes together were seen."""
        return float((~np.isnan(self.samples["CPU"])).sum()) * self.step / DAY

    def resampled(self, step: int) -> "Trace":
        """Return the trace as a source with other steps has it: each value held, or those between left out."""
        times = self.shape[1]
        at = np.arange(0, times * self.step, step) // self.step
        return replace(self, step=step, samples={name: values[:, at] for name, values in self.samples.items()})

    def tuned(self, tuned: bool) -> "Trace":
        """Return the half that the defaults were tuned on, or the other."""
        return replace(self, samples={name: values[not tuned :: 2] for name, values in self.samples.items()})


def planetlab(folder: Path) -> Trace:
    """Whole percents of CPU every 5 minutes: days of 300 virtual machines all over the world, side by side."""
    with np.load(folder / SOURCES["planetlab"]) as days:
        values = np.concatenate([days[name] for name in days.files if not name.endswith("_names")]).astype(float)
    return Trace(300, {"CPU": values[:: len(values) // 300][:300]})


def alibaba(folder: Path) -> Trace:
    """Whole percents, about a minute apart: eight days of hosts under batch and online load."""
    machines = defaultdict(list)
    with gzip.open(folder / SOURCES["alibaba"], "rt") as file:
        for row in csv.reader(file):
            machines[row[0]].append([float(row[i] or "nan") for i in (1, 2, 3, 6, 8)])
    times = np.arange(0, 8 * DAY, 60)
    found: dict[str, list[Floats]] = defaultdict(list)
    for name in sorted(machines):
        rows = np.array(sorted(machines[name]))
        at = np.searchsorted(rows[:, 0], times, side="right") - 1
        fresh = (at >= 0) & (times - rows[at, 0] < 600)  # longer gaps are gaps
        for column, resource in enumerate(("CPU", "Memory", "Bandwidth", "Storage"), 1):
            found[resource].append(np.where(fresh, rows[at, column], np.nan))
    return Trace(60, {resource: np.array(values) for resource, values in found.items()})


def bitbrains(folder: Path) -> Trace:
    """CPU and memory every 5 minutes, a month of one machine: its days are nodes."""
    with (folder / SOURCES["bitbrains"]).open() as file:
        rows = np.array([[float(cell) for cell in row] for row in list(csv.reader(file, delimiter=";"))[1:]])
    slots = ((rows[:, 0] - rows[0, 0]) / 300).round().astype(int)
    values = np.full((2, (slots[-1] // 288 + 1) * 288), np.nan)
    values[:, slots] = rows[:, 4], 100 * rows[:, 6] / rows[:, 5]
    cpu, memory = values.reshape(2, -1, 288)
    return Trace(300, {"CPU": cpu, "Memory": memory})


def bitbrains_50(folder: Path) -> Trace:
    """CPU every 5 minutes, a month of 50 machines, most of them idle."""
    from pyarrow.parquet import read_table  # noqa: PLC0415  not needed for anything else

    columns = read_table(folder / SOURCES["bitbrains, 50 machines"]).to_pydict()
    meta = read_table(folder / "bitbrains/bitbrains-small_meta.parquet").to_pydict()
    capacity = dict(zip(meta["id"], meta["cpu_capacity"], strict=True))
    machines = defaultdict(list)
    for name, at, lasts, used in zip(
        *(columns[each] for each in ("id", "timestamp", "duration", "cpu_usage")), strict=True
    ):
        machines[name].append((at.timestamp(), lasts / 1000, 100 * used / capacity[name]))
    found = np.full((len(machines), 30 * 288), np.nan)
    for node, name in enumerate(sorted(machines)):
        rows = np.array(sorted(machines[name]))
        for ends, lasts, value in rows:
            slot = round((ends - rows[0, 0]) / 300)
            found[node, max(0, slot + 1 - round(lasts / 300)) : slot + 1] = value  # equal samples are one row
    return Trace(300, {"CPU": found})


def nab(folder: Path) -> Trace:
    """CPU every 5 minutes: two weeks of eight machines of a public cloud that have nothing to do with each other."""
    found = []
    for path in sorted((folder / SOURCES["nab"]).parent.glob("*cpu_utilization*.csv")):
        with path.open() as file:
            found.append([float(row["value"]) for row in csv.DictReader(file)])
    return Trace(300, {"CPU": np.array(found)})


LOADERS: dict[str, Callable[[Path], Trace]] = {
    "alibaba": alibaba,
    "planetlab": planetlab,
    "bitbrains": bitbrains,
    "bitbrains, 50 machines": bitbrains_50,
    "nab": nab,
}


def windows(trace: Trace, spans: Iterable[int], fetches: Floats) -> dict[tuple[str, str, int], Floats]:
    """Return what a source with history answers at each fetch: mean and population deviation of every window.

    Args:
        trace: the samples.
        spans: the windows' lengths, seconds.
        fetches: (times,) seconds after the trace's begin.

    Returns:
        (resource, operator, span) to (nodes, fetches); also ("", "coverage", span).
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
