"""What the analyzer sees on loads of real machines, what of faults put into them, and how fast it looks.

Speed needs nothing. The traces are public but not ours to pass on; without a folder that has them, that part is left
out and says so. benchmarks/README.md tells where to get them.

    make bench                                                  speed; traces too when TRIMARAN_TRACES names the folder
    python benchmarks/quality.py FOLDER                         on the half of the nodes not used to tune the defaults
    python benchmarks/quality.py FOLDER --tuned                 on the other half
"""

import csv
import gzip
import os
import platform
import statistics
import sys
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from watcher import duration
from watcher.findings import Finding, Kind
from watcher.model import Metric, NodeMetrics, WatcherMetrics, Window
from watcher.quality import analyzer
from watcher.quality.anomalies import AnomalyDetector
from watcher.quality.open_findings import OpenFindings
from watcher.settings import QualitySettings

RUNS = 5
CLUSTERS = 20
DAY = 86400
START = 1_700_000_000
SOURCES = {
    "planetlab": "planetlab/planetlab_cpu_288x5min.npz",
    "alibaba": "alibaba/v2018_machine_usage_11m.csv.gz",
    "bitbrains": "bitbrains/bitbrains_vm_full_metrics.csv",
    "bitbrains, 50 machines": "bitbrains/bitbrains-small_trace.parquet",
}


@dataclass
class Trace:
    """A day of some nodes; days of one machine count as nodes of their own, and lie in one half.

    Attributes:
        window: what the watcher fetches, and of which it keeps the past.
        interval: seconds from one fetch to the next.
        step: seconds from one sample to the next.
        samples: resource to (nodes, times) percent, NaN for gaps.
    """

    window: str
    interval: int
    step: int
    samples: dict[str, np.ndarray]

    def rolled(self) -> dict[tuple[str, str], np.ndarray]:
        """Return what a provider publishes at each fetch, and under ("", "coverage") how much of the window it has."""
        length, every = duration.seconds(self.window) // self.step, self.interval // self.step
        published: dict[tuple[str, str], np.ndarray] = {}
        for resource, samples in self.samples.items():
            windows = np.lib.stride_tricks.sliding_window_view(samples, length, axis=1)[:, ::every]
            present = ~np.isnan(windows)
            counts = present.sum(axis=2)
            some = np.maximum(counts, 1)
            means = np.where(present, windows, 0).sum(axis=2) / some
            squares = (np.where(present, windows - means[:, :, None], 0) ** 2).sum(axis=2) / some
            published[resource, "AVG"] = np.where(counts > 0, means, np.nan)
            published[resource, "STD"] = np.where(counts > 0, np.sqrt(squares), np.nan)
            if resource == "CPU":
                published["", "coverage"] = counts / length
        return published


# -- traces -------------------------------------------------------------------------------------------------------


def planetlab(folder: Path, tuned: bool) -> Trace:
    """Whole percents of CPU every 5 minutes, days of virtual machines all over the world."""
    with np.load(folder / SOURCES["planetlab"]) as days:
        values = np.concatenate([days[name] for name in days.files if not name.endswith("_names")]).astype(float)
    return Trace("15m", 300, 300, {"CPU": values[not tuned :: 2]})


def alibaba(folder: Path, tuned: bool) -> Trace:
    """Whole percents every 10 seconds to 7 minutes, a week of hosts under batch and online load."""
    machines = defaultdict(list)
    with gzip.open(folder / SOURCES["alibaba"], "rt") as file:
        for row in csv.reader(file):
            machines[row[0]].append([float(row[i] or "nan") for i in (1, 2, 3, 6, 8)])
    days: dict[str, list[np.ndarray]] = defaultdict(list)
    for name in sorted(machines)[not tuned :: 2]:
        rows = np.array(sorted(machines[name]))
        for begin in range(int(rows[0, 0]), int(rows[-1, 0]) - DAY, DAY):
            times = begin + np.arange(0, DAY, 30)
            at = np.searchsorted(rows[:, 0], times, side="right") - 1
            fresh = times - rows[at, 0] < 600  # longer gaps are gaps
            for column, resource in enumerate(("CPU", "Memory", "Bandwidth", "Storage"), 1):
                days[resource].append(np.where(fresh, rows[at, column], np.nan))
    return Trace("5m", 60, 30, {resource: np.array(values) for resource, values in days.items()})


