"""What the analyzer sees on loads of real machines, what of faults put into their sources, and how fast it looks.

Speed needs nothing. The traces are public but not ours to pass on; without a folder that has them, that part is left
out and says so. benchmarks/README.md tells where to get them, and what the columns mean.

    make bench                                            speed; traces too when TRIMARAN_TRACES names the folder
    python research/detectors.py FOLDER                   everything
    python research/detectors.py FOLDER --only=alibaba    one trace
    python research/detectors.py --speed                  speed alone
    PYTHONPATH=OTHER python research/detectors.py FOLDER  the same faults before the analyzer of another checkout
"""

import copy
import inspect
import os
import platform
import statistics
import sys
import time
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from machine_traces import DAY, LOADERS, SOURCES, Floats, Trace, windows
from source_faults import FAULTS, HOUR, Fault

from watcher.findings import Kind
from watcher.model import Metric, NodeMetrics, WatcherMetrics, Window
from watcher.quality import analyzer
from watcher.settings import QualitySettings

try:
    from watcher.quality.anomalies import AnomalyDetector as Judge
except ImportError:  # a checkout from before it was called so
    from watcher.quality.suspicion import Suspicion as Judge  # type: ignore[import-not-found,no-redef]

RUNS = 5
START = 1_700_000_000
SPANS = {"15m": 900, "10m": 600, "5m": 300}
INTERVAL = 60
HOT_PERCENT = 20.0
LASTS = 6 * HOUR  # a run with a fault, from its begin
CORROBORATES = "beside" in inspect.signature(Judge.judge).parameters
TRUE_OF_TRACES = {Kind.MISSING, Kind.LOW_COVERAGE, Kind.OUT_OF_RANGE}  # gaps, and machines that got more than promised
NAMES = [f"node-{number}" for number in range(10_000)]
NUMBERS = {name: number for number, name in enumerate(NAMES)}
Key = tuple[str, str, str, str]


# -- a fleet before the judge -----------------------------------------------------------------------------------------


@dataclass
class Run:
    """A judge, and what it has said.

    Attributes:
        judge: as the watcher has it.
        open: the findings of the last fetch.
        opened: fetch and what is new in it, in order.
        known: what was found before a fault began, and says nothing about it.
    """

    judge: Any = field(default_factory=lambda: Judge(QualitySettings(), list(SPANS), INTERVAL))
    open: set[Key] = field(default_factory=set)
    opened: list[tuple[int, Key]] = field(default_factory=list)
    known: frozenset[Key] = frozenset()

    def play(self, trace: Trace, second: Trace, fetches: range) -> Iterator[tuple[int, set[Key]]]:
        """Judge a stretch of fetches, a part at a time; yield what is found in each."""
        for begin in range(fetches.start, fetches.stop, 720):
            part = np.arange(begin, min(begin + 720, fetches.stop))
            answers = windows(trace, SPANS.values(), part * INTERVAL)
            beside = windows(second, [300], part * INTERVAL)
            for column, fetch in enumerate(part.tolist()):
                found = self._fetch(fetch, *(_nodes(answers, column, window) for window in SPANS),
                                    beside=_nodes(beside, column, "5m"))  # fmt: skip
                self.opened += [(fetch, key) for key in found - self.open]
                self.open = found
                yield fetch, found - self.known

    def _fetch(self, fetch: int, *answers: dict[str, NodeMetrics], beside: dict[str, NodeMetrics]) -> set[Key]:
        now = START + fetch * INTERVAL
        snapshots, findings = {}, []
        for (name, span), nodes in zip(SPANS.items(), answers, strict=True):
            cleaned, found = analyzer.clean(nodes, name)
            findings += found
            if cleaned:
                snapshots[name] = WatcherMetrics(now, Window(name, now - span, now), "trace", cleaned)
        if CORROBORATES:
            findings += self.judge.judge(now, snapshots, {}, findings, beside)[1]
        else:
            findings += self.judge.judge(now, snapshots, {}, findings)[1]
            findings += _ten_points(snapshots["5m"].data if "5m" in snapshots else {}, beside)
        return {(each.kind, each.window, each.node, each.metric) for each in findings}


