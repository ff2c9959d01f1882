"""Metrics of simulated nodes: windows of past use, fetched at an interval and with a delay."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from scoring.arrays import Float64s, Int64s
from trimaran.simulator.ledger import CPU_ROW, UseLedger
from watcher.model import MetricType, NodeColumns, Operator, WatcherMetrics, Window
from watcher.settings import WatchSettings

#: Unix time at which replays begin: arbitrary, but a full hour.
BEGIN_SECONDS = 1_600_002_000 // 3600 * 3600

#: Age above which the watcher does not serve metrics as fresh.
MAX_DELAY_MINUTES = WatchSettings().expiry_seconds // 60

_PERCENTILES = {Operator.P90: 90, Operator.P95: 95, Operator.P99: 99, Operator.MAX: 100}


def unix_seconds(minute: float) -> int:
    """Return the Unix time of a minute of a replay."""
    return BEGIN_SECONDS + round(60 * minute)


def replay_minute(moment: float) -> int:
    """Return the minute of a replay that contains a Unix time."""
    return int((moment - BEGIN_SECONDS) // 60)


@dataclass(frozen=True)
class Windows:
    """Windows of the simulated metrics.

    Attributes:
        window_minutes: length of the window.
        interval_minutes: minutes between two fetches.
        delay_minutes: age of a window's end when the window is served, due to scraping, rules and fetching.
        smoothing_minutes: span over which each CPU sample is a rate, as in recording rules for node_exporter. It
            changes deviation and percentiles; the mean is that of the window, as the provider Prometheus computes it.
        percentiles: operators in addition to average and deviation: P90, P95, P99, MAX.

    Raises:
        ValueError: a field is out of its range.
    """

    window_minutes: int = 15
    interval_minutes: int = 1
    delay_minutes: int = 1
    smoothing_minutes: int = 5
    percentiles: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, minimum in (
            ("window_minutes", 1), ("interval_minutes", 1), ("delay_minutes", 0), ("smoothing_minutes", 1),
        ):  # fmt: skip
            if getattr(self, name) < minimum:
                raise ValueError(f"{name} = {getattr(self, name)}: must be at least {minimum}")
        if self.delay_minutes > MAX_DELAY_MINUTES:
            raise ValueError(
                f"delay_minutes = {self.delay_minutes}: must be at most {MAX_DELAY_MINUTES}, as older metrics expire"
            )
        unknown = set(self.percentiles) - set(_PERCENTILES)
        if unknown:
            raise ValueError(f"percentiles: {min(unknown)}: must be one of {', '.join(_PERCENTILES)}")

    def window_end(self, minute: int) -> int:
        """Return the end of the newest window that is served in a minute, at least 0."""
        return max((minute - self.delay_minutes) // self.interval_minutes * self.interval_minutes, 0)

    @property
    def window(self) -> str:
        """Length of the window, as a duration."""
        return f"{self.window_minutes}m"

    def snapshot(self, names: Sequence[str], ledger: UseLedger, numbers: Int64s, end: int) -> WatcherMetrics:
        """Return the metrics of nodes over a window.

        The window is shorter at the start of a replay. For a node that joined within the window, the values cover the
        time since then, and the node's metadata has the coverage.

        Args:
            names: the nodes' names.
            ledger: the nodes' use.
            numbers: the nodes' numbers in the ledger, shape (nodes,).
            end: end of the window, as :meth:`window_end` returns it.
        """
        start = max(end - self.window_minutes, 0)
        since = ledger.since[numbers]
        late = np.flatnonzero(since > start).tolist()
        series, columns = [], []
        for resource, metric_type in enumerate((MetricType.CPU, MetricType.MEMORY)):
            name = "instance:node_cpu:ratio" if metric_type is MetricType.CPU else "instance:node_memory:ratio"
            values = self._values(ledger, resource, numbers, _Span(0, start, end))
            for row in late:
                joined = int(since[row])
                since_joined = self._values(ledger, resource, numbers[row : row + 1], _Span(joined, joined, end))
                for operator, value in since_joined.items():
                    values[operator][row] = value[0]
            for operator, column in values.items():
                series.append((name, metric_type.value, operator.value, self.window))
                columns.append(column.tolist())
        window = Window(self.window, unix_seconds(start), unix_seconds(end))
        metadata = {names[row]: {"coverage": float(end - since[row]) / (end - start)} for row in late}
        return WatcherMetrics(window.end, window, "replay", NodeColumns([(names, series, columns)], {}, metadata))

    def _values(self, ledger: UseLedger, resource: int, numbers: Int64s, span: "_Span") -> dict[Operator, Float64s]:
        """Return a resource's metrics by operator (average, deviation, ...): percent of capacity, shape (nodes,)."""
        use, capacity = ledger.use[resource], ledger.capacity[resource, numbers]
        exact = percent = _samples(use, numbers, capacity, span, 1)
        if resource == CPU_ROW:  # as from Prometheus: the mean is one rate over the window, the rest is of short rates
            percent = _samples(use, numbers, capacity, span, self.smoothing_minutes)
        values = {Operator.AVG: exact.mean(axis=1), Operator.STD: percent.std(axis=1)}
        for operator in self.percentiles:
            values[Operator(operator)] = np.percentile(percent, _PERCENTILES[Operator(operator)], axis=1)
        return values


class _Span(NamedTuple):
    """Window in minutes; the node has no samples before ``joined``."""

    joined: int
    start: int
    end: int


def _samples(use: Float64s, numbers: Int64s, capacity: Float64s, span: _Span, smoothing: int) -> Float64s:
    """Return samples of use, one per minute, percent of capacity, shape (nodes, minutes).

    Args:
        use: use by node and minute, shape (nodes, minutes).
        numbers: the nodes' numbers, shape (nodes,).
        capacity: capacity of the nodes, shape (nodes,).
        span: the window.
        smoothing: number of minutes, up to the sample's own, over which each sample is a mean.
    """
    start, end = span.start, span.end
    if end <= start:
        return np.zeros((len(numbers), 1))
    first = max(start - smoothing + 1, span.joined)
    part = use[numbers, first:end] / capacity[:, None]
    percent: Float64s = 100 * np.minimum(part, 1.0)
    if smoothing == 1:
        return percent
    # The mean of any span is a difference of cumulative sums.
    total = np.cumsum(percent, axis=1)
    total = np.concatenate([np.zeros((len(numbers), 1)), total], axis=1)
    at = np.arange(start - first, end - first) + 1
    before = np.maximum(at - smoothing, 0)
    return np.asarray((total[:, at] - total[:, before]) / (at - before))