def bitbrains(folder: Path, tuned: bool) -> Trace:
    """CPU and memory every 5 minutes, a month of one machine: its days are halved."""
    with (folder / SOURCES["bitbrains"]).open() as file:
        rows = np.array([[float(cell) for cell in row] for row in list(csv.reader(file, delimiter=";"))[1:]])
    slots = ((rows[:, 0] - rows[0, 0]) / 300).round().astype(int)
    values = np.full((2, (slots[-1] // 288 + 1) * 288), np.nan)
    values[:, slots] = rows[:, 4], 100 * rows[:, 6] / rows[:, 5]
    cpu, memory = values.reshape(2, -1, 288)
    return Trace("15m", 300, 300, {"CPU": cpu[not tuned :: 2], "Memory": memory[not tuned :: 2]})


def bitbrains_50(folder: Path, tuned: bool) -> Trace:
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
    days = []
    for name in sorted(machines)[not tuned :: 2]:
        rows = np.array(sorted(machines[name]))
        slots = ((rows[:, 0] - rows[0, 0]) / 300).round().astype(int)
        values = np.full((slots[-1] // 288 + 1) * 288, np.nan)
        for slot, lasts, value in zip(slots, rows[:, 1], rows[:, 2], strict=True):
            values[max(0, slot + 1 - round(lasts / 300)) : slot + 1] = value  # equal samples are one row
        days += list(values.reshape(-1, 288))
    return Trace("15m", 300, 300, {"CPU": np.array(days)})


# -- what is seen -------------------------------------------------------------------------------------------------


def opened(
    trace: Trace, published: Mapping[tuple[str, str], np.ndarray], newest: np.ndarray | None = None
) -> Iterator[tuple[int, Finding]]:
    """Run the analyzer over a day and yield each finding when it opens, with the number of the fetch."""
    suspicion = AnomalyDetector(QualitySettings(), [trace.window], trace.interval)
    findings = OpenFindings()
    keys = [key for key in published if key[1] != "coverage"]
    values = np.stack([published[key] for key in keys], axis=2).transpose(1, 0, 2)
    coverage = published["", "coverage"].T
    for fetch, rows in enumerate(values):
        now = START + fetch * trace.interval
        nodes = {
            str(row): NodeMetrics(
                tuple(
                    Metric(resource, resource, operator, trace.window, value)
                    for (resource, operator), value in zip(keys, found, strict=True)
                    if value is not None
                ),
                metadata={"coverage": covered},
            )
            for row, (found, covered) in enumerate(zip(_gaps_out(rows), coverage[fetch].tolist(), strict=True))
            if covered > 0
        }
        cleaned, found = analyzer.clean(nodes, trace.window)
        span = Window(trace.window, now - duration.seconds(trace.window), now)
        snapshots = {trace.window: WatcherMetrics(now, span, "trace", cleaned)} if cleaned else {}
        ages = {name: float(newest[int(name), fetch]) for name in cleaned} if newest is not None else {}
        _, suspicions = suspicion.judge(now, snapshots, ages, found)
        yield from ((fetch, finding) for finding in findings.update(now, [*found, *suspicions]).opened)


_NOT_A_NUMBER = -12345.0  # stands for a NaN that is published, as NaN is for a gap


def _gaps_out(rows: np.ndarray) -> list[list[float | None]]:
    return [
        [None if value != value else float("nan") if value == _NOT_A_NUMBER else value for value in row]  # noqa: PLR0124
        for row in rows.tolist()
    ]


def false_findings(name: str, trace: Trace) -> None:
    """Print how often each kind is found on a trace as it is."""
    published = trace.rolled()
    days = int((published["", "coverage"] > 0).sum()) * trace.interval / DAY
    counts = Counter(finding.kind for _, finding in opened(trace, published))
    print(f"| {name} | {trace.window} every {trace.interval} s | {days:,.0f} |", end="")
    shown = (Kind.FROZEN, Kind.SPIKE, Kind.WRONG_SCALE, Kind.DOUBLE_SMOOTHING, Kind.OUT_OF_RANGE, Kind.MISSING)
    print("".join(f" {counts[kind] / days:.4f} |" for kind in (*shown, Kind.LOW_COVERAGE)))


# -- what is found of faults --------------------------------------------------------------------------------------

Published = dict[tuple[str, str], np.ndarray]
Hit = Callable[[Published, int, slice], None]


def _freeze(published: Published, node: int, span: slice) -> None:
    for operator in ("AVG", "STD"):
        published["CPU", operator][node, span] = published["CPU", operator][node, span.start]


def _spike(published: Published, node: int, span: slice) -> None:
    value = published["CPU", "AVG"][node, span.start]
    published["CPU", "AVG"][node, span] = value + 60 if value < 40 else value - 40 if value > 60 else 100.0


def _not_a_number(published: Published, node: int, span: slice) -> None:
    published["CPU", "AVG"][node, span] = _NOT_A_NUMBER


def _hundredfold(published: Published, node: int, span: slice) -> None:
    published["CPU", "AVG"][node, span] *= 100


def _hundredth(published: Published, node: int, span: slice) -> None:
    for operator in ("AVG", "STD"):
        published["CPU", operator][node, span] /= 100


def _node_gone(published: Published, node: int, span: slice) -> None:
    published["", "coverage"][node, span] = 0


def _metric_gone(published: Published, node: int, span: slice) -> None:
    for operator in ("AVG", "STD"):
        published["CPU", operator][node, span] = np.nan


def _thin(published: Published, node: int, span: slice) -> None:
    published["", "coverage"][node, span] = 0.3


# fault: what does it, the kind that should be found, for how many seconds, and the least value that it can happen to
FAULTS: dict[str, tuple[Hit, Kind, int, float]] = {
    "the same answer for 3 hours": (_freeze, Kind.FROZEN, 10800, 0.0),
    "40 to 60 points off, one fetch": (_spike, Kind.SPIKE, 0, 0.0),
    "not a number, one fetch": (_not_a_number, Kind.NOT_FINITE, 0, 0.0),
    "100 times, from 2 percent up": (_hundredfold, Kind.OUT_OF_RANGE, 0, 2.0),
    "a hundredth for half an hour": (_hundredth, Kind.WRONG_SCALE, 1800, 0.1),
    "a node gone for half an hour": (_node_gone, Kind.MISSING, 1800, 0.0),
    "no CPU for half an hour": (_metric_gone, Kind.MISSING, 1800, 0.0),
    "three tenths of the samples": (_thin, Kind.LOW_COVERAGE, 1800, 0.0),
}
TIMES = ("no new samples for half an hour", "a clock 5 minutes ahead", "a clock 10 minutes behind")


def faults_found(name: str, trace: Trace) -> None:
    """Print precision and recall of each kind of fault, one a node and day on half of the nodes."""
    whole = trace.rolled()
    rng = np.random.default_rng(404)
    count, fetches = whole["CPU", "AVG"].shape
    for fault, (hit, kind, seconds, least) in FAULTS.items():
        published = {key: values.copy() for key, values in whole.items()}
        length = max(1, seconds // trace.interval)
        truth: dict[str, tuple[int, int]] = {}
        for node in rng.permutation(count)[: max(1, count // 2)].tolist():
            begin = int(rng.integers(fetches // 4, fetches - length - 2))
            before = whole["", "coverage"][node, max(0, begin - 20) : begin + length + 1]
            if (before < 1).any() or (whole["CPU", "AVG"][node, begin : begin + length] < least).any():
                continue  # the trace itself has a gap here, or a load that the fault would not show on
            hit(published, node, slice(begin, begin + length))
            truth[str(node)] = (begin, begin + length)
        _score(name, fault, truth, _found(whole, kind, opened(trace, published)))
    for fault in TIMES:
        now = START + np.arange(fetches) * trace.interval
        newest = now - rng.integers(0, 60, (count, fetches))
        truth = {}
        for node in rng.permutation(count)[: max(1, count // 2)].tolist():
            begin = int(rng.integers(fetches // 4, fetches // 2))
            end = begin + 1800 // trace.interval
            if (whole["", "coverage"][node, max(0, begin - 20) : end + 1] < 1).any():
                continue
            truth[str(node)] = (begin, end)
            if fault == TIMES[0]:
                newest[node, begin:end] = newest[node, begin]
            else:
                newest[node, begin:end] += 300 if fault == TIMES[1] else -600
        kind = Kind.STALE if fault == TIMES[0] else Kind.CLOCK_SKEW
        _score(name, fault, truth, _found(whole, kind, opened(trace, whole, newest)))


def _found(whole: Published, kind: Kind, found: Iterator[tuple[int, Finding]]) -> list[tuple[int, Finding]]:
    """Return the findings of a kind, but for gaps that the trace has itself: those are there."""
    own_gaps = whole["", "coverage"] < 0.5
    return [
        (fetch, each)
        for fetch, each in found
        if each.kind == kind
        and not (kind in {Kind.MISSING, Kind.LOW_COVERAGE} and (not each.node or own_gaps[int(each.node), fetch]))
    ]


def _score(name: str, fault: str, truth: Mapping[str, tuple[int, int]], found: list[tuple[int, Finding]]) -> None:
    def true(fetch: int, node: str) -> bool:
        return node in truth and truth[node][0] <= fetch <= truth[node][1]

    right = [finding for fetch, finding in found if true(fetch, finding.node)]
    recall = len({finding.node for finding in right}) / max(1, len(truth))
    precision = len(right) / len(found) if found else float("nan")
    print(f"| {name} | {fault} | {len(truth):,} | {precision:.3f} | {recall:.3f} |")


def whole_fetches(name: str, trace: Trace) -> None:
    """Print what is found of faults of all nodes at once, in 20 clusters of 20 nodes, against 20 that are well."""
    rng = np.random.default_rng(405)
    whole = trace.rolled()
    count = len(whole["CPU", "AVG"])
    smoothed = {
        resource: np.apply_along_axis(lambda row, n: np.convolve(row, np.ones(n) / n, "valid"), 1, samples, 2 * length)
        for resource, samples in trace.samples.items()
        for length in [duration.seconds(trace.window) // trace.step]
    }
    again = Trace(trace.window, trace.interval, trace.step, smoothed).rolled()
    hours = 3 * 3600 // trace.interval
    cases: dict[str, tuple[Kind, Callable[[Published], Published]]] = {
        "ratios from the start": (Kind.WRONG_SCALE, lambda well: _in_ratios(well, 0)),
        "ratios after an hour and a half": (Kind.WRONG_SCALE, lambda well: _in_ratios(well, hours // 2)),
        "smoothed over two windows": (Kind.DOUBLE_SMOOTHING, lambda well: well),
    }
    for fault, (kind, spoil) in cases.items():
        seen = Counter()
        for cluster in range(2 * CLUSTERS):
            nodes = rng.choice(count, min(20, count), replace=False)
            ill = cluster < CLUSTERS
            source = again if ill and kind is Kind.DOUBLE_SMOOTHING else whole
            begin = int(rng.integers(0, source["CPU", "AVG"].shape[1] - hours))
            part = {key: values[nodes, begin : begin + hours].copy() for key, values in source.items()}
            found = any(each.kind == kind and not each.node for _, each in opened(trace, spoil(part) if ill else part))
            seen[ill, found] += 1
        precision = seen[True, True] / max(1, seen[True, True] + seen[False, True])
        print(f"| {name} | {fault} | {CLUSTERS} | {precision:.3f} | {seen[True, True] / CLUSTERS:.3f} |")


def _in_ratios(published: Published, begin: int) -> Published:
    for (_, operator), values in published.items():
        if operator != "coverage":
            values[:, begin:] /= 100
    return published


# -- speed --------------------------------------------------------------------------------------------------------


class PlainLoop:
    """The same checks of values against the past as one writes them without arrays, a value at a time."""

    def __init__(self, settings: QualitySettings, span: float) -> None:
        self.settings, self.span = settings, span
        self.past: dict[tuple[str, str, str], deque[tuple[float, float]]] = {}
        self.rest: dict[tuple[str, str, str], tuple[float, float, float, float]] = {}

    def remember(self, now: float, nodes: Mapping[str, NodeMetrics]) -> None:
        """Make a fetch part of the past."""
        for node, metrics in nodes.items():
            for metric in metrics.metrics:
                key = (node, metric.name, metric.operator)
                past = self.past.setdefault(key, deque(maxlen=self.settings.history_fetches))
                since, longest, moving, moved = self.rest.get(key, (now, 0.0, 0.0, 0.0))
                changed = bool(past) and abs(past[-1][1] - metric.value) > 1e-9
                if past:
                    moving += (changed - moving) / 20
                if changed:
                    since, longest, moved = now, max(longest, past[-1][0] - since), moving
                self.rest[key] = since, longest, moving, moved
                past.append((now, metric.value))

    def judge(self, now: float, nodes: Mapping[str, NodeMetrics]) -> set[tuple[str, str, str]]:
        """Return node, metric and kind of what stands out, and remember the fetch."""
        found = set()
        for node, metrics in nodes.items():
            for metric in metrics.metrics:
                if metric.operator == "AVG":
                    past = self.past[node, metric.name, metric.operator]
                    if self._fell(metric.value, past):
                        found.add((node, metric.name, "wrong_scale"))
                    elif self._is_spike(now, metric.value, past):
                        found.add((node, metric.name, "spike"))
        self.remember(now, nodes)
        for node, metrics in nodes.items():
            for metric in metrics.metrics:
                if metric.operator == "AVG" and self._is_frozen(now, node, metric):
                    found.add((node, metric.name, "frozen"))
        return found

    def _is_frozen(self, now: float, node: str, metric: Metric) -> bool:
        rests = [self.rest[node, metric.name, operator] for operator in ("AVG", "STD")]
        since, longest = max(rest[0] for rest in rests), min(rest[1] for rest in rests)
        moved = max(rest[3] for rest in rests)
        whole = all(self.past[node, metric.name, operator][-1][1].is_integer() for operator in ("AVG", "STD"))
        coarse = metric.type != "CPU" or whole or 0 < moved < 0.5
        span = self.settings.frozen_resting_seconds if coarse else self.settings.frozen_seconds
        return metric.value < 100 and now - since >= max(span, 2 * longest)

    def _is_spike(self, now: float, value: float, past: deque[tuple[float, float]]) -> bool:
        jumped = False
        for then, before in past:
            possible = self.settings.spike_factor * 100 * (now - then) / self.span
            jumped = jumped or (possible < 100 and abs(value - before) > possible)
        if not jumped or len(past) < 10:
            return False
        ordered = sorted(before for _, before in past)
        lower, median, upper = (ordered[(len(ordered) - 1) * part // 4] for part in (1, 2, 3))
        return abs(value - median) > 6 * max((upper - lower) / 1.349, 1.0)

    def _fell(self, value: float, past: deque[tuple[float, float]]) -> bool:
        if value < 1e-3:
            return False
        ratios = [before / value for _, before in past]
        before = [ratio for ratio in ratios if ratio > 30]
        return len(before) >= 10 and not any(3 < r <= 30 for r in ratios) and 50 < statistics.mean(before) < 200


def speed() -> None:
    """Compare with the plain loop at 5,000 nodes of 8 metrics, and see that both find the same."""
    rng = np.random.default_rng(406)
    resources = ("CPU", "Memory", "Storage", "Bandwidth")
    levels = rng.uniform(20, 60, (5000, 8))
    suspicion, loop = AnomalyDetector(QualitySettings(), ["5m"], 60), PlainLoop(QualitySettings(), 300)
    times: dict[str, list[float]] = defaultdict(list)
    fetches = 75
    for fetch in range(fetches):
        values = levels + rng.normal(0, 2, levels.shape)
        values[:50, :2] = levels[:50, :2]  # frozen
        if fetch >= fetches - RUNS:
            values[50:100, 0] = 99
            values[100:150, :2] /= 100
        now = START + fetch * 60
        rows = values.tolist()
        nodes = {
            f"node-{row}": NodeMetrics(
                tuple(
                    Metric(f"node:{resource}", resource, operator, "5m", rows[row][2 * column + second])
                    for column, resource in enumerate(resources)
                    for second, operator in enumerate(("AVG", "STD"))
                )
            )
            for row in range(5000)
        }
        metrics = WatcherMetrics(now, Window("5m", now - 300, now), "benchmark", nodes)
        began = time.perf_counter()
        cleaned, _ = analyzer.clean(nodes, "5m")
        cleaned_at = time.perf_counter()
        _, findings = suspicion.judge(now, {"5m": metrics}, {})
        judged_at = time.perf_counter()
        if fetch < fetches - RUNS:
            loop.remember(now, cleaned)
            continue
        found = loop.judge(now, cleaned)
        ended = time.perf_counter()
        seen = {(each.node, each.metric, str(each.kind)) for each in findings}
        if seen != found:
            raise SystemExit(f"the loop and the arrays differ: {sorted(seen ^ found)[:5]}")
        times["clean"].append(cleaned_at - began)
        times["judge"].append(judged_at - cleaned_at)
        times["loop"].append(ended - judged_at)
    clean, judge, plain = (1000 * statistics.median(times[name]) for name in ("clean", "judge", "loop"))
    size = suspicion.history.size_bytes / 1e6
    print("\n## 5,000 nodes of 8 metrics, 60 fetches of history, 150 faults\n")
    print(f"values by themselves {clean:.0f} ms, against the past {judge:.0f} ms; a plain loop against the past")
    print(f"{plain:.0f} ms, {plain / judge:.0f} times as long. The past takes {size:.0f} MB.")


def main() -> None:
    """Print all tables, as Markdown."""
    words = [word for word in sys.argv[1:] if not word.startswith("-")]
    tuned = "--tuned" in sys.argv
    folder = Path(words[0] if words else os.environ.get("TRIMARAN_TRACES", ""))
    print(f"# quality.py\n\nPython {platform.python_version()}, numpy {np.__version__}")
    speed()
    traces: dict[str, Trace] = {}
    for name, load in (("planetlab", planetlab), ("alibaba", alibaba), ("bitbrains", bitbrains),
                       ("bitbrains, 50 machines", bitbrains_50)):  # fmt: skip
        if not (words or os.environ.get("TRIMARAN_TRACES")) or not (folder / SOURCES[name]).is_file():
            print(f"\nLeft out: {name}: no {SOURCES[name]} in a folder that TRIMARAN_TRACES or an argument names.")
            continue
        try:
            traces[name] = load(folder, tuned)
        except ImportError as error:
            print(f"\nLeft out: {name}: {error}")
    if not traces:
        return
    print(f"\n## Findings per node and day on traces as they are ({'tuned' if tuned else 'other'} half of the nodes)\n")
    print("| trace | fetched | node-days | frozen | spike | wrong scale | double smoothing | out of range | missing |"
          " low coverage |\n|---|---|---:|---:|---:|---:|---:|---:|---:|---:|")  # fmt: skip
    for name, trace in traces.items():
        false_findings(name, trace)
    print("\n## Faults put in, one a node and day on half of the nodes\n")
    print("| trace | fault | times | precision | recall |\n|---|---|---:|---:|---:|")
    for name, trace in traces.items():
        if len(trace.samples["CPU"]) >= 20:
            faults_found(name, trace)
            whole_fetches(name, trace)


if __name__ == "__main__":
    main()