def _nodes(answers: Mapping[tuple[str, str, int], Floats], column: int, window: str) -> dict[str, NodeMetrics]:
    """Return the nodes that one fetch of a window brings."""
    span = SPANS[window]
    keys = [(resource, operator) for resource, operator, each in answers if each == span and resource]
    rows = np.stack([answers[resource, operator, span][:, column] for resource, operator in keys], axis=1).tolist()
    coverage = answers["", "coverage", span][:, column].tolist()
    return {
        NAMES[number]: NodeMetrics(
            tuple(
                Metric(resource, resource, operator, window, value)
                for (resource, operator), value in zip(keys, row, strict=True)
                if value == value  # noqa: PLR0124  not NaN
            ),
            metadata={} if covered >= 1 else {"coverage": covered},
        )
        for number, (row, covered) in enumerate(zip(rows, coverage, strict=True))
        if covered > 0
    }


def _ten_points(ours: Mapping[str, NodeMetrics], theirs: Mapping[str, NodeMetrics]) -> list[Any]:
    """Return what comparing two providers at 10 points found, before there was ``corroborate``."""
    from watcher.providers.several import SeveralProviders  # as it was called  # noqa: PLC0415

    return list(SeveralProviders([], 10)._compare("one", ours, "other", theirs, "5m"))  # noqa: SLF001


def second_source(trace: Trace) -> Trace:
    """Return what a metrics server says of the same machines.

    It looks for itself, a minute later, at shorter spans; its CPU is 3 percent lower, as it counts no interrupts, and
    its memory counts caches otherwise: a twentieth more, and each node some points of its own.
    """
    rng = np.random.default_rng(12)
    trace = trace.resampled(INTERVAL)
    nodes, _ = trace.shape
    own = {"CPU": (0.97, 0.0), "Memory": (1.05, rng.normal(0, 3, (nodes, 1)))}
    samples = {}
    for resource, (factor, offset) in own.items():
        if resource in trace.samples:
            values = trace.samples[resource]
            seen = np.concatenate([values[:, :1], values[:, :-1]], axis=1)
            noisy = seen * factor * rng.normal(1, 0.05, seen.shape) + offset + rng.normal(0, 0.5, seen.shape)
            samples[resource] = np.clip(noisy, 0, 100)
    return Trace(trace.step, samples)


# -- false alarms and faults ------------------------------------------------------------------------------------------


def of_one_source(found: Iterable[Key]) -> list[Key]:
    """Return what was found without a second source."""
    return [key for key in found if key[0] != Kind.DISAGREEMENT]


