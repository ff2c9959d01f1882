"""Findings of the watcher's quality detectors on loads of real machines, and on faults put into these loads.

The script prints the false alarms per node and day, then recall, precision and delay for each fault: with one metrics
source, and with a metrics server as a second source. The traces are public, but may not be redistributed:
evidence/detectors.md has their sources, the meaning of the columns, and the results. A trace that is not in the folder
is skipped, with a message.

    python research/detectors.py FOLDER [--only TRACE] [--fault WORDS]
"""

import argparse
import copy
import statistics
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from machine_traces import DAY, Floats, Trace, add_folder, load_traces, windows
from source_faults import FAULTS, HOUR, Fault

from watcher.findings import Kind
from watcher.model import Metric, NodeMetrics, WatcherMetrics, Window
from watcher.quality import analyzer
from watcher.quality.anomalies import AnomalyDetector
from watcher.settings import QualitySettings

START = 1_700_000_000
SPANS = {"15m": 900, "10m": 600, "5m": 300}
INTERVAL = 60
HOT_POINTS = 20.0
RUN_SECONDS = 6 * HOUR  # of a run with a fault, from the start of the fault
TRUE_FINDINGS = {Kind.MISSING, Kind.LOW_COVERAGE, Kind.OUT_OF_RANGE}  # gaps, and machines that got more than promised
NAMES = [f"node-{number}" for number in range(10_000)]
NUMBERS = {name: number for number, name in enumerate(NAMES)}
HALVES = ("tuned", "other")  # even nodes tuned the defaults
Key = tuple[str, str, str, str]
Nodes = dict[str, NodeMetrics]


# -- a fleet in front of the detectors --------------------------------------------------------------------------------


@dataclass
class Run:
    """Detector that is run on a trace, with its findings.

    Attributes:
        detector: anomaly detector of the watcher.
        open: findings of the last fetch.
        opened: for each finding that the previous fetch did not have, the number of the fetch and the finding.
        known: findings that existed before the fault started, which are not counted as findings of the fault.
    """

    detector: AnomalyDetector = field(default_factory=lambda: AnomalyDetector(QualitySettings(), list(SPANS), INTERVAL))
    open: set[Key] = field(default_factory=set)
    opened: list[tuple[int, Key]] = field(default_factory=list)
    known: frozenset[Key] = frozenset()

    def play(self, trace: Trace, second: Trace, fetches: range) -> Iterator[tuple[int, set[Key]]]:
        """Run the detector on some fetches; yield the number of each fetch and its findings that are not in ``known``.

        Args:
            trace: samples of the first metrics source.
            second: samples of the second metrics source.
            fetches: numbers of the fetches, one per minute of the trace.
        """
        for start in range(fetches.start, fetches.stop, 720):  # a part at a time, as windows take memory
            part = np.arange(start, min(start + 720, fetches.stop))
            answers, others = windows(trace, SPANS.values(), part * INTERVAL), windows(second, [300], part * INTERVAL)
            for column, fetch in enumerate(part.tolist()):
                nodes = {window: _nodes(answers, column, window) for window in SPANS}
                findings = self._judge(fetch, nodes, _nodes(others, column, "5m"))
                self.opened += [(fetch, key) for key in findings - self.open]
                self.open = findings
                yield fetch, findings - self.known

    def _judge(self, fetch: int, answers: Mapping[str, Nodes], second: Nodes) -> set[Key]:
        now, snapshots, findings = START + fetch * INTERVAL, {}, []
        for window, nodes in answers.items():
            cleaned, of_window = analyzer.clean(nodes, window)
            findings += of_window
            if cleaned:
                snapshots[window] = WatcherMetrics(now, Window(window, now - SPANS[window], now), "trace", cleaned)
        findings += self.detector.judge(now, snapshots, {}, findings, second)[1]
        return {(finding.kind, finding.window, finding.node, finding.metric) for finding in findings}


def _nodes(answers: Mapping[tuple[str, str, int], Floats], column: int, window: str) -> Nodes:
    """Return the metrics of one window in one fetch, by node name.

    Args:
        answers: result of :func:`machine_traces.windows`.
        column: index of the fetch in the result.
        window: name of the window, such as ``5m``.
    """
    span = SPANS[window]
    keys = [(resource, operator) for resource, operator, seconds in answers if seconds == span and resource]
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


def second_source(trace: Trace) -> Trace:
    """Return made-up samples of a metrics server on the machines of a trace.

    The metrics server measures a minute later and over shorter spans. Its CPU is 3 percent lower, because it does not
    count interrupts. It counts caches differently: its memory is 5 percent higher, with an offset of some points for
    each node.
    """
    rng = np.random.default_rng(12)
    trace = trace.resampled(INTERVAL)
    rules = {"CPU": (0.97, 0.0), "Memory": (1.05, rng.normal(0, 3, (trace.shape[0], 1)))}
    samples = {}
    for resource, (factor, offset) in rules.items():
        if resource in trace.samples:
            values = trace.samples[resource]
            late = np.concatenate([values[:, :1], values[:, :-1]], axis=1)
            noisy = late * factor * rng.normal(1, 0.05, late.shape) + offset + rng.normal(0, 0.5, late.shape)
            samples[resource] = np.clip(noisy, 0, 100)
    return Trace(trace.step, samples)


