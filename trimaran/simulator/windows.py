"""What a watcher would serve of a replay's nodes: windows of the past, at its interval, with its delay."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from scoring.arrays import Float64s, Int64s
from trimaran.simulator.ledger import CPU_ROW, UseLedger
from watcher.model import MetricType, NodeColumns, Operator, WatcherMetrics, Window
from watcher.settings import WatchSettings

#: The unix time at which replays begin. Any will do; this one is a full hour.
BEGIN_SECONDS = 1_600_002_000 // 3600 * 3600

#: Older metrics are never served as fresh.
MAX_DELAY_MINUTES = WatchSettings().expiry_seconds // 60

_PERCENTILES = {Operator.P90: 90, Operator.P95: 95, Operator.P99: 99, Operator.MAX: 100}


def unix_seconds(minute: float) -> int:
    """Return a minute of a replay as unix unix_seconds."""
    return BEGIN_SECONDS + round(60 * minute)


def replay_minute(moment: float) -> int:
    """Return the minute of a replay that a unix time is in."""
    return int((moment - BEGIN_SECONDS) // 60)


@dataclass(frozen=True)
class Windows:
    """How nodes are watched.

    Attributes:
        window_minutes: what a value is over.
        interval_minutes: from fetch to fetch.
        delay_minutes: how old a window's end is when it is served: scraping, rules, fetching.
        smoothing_minutes: CPU samples are rates over so long, as recording rules of node_exporter make them.
        percentiles: which are served beside average and deviation: P90, P95, P99, MAX.
    """

    window_minutes: int = 15
    interval_minutes: int = 1
    delay_minutes: int = 1
    smoothing_minutes: int = 5
    percentiles: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, least in (
            ("window_minutes", 1), ("interval_minutes", 1), ("delay_minutes", 0), ("smoothing_minutes", 1),
        ):  # fmt: skip
            if getattr(self, name) < least:
                raise ValueError(f"{name} = {getattr(self, name)}: must be at least {least}")
        if self.delay_minutes > MAX_DELAY_MINUTES:
            raise ValueError(f"delay_minutes = {self.delay_minutes}: older than {MAX_DELAY_MINUTES} nothing is used")
        unknown = set(self.percentiles) - set(_PERCENTILES)
        if unknown:
            raise ValueError(f"percentiles: {min(unknown)} is not one of {', '.join(_PERCENTILES)}")

    def window_end(self, minute: int) -> int:
        """Return up to which minute the newest snapshot reaches that is served in a minute; not below 0."""
        return max((minute - self.delay_minutes) // self.interval_minutes * self.interval_minutes, 0)

    @property
    def window(self) -> str:
        """The window, as a duration."""
        return f"{self.window_minutes}m"

    def snapshot(self, names: Sequence[str], ledger: UseLedger, numbers: Int64s, end: int) -> WatcherMetrics:
        """Return what is measured over a window.

        Args:
            names: the nodes' names.
            ledger: what they use.
            numbers: their numbers in it, shape (nodes,).
            end: the window's end, as :meth:`window_end` returned it; the window is shorter at the start of a replay. Of
                nodes that joined within it what was since then is measured, and its coverage told.
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
                own = self._values(ledger, resource, numbers[row : row + 1], _Span(joined, joined, end))
                for operator, value in own.items():
                    values[operator][row] = value[0]
            for each, column in values.items():
                series.append((name, metric_type.value, each.value, self.window))
                columns.append(column.tolist())
        window = Window(self.window, unix_seconds(start), unix_seconds(end))
        metadata = {names[row]: {"coverage": float(end - since[row]) / (end - start)} for row in late}
        return WatcherMetrics(window.end, window, "replay", NodeColumns([(names, series, columns)], {}, metadata))

    def _values(self, ledger: UseLedger, resource: int, numbers: Int64s, span: "_Span") -> dict[Operator, Float64s]:
        """Return what is told of a resource by operator, percent of capacity, shape (nodes,)."""
        smoothing = self.smoothing_minutes if resource == CPU_ROW else 1
        percent = _samples(ledger.use[resource], numbers, ledger.capacity[resource, numbers], span, smoothing)
        values = {Operator.AVG: percent.mean(axis=1), Operator.STD: percent.std(axis=1)}
        for operator in self.percentiles:
            values[Operator(operator)] = np.percentile(percent, _PERCENTILES[Operator(operator)], axis=1)
        return values


class _Span(NamedTuple):
    """A window in minutes; of the minutes before ``joined`` nothing is known."""

    joined: int
    start: int
    end: int


def _samples(use: Float64s, numbers: Int64s, capacity: Float64s, span: _Span, smoothing: int) -> Float64s:
    """Return samples in percent of capacity, one a minute, each the mean of so many minutes, shape (nodes, k)."""
    start, end = span.start, span.end
    if end <= start:
        return np.zeros((len(numbers), 1))
    first = max(start - smoothing + 1, span.joined)
    part = use[numbers, first:end] / capacity[:, None]
    percent: Float64s = 100 * np.minimum(part, 1.0)
    if smoothing == 1:
        return percent
    total = np.cumsum(percent, axis=1)
    total = np.concatenate([np.zeros((len(numbers), 1)), total], axis=1)
    at = np.arange(start - first, end - first) + 1
    before = np.maximum(at - smoothing, 0)
    rates: Float64s = (total[:, at] - total[:, before]) / (at - before)
    return rates
