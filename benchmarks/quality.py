"""Time of the watcher's quality checks on a fetch of 5,000 nodes with 8 metrics in three windows.

The baseline is a plain loop without arrays, which compares one value after another with the previous fetches, for one
window and without a second metrics source. Both must report the same faults, or the benchmark stops. There are 60
previous fetches and 150 faults; times are medians of five fetches, in processor time.

    python benchmarks/quality.py [--nodes 5000]
"""

import statistics
from collections import deque
from collections.abc import Mapping

import numpy as np
from common import NOW, Table, in_turns, options, processor_ms

from watcher.model import Metric, NodeMetrics, WatcherMetrics, Window
from watcher.quality import analyzer
from watcher.quality.anomalies import AnomalyDetector
from watcher.settings import QualitySettings

ROUNDS, FETCHES, INTERVAL = 5, 75, 60
SPANS = {"15m": 900, "10m": 600, "5m": 300}
SERIES = [(kind, operator) for kind in ("CPU", "Memory", "Storage", "Bandwidth") for operator in ("AVG", "STD")]


class PlainLoop:
    """Checks of values against those of previous fetches, without arrays: the baseline.

    Args:
        settings: settings of the checks.
        span: length of the window, seconds.
    """

    def __init__(self, settings: QualitySettings, span: float) -> None:
        self.settings, self.span = settings, span
        self.past: dict[tuple[str, str, str], deque[tuple[float, float]]] = {}
        self.rest: dict[tuple[str, str, str], tuple[float, float, float, float]] = {}

    def remember(self, now: float, nodes: Mapping[str, NodeMetrics]) -> None:
        """Add the values of a fetch to the history.

        Args:
            now: time of the fetch, Unix seconds.
            nodes: metrics by node name.
        """
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
        """Compare a fetch with the history, then add it; return node, metric and kind of each finding.

        Args:
            now: time of the fetch, Unix seconds.
            nodes: metrics by node name.
        """
        findings = set()
        for node, metrics in nodes.items():
            for metric in metrics.metrics:
                if metric.operator == "AVG":
                    past = self.past[node, metric.name, metric.operator]
                    if self._fell(metric.value, past):
                        findings.add((node, metric.name, "wrong_scale"))
                    elif self._is_spike(now, metric.value, past):
                        findings.add((node, metric.name, "spike"))
        self.remember(now, nodes)
        for node, metrics in nodes.items():
            for metric in metrics.metrics:
                if metric.operator == "AVG" and self._is_frozen(now, node, metric):
                    findings.add((node, metric.name, "frozen"))
        return findings

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


def node_metrics(values: np.ndarray) -> dict[str, NodeMetrics]:
    """Return metrics by node name: average and deviation of four resources, from values of shape (nodes, 8)."""
    return {
        f"node-{number}": NodeMetrics(
            tuple(
                Metric(f"node:{kind}", kind, operator, "5m", value)
                for (kind, operator), value in zip(SERIES, row, strict=True)
            )
        )
        for number, row in enumerate(values.tolist())
    }


def main() -> None:
    """Run the benchmark and print its table."""
    size = options(__doc__, nodes=5_000)
    rng = np.random.default_rng(406)
    levels = rng.uniform(20, 60, (size.nodes, 8))
    one, two = (AnomalyDetector(QualitySettings(), list(SPANS), INTERVAL) for _ in range(2))
    loop = PlainLoop(QualitySettings(), SPANS["5m"])
    times: dict[str, list[float]] = {}
    for fetch in range(FETCHES):
        values = levels + rng.normal(0, 2, levels.shape)
        second_source = node_metrics(values)
        values[:50, :2] = levels[:50, :2]  # frozen
        if fetch >= FETCHES - ROUNDS:
            values[50:100, 0] = 99
            values[100:150, :2] /= 100
        now, nodes = NOW + fetch * INTERVAL, node_metrics(values)
        snapshots = {
            name: WatcherMetrics(now, Window(name, now - span, now), "benchmark", nodes) for name, span in SPANS.items()
        }
        results = {}
        calls = {
            "clean": lambda nodes=nodes, r=results: r.update(clean=[analyzer.clean(nodes, name)[0] for name in SPANS]),
            "one": lambda now=now, s=snapshots, r=results: r.update(one=one.judge(now, s, {})[1]),
            "two": lambda now=now, s=snapshots, second=second_source: two.judge(now, s, {}, (), second),
        }
        if fetch < FETCHES - ROUNDS:
            for call in calls.values():
                call()
            loop.remember(now, results["clean"][-1])
            continue
        calls["loop"] = lambda now=now, r=results: r.update(loop=loop.judge(now, r["clean"][-1]))
        for name, took in in_turns(calls, 1, processor_ms).items():
            times.setdefault(name, []).extend(took)
        seen = {(finding.node, finding.metric, str(finding.kind)) for finding in results["one"]}
        if seen != results["loop"]:
            raise SystemExit(f"the loop and the arrays differ: {sorted(seen ^ results['loop'])[:5]}")
    clean, judge, both, plain = (statistics.median(times[name]) for name in ("clean", "one", "two", "loop"))
    title = (
        f"{size.nodes:,} nodes of 8 metrics in three windows, {QualitySettings().history_fetches} fetches of history"
    )
    table = Table(title, ("work", "processor, ms", "times the arrays"))
    table.row("checks of single values, all windows", f"{clean:.0f}", "")
    table.row("checks against the past, all windows, one source", f"{judge:.0f}", "1.0")
    table.row("checks against the past and a second source", f"{both:.0f}", f"{both / judge:.1f}")
    table.row("a fetch in all, with a second source", f"{clean + both:.0f}", "")
    table.row("plain loop against the past, one window (baseline)", f"{plain:.0f}", f"{plain / judge:.1f}")
    table.row(f"memory of the past: {one.size_bytes() / 1e6:.0f} MB", "", "")


if __name__ == "__main__":
    main()
