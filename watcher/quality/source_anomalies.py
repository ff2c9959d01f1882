"""Detector of anomalies in one source's metrics, by comparing each fetch with the source's earlier fetches."""

import math
from collections import defaultdict
from collections.abc import Generator, Iterator, Mapping

import numpy as np

from runtime import duration
from watcher.findings import Action, Finding, Kind
from watcher.model import AVERAGES, REQUIRED, MetricType, NodeMetrics, Operator, WatcherMetrics
from watcher.quality import detectors
from watcher.quality.cohort import Cohort
from watcher.quality.duplicates import Duplicates
from watcher.quality.flatline import Flatlines
from watcher.quality.history import FetchHistory, Flags, Floats
from watcher.quality.reactions import is_most
from watcher.settings import QualitySettings

_MIN_REPEATS = 20  # minimum number of new samples; values repeated less often may be counters in coarse steps
_LONG = 3  # a value that is frozen for this multiple of the allowed time is marked, too
_MIN_SAMPLES = 3  # with fewer samples in a window its average may jump without a fault
_IDLE_SECONDS = 24 * 3600.0  # a cluster that was above 1 percent in this time may be idle
_ENOUGH_NODES = 500  # sample size for the median node
_STEADY = 0.8  # minimum share of fetches with new values; a lower share means that the source's step is longer

#: Sources whose values no query computes: their scale is right, and a load that ends only looks like another scale.
_WITHOUT_QUERIES = frozenset({"Host", "Kubelet", "KubernetesMetricsServer"})