# -- false alarms and faults ------------------------------------------------------------------------------------------


def count_false_alarms(name: str, trace: Trace, starts: Iterable[int]) -> dict[int, Run]:
    """Run the detector on a trace without faults, and print its findings, which are false alarms.

    Args:
        name: name of the trace.
        trace: samples of the trace.
        starts: numbers of the fetches at which faults will start.

    Returns:
        A copy of the run's state at each of these fetches, and at the end of the trace.
    """
    run, second, states, at = Run(), second_source(trace), {}, 0
    for stop in [*sorted(starts), trace.shape[1] * trace.step // INTERVAL]:
        deque(run.play(trace, second, range(at, stop)), maxlen=0)
        at, states[stop] = stop, copy.deepcopy(run)
    for parity, half in enumerate(HALVES):
        days = trace.half(parity).node_days
        # A finding about all nodes at once counts in both halves.
        kinds = Counter(
            key[0]
            for _, key in run.opened
            if key[0] not in TRUE_FINDINGS and (not key[2] or NUMBERS[key[2]] % 2 == parity)
        )
        both, one = kinds.total(), kinds.total() - kinds[Kind.DISAGREEMENT]
        shown = ", ".join(f"{kind} {count}" for kind, count in sorted(kinds.items()) if count) or "none"
        print(f"| {name} | {trace.step} s | {half} | {days:,.0f} | {one / days:.3f} | {both / days:.3f} | {shown} |")
    return states


@dataclass
class Score:
    """Results for a fault in one half of the nodes. Lists have an element for one metrics source and one for two.

    Attributes:
        unseen: number of times that a fetch shows a node at least 20 points below its true load.
        hot: number of these times at which there is no finding about the node.
        right: number of findings about nodes with the fault.
        wrong: number of findings about other nodes.
        times: number of faults.
        delays: number of fetches from the start of a fault to the first finding, for each fault with a finding.
    """

    unseen: int = 0
    hot: list[int] = field(default_factory=lambda: [0, 0])
    right: list[int] = field(default_factory=lambda: [0, 0])
    wrong: list[int] = field(default_factory=lambda: [0, 0])
    times: int = 0
    delays: list[list[int]] = field(default_factory=lambda: [[], []])


def inject(trace: Trace, fault: Fault, nodes: list[int], starts: list[int]) -> Trace:
    """Return a copy of a trace with a fault in some nodes.

    Args:
        trace: samples without the fault.
        fault: the fault.
        nodes: numbers of the nodes.
        starts: start of the fault in each of these nodes, seconds after the start of the trace.
    """
    samples = {resource: values.copy() for resource, values in trace.samples.items()}
    count, times = trace.shape
    for node, start in zip(nodes, starts, strict=True):
        span = slice(start // trace.step, min(times, (start + fault.seconds) // trace.step))
        others = ((node + step) % count for step in range(1, count))
        other = next(each for each in others if each not in nodes or fault.everywhere)
        fault.inject(samples, node, other, span, trace.step)
    return Trace(trace.step, samples)


def shown_too_cool(trace: Trace, faulty: Trace, fetches: range) -> Floats:
    """Return a mask of the nodes whose CPU is at least 20 points too low in any window, shape (nodes, fetches).

    Args:
        trace: samples without the fault.
        faulty: samples with the fault.
        fetches: numbers of the fetches.
    """
    at = np.array(fetches) * INTERVAL
    true, shown = windows(trace, SPANS.values(), at), windows(faulty, SPANS.values(), at)
    with np.errstate(invalid="ignore"):
        differences = [true["CPU", "AVG", span] - shown["CPU", "AVG", span] for span in SPANS.values()]
        return np.logical_or.reduce([difference >= HOT_POINTS for difference in differences])


def score_fault(trace: Trace, fault: Fault, states: Mapping[int, Run]) -> tuple[Score, Score]:
    """Put a fault into every node once, a few nodes at a time, and run the detector.

    Args:
        trace: samples without the fault.
        fault: the fault.
        states: result of :func:`count_false_alarms`.

    Returns:
        Results for the even nodes, on which the detector's defaults were tuned, and for the odd nodes.
    """
    halves = Score(), Score()
    (count, times), second, rng = trace.shape, second_source(trace), np.random.default_rng(405)
    groups = 1 if fault.everywhere else min(5, max(2, count // 2))
    for number, (start, warm) in enumerate(list(states.items())[:-1]):
        fetches = range(start, min(start + RUN_SECONDS // INTERVAL, times * trace.step // INTERVAL))
        group = list(range(count)) if fault.everywhere else list(range(number % groups, count, groups))
        starts = [start + (0 if fault.everywhere else int(rng.integers(0, 60))) for _ in group]
        faulty = inject(trace, fault, group, [fetch * INTERVAL for fetch in starts])
        first = dict(zip(group, starts, strict=True))
        if fault.pairs:
            first |= {(node + 1) % count: start for node in group if (node + 1) % count not in first}
        run = copy.deepcopy(warm)
        run.opened, run.known = [], frozenset(warm.open)
        cooler = shown_too_cool(trace, faulty, fetches)
        for half, score in enumerate(halves):
            score.unseen += int(cooler[half::2].sum())
            score.times += sum(node % 2 == half for node in group)
        _follow(run.play(faulty, second, fetches), first, set(group), cooler, halves)
        for _, (kind, _, node, _) in run.opened:
            right = fault.everywhere or (bool(node) and NUMBERS[node] in first)
            for half in (NUMBERS[node] % 2,) if node else (0, 1):
                for sources in () if kind in TRUE_FINDINGS else (1,) if kind == Kind.DISAGREEMENT else (0, 1):
                    (halves[half].right if right else halves[half].wrong)[sources] += 1
    return halves


def _follow(
    fetches: Iterable[tuple[int, set[Key]]],
    first: Mapping[int, int],
    group: set[int],
    cooler: Floats,
    halves: tuple[Score, Score],
) -> None:
    """Count the nodes whose load is shown too low without a finding, and the delay of the first finding of a fault.

    Args:
        fetches: result of :meth:`Run.play`.
        first: number of the fetch at which the fault starts, by node.
        group: nodes into which the fault was put.
        cooler: result of :func:`shown_too_cool`.
        halves: results for the two halves of the nodes, to which the counts are added.
    """
    delays: tuple[dict[int, int], dict[int, int]] = ({}, {})
    for column, (fetch, findings) in enumerate(fetches):
        for sources in (0, 1):
            nodes = _reported_nodes((key for key in findings if sources or key[0] != Kind.DISAGREEMENT), len(cooler))
            for node in set(np.flatnonzero(cooler[:, column]).tolist()) - nodes:
                halves[node % 2].hot[sources] += 1
            for node in nodes & first.keys():
                if fetch >= first[node]:
                    delays[sources].setdefault(node, fetch - first[node])
    for sources in (0, 1):
        for node in delays[sources].keys() & group:
            halves[node % 2].delays[sources].append(delays[sources][node])


def _reported_nodes(keys: Iterable[Key], count: int) -> set[int]:
    """Return the numbers of the nodes that have findings; a finding without a node stands for all ``count`` nodes.

    Findings that are true without a fault, such as values out of range, are ignored, except for missing metrics.
    """
    telling = [key for key in keys if key[0] not in TRUE_FINDINGS or key[0] == Kind.MISSING]
    return set(range(count)) if any(not key[2] for key in telling) else {NUMBERS[key[2]] for key in telling}


def fault_starts(trace: Trace) -> list[int]:
    """Return the numbers of the five fetches at which faults start.

    The first is after two days, or after two fifths of a trace that is shorter than five days.
    """
    fetches = trace.shape[1] * trace.step // INTERVAL
    warm_up = min(fetches * 2 // 5, 2 * DAY // INTERVAL)
    return [int(start) for start in np.linspace(warm_up, fetches - RUN_SECONDS // INTERVAL, 5)]


def print_fault(name: str, trace: Trace, fault: str, halves: tuple[Score, Score]) -> None:
    """Print a row with the results for a fault, for each half of the nodes."""
    for half, score in zip(HALVES, halves, strict=True):
        cells = [name, f"{trace.step} s", fault, half, str(score.times), str(score.unseen)]
        for hot, right, wrong, delays in zip(score.hot, score.right, score.wrong, score.delays, strict=True):
            precision = f"{right / (right + wrong):.2f}" if right + wrong else "-"
            delay = f"{statistics.median(delays):.0f}" if delays else "-"
            cells += [str(hot), precision, f"{len(delays) / max(1, score.times):.2f}", delay]
        print(f"| {' | '.join(cells)} |", flush=True)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_folder(parser)
    parser.add_argument("--only", help="the name of one trace")
    parser.add_argument("--fault", default="", help="part of the names of the faults")
    arguments = parser.parse_args()
    traces = {(name, trace.step): trace for name, trace in load_traces(arguments.folder, arguments.only)}
    if alibaba := traces.get(("alibaba", 60)):  # with samples a minute apart, it stands for sources of other steps, too
        traces |= {("alibaba", step): alibaba.resampled(step) for step in (15, 300)}
    print("\n| trace | source | half | node-days | one source | two | kinds |\n|---|---|---|---:|---:|---:|---|")
    states = {key: count_false_alarms(key[0], trace, fault_starts(trace)) for key, trace in traces.items()}
    print("\n| trace | source | fault | half | times | hot | hot, one source | precision | recall | delay |"
          " hot, two sources | precision | recall | delay |\n|---|---|---|---|" + "---:|" * 10)  # fmt: skip
    for key, trace in traces.items():
        for fault in (name for name in FAULTS if arguments.fault in name):
            print_fault(key[0], trace, fault, score_fault(trace, FAULTS[fault], states[key]))


if __name__ == "__main__":
    main()