def false_alarms(name: str, trace: Trace, begins: Iterable[int]) -> dict[int, Run]:
    """Print how often each kind is found on a trace as it is, and return how the judge was before each begin."""
    run, second, kept = Run(), second_source(trace), {}
    stops = [*sorted(begins), trace.shape[1] * trace.step // INTERVAL]
    at = 0
    for stop in stops:
        deque(run.play(trace, second, range(at, stop)), maxlen=0)
        at = stop
        kept[stop] = copy.deepcopy(run)
    for half in (1, 0):
        days = trace.tuned(bool(half)).node_days
        # What is said of all nodes at once counts in both halves.
        kinds = Counter(
            key[0]
            for _, key in run.opened
            if key[0] not in TRUE_OF_TRACES and (not key[2] or NUMBERS[key[2]] % 2 == 1 - half)
        )
        one = sum(count for kind, count in kinds.items() if kind != Kind.DISAGREEMENT)
        both = kinds.total()
        said = ", ".join(f"{kind} {count}" for kind, count in sorted(kinds.items())) or "none"
        print(f"| {name} | {trace.step} s | {'tuned' if half else 'other'} | {days:,.0f} | {one / days:.3f} |"
              f" {both / days:.3f} | {said} |", flush=True)  # fmt: skip
    return kept


@dataclass
class Score:
    """What became of a fault, with one source and with two."""

    hot: list[int] = field(default_factory=lambda: [0, 0])
    unseen: int = 0  # hot node-fetches if there were no findings at all
    right: list[int] = field(default_factory=lambda: [0, 0])
    wrong: list[int] = field(default_factory=lambda: [0, 0])
    times: int = 0
    delays: list[list[int]] = field(default_factory=lambda: [[], []])


def inject(trace: Trace, fault: Fault, nodes: list[int], begins: list[int]) -> Trace:
    """Return the trace with a fault in some nodes at these seconds after its begin."""
    samples = {resource: values.copy() for resource, values in trace.samples.items()}
    count, times = trace.shape
    for node, begin in zip(nodes, begins, strict=True):
        span = slice(begin // trace.step, min(times, (begin + fault.seconds) // trace.step))
        other = next(
            each
            for each in ((node + step) % count for step in range(1, count))
            if each not in nodes or fault.everywhere
        )
        fault.inject(samples, node, other, span, trace.step)
    return Trace(trace.step, samples)


def hot(trace: Trace, ill: Trace, fetches: range) -> Floats:
    """Return which nodes are shown too cool in any window, shape (nodes, fetches)."""
    at = np.array(fetches) * INTERVAL
    true, shown = windows(trace, SPANS.values(), at), windows(ill, SPANS.values(), at)
    with np.errstate(invalid="ignore"):
        return np.logical_or.reduce(
            [true["CPU", "AVG", span] - shown["CPU", "AVG", span] >= HOT_PERCENT for span in SPANS.values()]
        )


def score(trace: Trace, fault: Fault, kept: Mapping[int, Run], halves: tuple[Score, Score]) -> None:
    """Put a fault into every node once, a few at a time, and count what is found, for each half of the nodes."""
    count, times = trace.shape
    second = second_source(trace)
    rng = np.random.default_rng(405)
    groups = 1 if fault.everywhere else min(5, max(2, count // 2))
    for number, (begin, warm) in enumerate(list(kept.items())[:-1]):
        fetches = range(begin, min(begin + LASTS // INTERVAL, times * trace.step // INTERVAL))
        group = list(range(count)) if fault.everywhere else list(range(number % groups, count, groups))
        begins = [begin + (0 if fault.everywhere else int(rng.integers(0, 60))) for _ in group]
        ill = inject(trace, fault, group, [each * INTERVAL for each in begins])
        first = dict(zip(group, begins, strict=True))
        if fault.pairs:
            first |= {(node + 1) % count: begin for node in group if (node + 1) % count not in first}
        run = copy.deepcopy(warm)
        run.opened = []
        run.known = frozenset(warm.open)
        cooler = hot(trace, ill, fetches)
        for half, mine in enumerate(halves):
            mine.unseen += int(cooler[half::2].sum())
            mine.times += sum(node % 2 == half for node in group)
        _follow(run.play(ill, second, fetches), begin, first, group, cooler, halves)
        _judge_findings(run.opened, fault, first, halves)


def _follow(
    fetches: Iterable[tuple[int, set[Key]]],
    begin: int,
    first: Mapping[int, int],
    group: Iterable[int],
    cooler: Floats,
    halves: tuple[Score, Score],
) -> None:
    """Count fetch by fetch who is shown too cool without a word, and when the first word comes."""
    told: tuple[dict[int, int], dict[int, int]] = ({}, {})
    for fetch, found in fetches:
        for sources, keys in enumerate((of_one_source(found), found)):
            nodes = _told(keys, len(cooler))
            for node in set(np.flatnonzero(cooler[:, fetch - begin]).tolist()) - nodes:
                halves[node % 2].hot[sources] += 1
            for node in nodes & first.keys():
                if fetch >= first[node]:
                    told[sources].setdefault(node, fetch - first[node])
    for sources, delays in enumerate(told):
        for node in delays.keys() & set(group):
            halves[node % 2].delays[sources].append(delays[node])


def _told(keys: Iterable[Key], count: int) -> set[int]:
    """Return the nodes that something is said of; what is said of no node is said of all."""
    telling = [key for key in keys if key[0] not in TRUE_OF_TRACES or key[0] == Kind.MISSING]
    return set(range(count)) if any(not key[2] for key in telling) else {NUMBERS[key[2]] for key in telling}


def _judge_findings(
    opened: Iterable[tuple[int, Key]], fault: Fault, ill: Mapping[int, int], halves: tuple[Score, Score]
) -> None:
    """Count which findings are about nodes that have the fault; the rest are wrong, in whatever half."""
    for _, (kind, _, node, _) in opened:
        if kind in TRUE_OF_TRACES:
            continue
        right = fault.everywhere or (bool(node) and NUMBERS[node] in ill)
        for half in (NUMBERS[node] % 2,) if node else (0, 1):
            for sources in (1,) if kind == Kind.DISAGREEMENT else (0, 1):
                (halves[half].right if right else halves[half].wrong)[sources] += 1


def begins_of(trace: Trace) -> list[int]:
    """Return the fetches at which faults may begin: five a trace, with a day before them where it is longer."""
    fetches = trace.shape[1] * trace.step // INTERVAL
    warm = min(fetches * 2 // 5, 2 * DAY // INTERVAL)
    return [int(each) for each in np.linspace(warm, fetches - LASTS // INTERVAL, 5)]


def show(name: str, trace: Trace, fault: str, halves: tuple[Score, Score]) -> None:
    """Print one row for each half."""
    for half, found in zip(("tuned", "other"), halves, strict=True):
        print(f"| {name} | {trace.step} s | {fault} | {half} | {found.times} | {found.unseen} |", end="")
        for sources in (0, 1):
            all_ = found.right[sources] + found.wrong[sources]
            precision = f"{found.right[sources] / all_:.2f}" if all_ else "-"
            delay = f"{statistics.median(found.delays[sources]):.0f}" if found.delays[sources] else "-"
            recall = len(found.delays[sources]) / max(1, found.times)
            print(f" {found.hot[sources]} | {precision} | {recall:.2f} | {delay} |", end="")
        print(flush=True)


def on_traces(traces: Mapping[str, Trace], faults: Iterable[str]) -> None:
    """Print both tables."""
    print("\n## Findings on traces as they are, a node and day\n")
    print("| trace | source | half | node-days | one source | two | which |\n|---|---|---|---:|---:|---:|---|")
    kept = {name: false_alarms(name.partition("@")[0], trace, begins_of(trace)) for name, trace in traces.items()}
    faults = list(faults)
    if not faults:
        return
    print("\n## Faults put into the source\n")
    print("| trace | source | fault | half | times | hot | hot, one source | precision | recall | delay |"
          " hot, two sources | precision | recall | delay |\n|---|---|---|---|" + "---:|" * 10)  # fmt: skip
    sums: dict[str, Counter[str]] = defaultdict(Counter)
    for name, trace in traces.items():
        for fault in faults:
            halves = (Score(), Score())
            score(trace, FAULTS[fault], kept[name], halves)
            show(name.partition("@")[0], trace, fault, halves)
            for found in halves:
                sums[name].update({"all": found.unseen, "one": found.hot[0], "two": found.hot[1]})
    print(
        "\n## Hot node-fetches over all faults\n\n| trace | without findings | one source | two |\n|---|---:|---:|---:|"
    )
    for name, found in sums.items():
        print(f"| {name} | {found['all']} | {found['one']} | {found['two']} |")


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
    levels = rng.uniform(20, 60, (5000, 8))
    judge_, two, loop = Run().judge, Run().judge, PlainLoop(QualitySettings(), SPANS["5m"])
    times: dict[str, list[float]] = defaultdict(list)
    fetches = 75
    for fetch in range(fetches):
        values = levels + rng.normal(0, 2, levels.shape)
        well = _of_four_resources(values)
        values[:50, :2] = levels[:50, :2]  # frozen
        if fetch >= fetches - RUNS:
            values[50:100, 0] = 99
            values[100:150, :2] /= 100
        now = START + fetch * INTERVAL
        nodes = _of_four_resources(values)
        snapshots = {
            name: WatcherMetrics(now, Window(name, now - span, now), "benchmark", nodes) for name, span in SPANS.items()
        }
        at = [time.process_time()]
        for name in SPANS:
            cleaned, _ = analyzer.clean(nodes, name)
        at.append(time.process_time())
        _, findings = judge_.judge(now, snapshots, {})
        at.append(time.process_time())
        if CORROBORATES:
            two.judge(now, snapshots, {}, (), well)
        at.append(time.process_time())
        if fetch < fetches - RUNS:
            loop.remember(now, cleaned)
            continue
        found = loop.judge(now, cleaned)
        at.append(time.process_time())
        seen = {(each.node, each.metric, str(each.kind)) for each in findings}
        if seen != found:
            raise SystemExit(f"the loop and the arrays differ: {sorted(seen ^ found)[:5]}")
        for name, took in zip(("clean", "judge", "two", "loop"), np.diff(at).tolist(), strict=True):
            times[name].append(1000 * took)
    clean, judge, both, plain = (statistics.median(times[name]) for name in ("clean", "judge", "two", "loop"))
    print("\n## 5,000 nodes of 8 metrics in three windows, 60 fetches of history, 150 faults\n")
    print(f"Processor time a fetch: {clean + both:.0f} ms in all, {clean:.0f} ms for the values by themselves in all")
    print(f"windows and {both:.0f} ms against the past and a second source ({judge:.0f} ms without one). A plain loop")
    print(f"against the past, one window: {plain:.0f} ms, {plain / judge:.0f} times as long as all without a second")
    print(f"source. The past takes {judge_.size_bytes() / 1e6:.0f} MB.")


def _of_four_resources(values: Floats) -> dict[str, NodeMetrics]:
    """Return nodes with average and deviation of four resources; values are (nodes, 8)."""
    keys = [(name, operator) for name in ("CPU", "Memory", "Storage", "Bandwidth") for operator in ("AVG", "STD")]
    return {
        name: NodeMetrics(
            tuple(
                Metric(f"node:{each}", each, operator, "5m", value)
                for (each, operator), value in zip(keys, row, strict=True)
            )
        )
        for name, row in zip(NAMES, values.tolist(), strict=False)
    }


def main() -> None:
    """Print all tables, as Markdown."""
    words = [word for word in sys.argv[1:] if not word.startswith("-")]
    options = dict(word.lstrip("-").partition("=")[::2] for word in sys.argv[1:] if word.startswith("-"))
    folder = Path(words[0] if words else os.environ.get("TRIMARAN_TRACES", ""))
    print(
        f"# quality.py\n\nPython {platform.python_version()}, numpy {np.__version__}, {Path(analyzer.__file__).parent}"
    )
    if "only" not in options:
        speed()
    if "speed" in options:
        return
    traces: dict[str, Trace] = {}
    for name, load in LOADERS.items():
        if name != options.get("only", name):
            continue
        if not (words or os.environ.get("TRIMARAN_TRACES")) or not (folder / SOURCES[name]).is_file():
            print(f"\nLeft out: {name}: no {SOURCES[name]} in a folder that TRIMARAN_TRACES or an argument names.")
            continue
        try:
            traces[name] = load(folder)
        except ImportError as error:
            print(f"\nLeft out: {name}: {error}")
    if "alibaba" in traces:  # the only one with samples a minute apart: sources of other steps are made of it
        traces |= {f"alibaba@{step}": traces["alibaba"].resampled(step) for step in (15, 300)}
    if "step" in options:
        traces = {name: trace for name, trace in traces.items() if trace.step == int(options["step"])}
    wanted = [fault for fault in FAULTS if options.get("fault", "") in fault] if "clean" not in options else []
    if traces:
        on_traces(traces, wanted)


if __name__ == "__main__":
    main()