class SourceAnomalyDetector:
    """Detector that compares every fetch from one source with earlier fetches from the same source.

    Attributes:
        history: the recent values of all nodes over the detector's window.
    """

    def __init__(self, settings: QualitySettings, window: str, interval_seconds: float) -> None:
        self._settings = settings
        self._window = window
        self._span = duration.seconds(window)
        self._interval = interval_seconds
        self.history = FetchHistory(settings.history_fetches, interval_seconds / 2, settings.missing_seconds)
        self._clear()

    def _clear(self) -> None:
        self._cohorts: dict[str, Cohort] = defaultdict(Cohort)
        self._flatlines: dict[str, Flatlines] = defaultdict(Flatlines)
        self._duplicates: dict[str, Duplicates] = defaultdict(Duplicates)
        self._ratios: dict[str, float] = defaultdict(float)
        self._percents: dict[str, float] = defaultdict(lambda: -math.inf)  # last time that any node was above 1 percent

    def remember(self, now: float, nodes: Mapping[str, NodeMetrics]) -> None:
        """Add a fetch to the history without checking it.

        A fetch that is not later than the last one starts a new history, because the clock was set back.

        Args:
            now: time of the fetch, Unix seconds.
            nodes: node name to metrics.
        """
        if now <= self.history.now:
            self._clear()
        self.history.append(now, nodes)

    def judge(self, snapshot: WatcherMetrics, explained: set[str]) -> list[Finding]:
        """Add a fetch to the history, and return the findings about the fetch.

        Args:
            snapshot: the fetched snapshot of the detector's window.
            explained: nodes for which earlier checks have findings; missing metrics of these nodes are not reported.
        """
        self.remember(snapshot.timestamp, snapshot.data)
        has_smoothing_tag = any("smoothing" in node.tags for node in snapshot.data.values())
        values = self._value_anomalies(
            is_smoothing_known=has_smoothing_tag, has_query=snapshot.source not in _WITHOUT_QUERIES
        )
        return [*self._missing(snapshot, explained), *values]

    def _missing(self, snapshot: WatcherMetrics, explained: set[str]) -> Iterator[Finding]:
        history = self.history
        present = ~np.isnan(history["value"])
        for type_ in ("", *REQUIRED):
            columns = [
                column
                for (_, operator), column in history.series.items()
                if not type_ or (operator in AVERAGES and history.types[column] == type_)
            ]
            # A node without any value is missing; a node without an average of CPU or Memory lacks this resource.
            seen = np.fmax.reduce(history["seen"][:, columns], axis=1, initial=0)
            missing = ~present[:, columns].any(axis=1) & (seen > 0)
            for node in _names(history, missing):
                since = int(seen[history.nodes[node]])
                if node in explained:
                    continue
                if not type_:
                    yield Finding(Kind.MISSING, "the node is missing", self._window, node, since=since)
                elif node in snapshot.data:
                    message = f"the {type_} metric is missing"
                    yield Finding(Kind.MISSING, message, self._window, node, type_, since=since)

    def _value_anomalies(self, *, is_smoothing_known: bool, has_query: bool) -> Iterator[Finding]:
        """Yield the findings about the values of each metric.

        Args:
            is_smoothing_known: whether tags say over how long the source averages.
            has_query: whether a query of the source computes the values, so that their scale may be wrong.
        """
        history = self.history
        step = self._step_seconds()
        for (metric, operator), column in history.series.items():
            values: Floats = history["value"][:, column]
            if operator not in AVERAGES or np.isnan(values).all():
                continue
            columns = [other for (name, _), other in history.series.items() if name == metric]
            type_ = history.types[column]
            recent, times = history.before(column)
            ages = history.now - times
            frozen = yield from self._frozen(metric, type_, values, columns, step)
            fallen = np.zeros(len(values), np.bool_)
            if has_query:
                fallen = yield from self._wrong_scale(metric, type_, values, recent, ages, step)
            yield from self._spikes(metric, operator, values, recent, ages, step=step, excluded=fallen)
            if operator != Operator.AVG:
                continue
            if type_ == MetricType.CPU:
                yield from self._deficits(metric, values, excluded=fallen)
                yield from self._flatlines_found(metric, values, recent, columns, excluded=frozen)
                yield from self._duplicate_nodes(metric, column)
                if not is_smoothing_known:
                    yield from self._double_smoothing(metric, recent, times, step)

    def _step_seconds(self) -> float:
        """Return the estimated seconds between a source's samples if longer than a fetch interval; 0 otherwise."""
        moving = self.history.moving()
        if not len(moving):
            return 0.0
        share = float(np.quantile(moving, 0.9))
        return 0.0 if share >= _STEADY else min(self._interval / max(share, 1e-3), float(self._span))

    def _frozen(
        self, metric: str, type_: str, values: Floats, columns: list[int], step: float
    ) -> Generator[Finding, None, Flags]:
        """Yield findings about values that have stayed constant for too long; return a mask of the affected nodes."""
        history, settings = self.history, self._settings
        since = np.fmax.reduce(history["since"][:, columns], axis=1)
        rest = history.now - since
        pace = max(step, self._interval)
        # Scale the settings to the source's pace: they assume new samples with every fetch.
        spans = np.array([settings.frozen_seconds, settings.frozen_resting_seconds]) * pace / self._interval
        spans = np.maximum(spans, _MIN_REPEATS * pace)
        if type_ != MetricType.CPU:
            spans[0] = spans[1]
        # A value may stay at 0 or 100 percent, except for a 0 that is impossible on a live node.
        alive = (
            self._other_metrics_alive(columns) if type_ == MetricType.CPU else np.full(len(values), type_ in REQUIRED)
        )
        may_change = (values < 100) & ((values > 0) | alive)
        longest = history["longest"][:, columns]
        # Ignore a deviation that is always 0, as in windows with one sample.
        longest = np.where(longest > 0, longest, np.inf).min(axis=1)
        longest[np.isinf(longest)] = 0
        moved = history["moved"][:, columns].max(axis=1) * pace / self._interval
        allowed = detectors.may_rest(history["value"][:, columns], moved, longest, spans)
        flags: Flags = may_change & (rest >= allowed)
        for node in _names(history, flags):
            row = history.nodes[node]
            long = rest[row] >= _LONG * allowed[row]
            action = settings.frozen_action if long else Action.REPORTED
            message = f"the value has been exactly {values[row]:g} for {rest[row] / 60:.0f} min"
            yield Finding(Kind.FROZEN, message, self._window, node, metric, action, int(since[row]))
        return flags

    def _other_metrics_alive(self, columns: list[int]) -> Flags:
        """Return a mask of the nodes that have a value above 0 in any column but the given ones, shape (nodes,)."""
        others = np.delete(self.history["value"], columns, axis=1)
        with np.errstate(invalid="ignore"):
            flags: Flags = np.logical_or.reduce(others > 0, axis=1)
        return flags

    def _wrong_scale(
        self, metric: str, type_: str, values: Floats, recent: Floats, ages: Floats, step: float
    ) -> Generator[Finding, None, Flags]:
        """Yield findings about values that look like ratios, or have changed their unit.

        Returns:
            A mask of the nodes whose value fell to a hundredth, shape (nodes,).
        """
        # Windows with few samples jump like the load itself, so a fall to a hundredth proves nothing.
        overlapping = recent if _MIN_SAMPLES * step <= self._span else recent[:, :0]
        fallen = detectors.fell_to_a_hundredth(values, overlapping)
        # Values of at most 1 at all nodes are ratios, unless some node was above 1 lately: then the cluster idles.
        now = self.history.now
        if np.fmax.reduce(values) > 1:
            self._percents[metric] = now
        past_values = recent if now - self._percents[metric] > _IDLE_SECONDS else recent[:, :0]
        ratios = type_ in REQUIRED and detectors.are_ratios(values, past_values, may_idle=type_ == MetricType.CPU)
        # A common factor only shows against windows that do not overlap with this one.
        before = recent[:, ages > self._span + self._interval]
        factor = detectors.common_factor(values, before) if type_ in REQUIRED else math.nan
        action = self._settings.wrong_scale_action
        if ratios or is_most(int(fallen.sum()), int((~np.isnan(values)).sum())):
            message = "the values of all nodes look like ratios, not percents: is the query's scale right?"
            yield Finding(Kind.WRONG_SCALE, message, self._window, metric=metric, action=action)
        elif not math.isnan(factor):
            message = f"the values of all nodes changed by the factor {factor:.3g}: is the query's scale right?"
            yield Finding(Kind.WRONG_SCALE, message, self._window, metric=metric, action=action)
        else:
            for node in _names(self.history, fallen):
                value = values[self.history.nodes[node]]
                message = f"the value fell to a hundredth, {value:g}: is the scale of this node's source right?"
                yield Finding(Kind.WRONG_SCALE, message, self._window, node, metric)
        return fallen

    def _spikes(
        self, metric: str, operator: str, values: Floats, recent: Floats, ages: Floats, *, step: float, excluded: Flags
    ) -> Iterator[Finding]:
        action = self._settings.spike_action
        flags = detectors.spikes(values, recent, ages + step, self._span, self._settings.spike_factor)
        for node in _names(self.history, flags & ~excluded):
            value = values[self.history.nodes[node]]
            message = f"{operator} is {value:.1f}: no load can move the window's average this far this fast"
            yield Finding(Kind.SPIKE, message, self._window, node, metric, action)

    def _deficits(self, metric: str, values: Floats, *, excluded: Flags) -> Iterator[Finding]:
        """Yield findings about nodes whose load fell far below the prediction from their past and the other nodes."""
        history, action = self.history, self._settings.anomaly_action
        deficits = self._cohorts[metric].judge(history.now, list(history.nodes), values)
        for kind, flags in ((Kind.CHANGEPOINT, deficits.sudden & ~excluded), (Kind.DRIFT, deficits.slow & ~excluded)):
            for node in _names(history, flags & ~np.isnan(values)):
                row = history.nodes[node]
                share = values[row] / max(deficits.expected[row], 1e-9)
                message = (
                    f"the value is {values[row]:.1f}, {share:.2g} times the {deficits.expected[row]:.0f} that its past "
                    "and the other nodes suggest: did the load end, or is the source wrong?"
                )
                yield Finding(kind, message, self._window, node, metric, action, int(deficits.since[row]))

    def _flatlines_found(
        self, metric: str, values: Floats, recent: Floats, columns: list[int], *, excluded: Flags
    ) -> Iterator[Finding]:
        """Yield findings about CPU loads that are exactly 0 or vary much less than before."""
        history, action = self.history, self._settings.flatline_action
        flat = self._flatlines[metric].judge(
            history.now, list(history.nodes), values, recent, self._other_metrics_alive(columns)
        )
        for since, message in (
            (flat.zero, "the value is exactly 0, for the first time: is it still measured?"),
            (flat.still, "the value moves much less than ever before: is it an average since boot?"),
        ):
            for node in _names(history, ~np.isnan(since) & ~excluded):
                began = int(since[history.nodes[node]])
                yield Finding(Kind.FLATLINE, message, self._window, node, metric, action, began)

    def _duplicate_nodes(self, metric: str, column: int) -> Iterator[Finding]:
        """Yield two findings, one for each node, for every pair of nodes that report the same series."""
        history = self.history
        deviation = history.series.get((metric, Operator.STD))
        values = history["value"][:, [column, column if deviation is None else deviation]]
        names = list(history.nodes)
        action = self._settings.duplicate_node_action
        for first, second, since in self._duplicates[metric].judge(history.now, names, np.nan_to_num(values)):
            for node, twin in ((first, second), (second, first)):
                message = f"the values are exactly those of {names[twin]}: does one node report the other's metrics?"
                yield Finding(Kind.DUPLICATE_NODE, message, self._window, names[node], metric, action, int(since))

    def _double_smoothing(self, metric: str, recent: Floats, times: Floats, step: float) -> Iterator[Finding]:
        """Yield a finding if the source's samples seem to be averages already, although no tag says so."""
        history = self.history
        deviation = history.series.get((metric, Operator.STD))
        if deviation is None or len(times) < 2:
            return
        lag = round(self._span / float(np.median(np.diff(times))))
        sampled = slice(None, None, 1 + len(recent) // _ENOUGH_NODES)
        ratio = detectors.smoothing_ratio(recent[sampled], history.before(deviation)[0][sampled], lag)
        if not math.isnan(ratio):  # average over several fetches, as one ratio is noisy
            self._ratios[metric] += (ratio - self._ratios[metric]) / history.times.size
        ratio = self._ratios[metric]
        limit = self._settings.smoothing_ratio * detectors.walk_correction(self._span / (step or self._interval))
        if ratio > limit:
            message = (
                f"averages vary more from window to window than the deviations within windows allow (ratio of squares "
                f"{ratio:.1f}): is the query already an average over a longer time?"
            )
            yield Finding(Kind.DOUBLE_SMOOTHING, message, self._window, metric=metric)


def _names(history: FetchHistory, flags: Flags) -> list[str]:
    rows = np.flatnonzero(flags)
    if not len(rows):
        return []
    names = list(history.nodes)
    return [names[row] for row in rows]
