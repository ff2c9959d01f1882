"""The past of one source, and what the values of a fetch give away when they are held against it."""

import math
from collections import defaultdict
from collections.abc import Generator, Iterator, Mapping

import numpy as np

from runtime import duration
from watcher.findings import Finding, Kind
from watcher.model import AVERAGES, REQUIRED, MetricType, NodeMetrics, Operator, WatcherMetrics
from watcher.quality import detectors
from watcher.quality.cohort import Cohort
from watcher.quality.duplicates import Duplicates
from watcher.quality.flatline import Flatlines
from watcher.quality.history import Flags, Floats, FetchHistory
from watcher.quality.reactions import DONE, is_most
from watcher.settings import QualitySettings, Reaction

_MIN_REPEATS = 20  # new samples; values that come again in fewer may be counters in coarse steps
_LONG = 3  # times the span that makes a suspicion makes it beyond doubt
_MIN_PAST = 10  # fetches without which nothing is known of a source's step
_MIN_SAMPLES = 3  # in a window, for what it shows to lie between two values that it goes between
_IDLE_SECONDS = 24 * 3600.0  # a cluster that was above 1 percent so lately may idle below it
_ENOUGH_NODES = 500  # tell what the median node is like
_STEADY = 0.8  # share of fetches that bring new values, at the nodes that move most; fewer tell of a slow source


class Past:
    """Holds every fetch of a source against the ones before.

    Attributes:
        history: the recent values.
    """

    def __init__(self, settings: QualitySettings, window: str, interval_seconds: float) -> None:
        self._settings = settings
        self._window = window
        self._span = duration.seconds(window)
        self._interval = interval_seconds
        self.history = FetchHistory(settings.history_fetches, interval_seconds / 2, settings.missing_seconds)
        self._forget()

    def _forget(self) -> None:
        self._cohorts: dict[str, Cohort] = defaultdict(Cohort)
        self._flatlines: dict[str, Flatlines] = defaultdict(Flatlines)
        self._duplicates: dict[str, Duplicates] = defaultdict(Duplicates)
        self._ratios: dict[str, float] = defaultdict(float)
        self._percents: dict[str, float] = defaultdict(lambda: -math.inf)  # when any node was above 1 last

    def remember(self, now: float, nodes: Mapping[str, NodeMetrics]) -> None:
        """Make a fetch part of the recent values without judging it; one that is not later begins a new past."""
        if now <= self.history.now:
            self._forget()
        self.history.append(now, nodes)

    def judge(self, fresh: WatcherMetrics, explained: set[str]) -> list[Finding]:
        """Return what is wrong with a fetch, which becomes part of the past.

        Args:
            fresh: the window that this is the past of.
            explained: nodes of which something was dropped for a reason; that is not missing.
        """
        self.remember(fresh.timestamp, fresh.data)
        told = any("smoothing" in node.tags for node in fresh.data.values())
        return [*self._missing(fresh, explained), *self._standing_out(smoothing_told=told)]

    def _missing(self, fresh: WatcherMetrics, explained: set[str]) -> Iterator[Finding]:
        history = self.history
        present = ~np.isnan(history["value"])
        for type_ in ("", *REQUIRED):
            columns = [
                column
                for (_, operator), column in history.series.items()
                if not type_ or (operator in AVERAGES and history.types[column] == type_)
            ]
            seen = np.fmax.reduce(history["seen"][:, columns], axis=1, initial=0)
            gone = ~present[:, columns].any(axis=1) & (seen > 0)
            for node in _names(history, gone):
                since = int(seen[history.nodes[node]])
                if node in explained:
                    continue
                if not type_:
                    yield Finding(Kind.MISSING, "the node is gone", self._window, node, since=since)
                elif node in fresh.data:
                    message = f"there is no {type_} any more"
                    yield Finding(Kind.MISSING, message, self._window, node, type_, since=since)

    def _standing_out(self, *, smoothing_told: bool) -> Iterator[Finding]:
        """Yield what the values of each metric give away."""
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
            fallen = yield from self._wrong_scale(metric, type_, values, recent, ages, step)
            yield from self._spikes(metric, operator, values, recent, ages, step=step, but=fallen)
            if operator != Operator.AVG:
                continue
            if type_ == MetricType.CPU:
                yield from self._unlikely(metric, values, but=fallen)
                yield from self._lifeless(metric, values, recent, columns, but=frozen)
                yield from self._twins(metric, column)
                if not smoothing_told:
                    yield from self._smoothed(metric, recent, times, step)

    def _step_seconds(self) -> float:
        """Return how far the source's samples are apart where that is longer than an interval, else 0."""
        moving = self.history.moving()
        if not len(moving):
            return 0.0
        share = float(np.quantile(moving, 0.9))
        return 0.0 if share >= _STEADY else min(self._interval / max(share, 1e-3), float(self._span))

    def _frozen(
        self, metric: str, type_: str, values: Floats, columns: list[int], step: float
    ) -> Generator[Finding, None, Flags]:
        """Yield what stands still, and return where."""
        history, settings = self.history, self._settings
        since = np.fmax.reduce(history["since"][:, columns], axis=1)
        rest = history.now - since
        pace = max(step, self._interval)
        # As many samples as a source has that brings new ones with every fetch.
        spans = np.array([settings.frozen_seconds, settings.frozen_resting_seconds]) * pace / self._interval
        spans = np.maximum(spans, _MIN_REPEATS * pace)
        if type_ != MetricType.CPU:
            spans[0] = spans[1]
        # At its limits it may stay, but for what is never at 0 while the node lives.
        alive = self._alive(columns) if type_ == MetricType.CPU else np.full(len(values), type_ in REQUIRED)
        able = (values < 100) & ((values > 0) | alive)
        longest = history["longest"][:, columns]
        # A deviation that is always 0, as of windows with one sample, says nothing about how long a node may rest.
        longest = np.where(longest > 0, longest, np.inf).min(axis=1)
        longest[np.isinf(longest)] = 0
        moved = history["moved"][:, columns].max(axis=1) * pace / self._interval
        allowed = detectors.may_rest(history["value"][:, columns], moved, longest, spans)
        found: Flags = able & (rest >= allowed)
        for node in _names(history, found):
            row = history.nodes[node]
            long = rest[row] >= _LONG * allowed[row]
            action = DONE[settings.frozen_action if long else Reaction.REPORT]
            message = f"it has been {values[row]:g} to the last bit for {rest[row] / 60:.0f} min"
            yield Finding(Kind.FROZEN, message, self._window, node, metric, action, int(since[row]))
        return found

    def _alive(self, columns: list[int]) -> Flags:
        """Return which nodes have other metrics that are not 0."""
        others = np.delete(self.history["value"], columns, axis=1)
        with np.errstate(invalid="ignore"):
            found: Flags = np.logical_or.reduce(others > 0, axis=1)
        return found

    def _wrong_scale(
        self, metric: str, type_: str, values: Floats, recent: Floats, ages: Floats, step: float
    ) -> Generator[Finding, None, Flags]:
        """Yield what is another unit, and return which nodes alone are."""
        # Where windows hold few samples they jump as loads do.
        overlapping = recent if _MIN_SAMPLES * step <= self._span else recent[:, :0]
        fallen = detectors.fell_to_a_hundredth(values, overlapping)
        now = self.history.now
        if np.fmax.reduce(values) > 1:
            self._percents[metric] = now
        known = recent if now - self._percents[metric] > _IDLE_SECONDS else recent[:, :0]
        ratios = type_ in REQUIRED and detectors.are_ratios(values, known, may_idle=type_ == MetricType.CPU)
        before = recent[:, ages > self._span + self._interval]
        factor = detectors.common_factor(values, before) if type_ in REQUIRED else math.nan
        action = DONE[self._settings.wrong_scale_action]
        if ratios or is_most(int(fallen.sum()), int((~np.isnan(values)).sum())):
            message = "the values of all nodes look like ratios, not percents: is the query's scale right?"
            yield Finding(Kind.WRONG_SCALE, message, self._window, metric=metric, action=action)
        elif not math.isnan(factor):
            message = f"the values of all nodes became {factor:.3g} times what they were: is the query's scale right?"
            yield Finding(Kind.WRONG_SCALE, message, self._window, metric=metric, action=action)
        else:
            for node in _names(self.history, fallen):
                message = f"it fell to a hundredth, {values[self.history.nodes[node]]:g}: is its scale right?"
                yield Finding(Kind.WRONG_SCALE, message, self._window, node, metric)
        return fallen

    def _spikes(
        self, metric: str, operator: str, values: Floats, recent: Floats, ages: Floats, *, step: float, but: Flags
    ) -> Iterator[Finding]:
        action = DONE[self._settings.spike_action]
        found = detectors.spikes(values, recent, ages + step, self._span, self._settings.spike_factor)
        for node in _names(self.history, found & ~but):
            value = values[self.history.nodes[node]]
            message = f"{operator} is {value:.1f}, too far from before for a window to get there"
            yield Finding(Kind.SPIKE, message, self._window, node, metric, action)

    def _unlikely(self, metric: str, values: Floats, *, but: Flags) -> Iterator[Finding]:
        """Yield which nodes left what they used to move with."""
        history, action = self.history, DONE[self._settings.anomaly_action]
        found = self._cohorts[metric].judge(history.now, list(history.nodes), values)
        for kind, flags in ((Kind.CHANGEPOINT, found.sudden & ~but), (Kind.DRIFT, found.slow & ~but)):
            for node in _names(history, flags & ~np.isnan(values)):
                row = history.nodes[node]
                share = values[row] / max(found.expected[row], 1e-9)
                message = (
                    f"it is {values[row]:.1f}, {share:.2g} times the {found.expected[row]:.0f} that its own past and "
                    "the other nodes make likely: did its load end, or is its source wrong?"
                )
                yield Finding(kind, message, self._window, node, metric, action, int(found.since[row]))

    def _lifeless(
        self, metric: str, values: Floats, recent: Floats, columns: list[int], *, but: Flags
    ) -> Iterator[Finding]:
        """Yield CPU that is 0 or moves no more."""
        history, action = self.history, DONE[self._settings.flatline_action]
        flat = self._flatlines[metric].judge(history.now, list(history.nodes), values, recent, self._alive(columns))
        for since, message in (
            (flat.zero, "it is exactly 0 and never was: is it still measured?"),
            (flat.still, "its level moves far less than it ever did: is it an average since the boot?"),
        ):
            for node in _names(history, ~np.isnan(since) & ~but):
                began = int(since[history.nodes[node]])
                yield Finding(Kind.FLATLINE, message, self._window, node, metric, action, began)

    def _twins(self, metric: str, column: int) -> Iterator[Finding]:
        """Yield nodes that report the same series."""
        history = self.history
        deviation = history.series.get((metric, Operator.STD))
        values = history["value"][:, [column, column if deviation is None else deviation]]
        names = list(history.nodes)
        action = DONE[self._settings.duplicate_node_action]
        for one, other, since in self._duplicates[metric].judge(history.now, names, np.nan_to_num(values)):
            for node, twin in ((one, other), (other, one)):
                message = f"it has the very values of {names[twin]}: does one report the other's?"
                yield Finding(Kind.DUPLICATE_NODE, message, self._window, names[node], metric, action, int(since))

    def _smoothed(self, metric: str, recent: Floats, times: Floats, step: float) -> Iterator[Finding]:
        """Yield when a metric that does not say so is made of averages."""
        history = self.history
        deviation = history.series.get((metric, Operator.STD))
        if deviation is None or len(times) < 2:
            return
        lag = round(self._span / float(np.median(np.diff(times))))
        some = slice(None, None, 1 + len(recent) // _ENOUGH_NODES)
        ratio = detectors.smoothing_ratio(recent[some], history.before(deviation)[0][some], lag)
        if not math.isnan(ratio):  # of this hour; the mean of the last ones tells more
            self._ratios[metric] += (ratio - self._ratios[metric]) / history.times.size
        ratio = self._ratios[metric]
        limit = self._settings.smoothing_ratio * detectors.walk_correction(self._span / (step or self._interval))
        if ratio > limit:
            message = (
                f"averages differ from window to window by more than deviations within them allow, "
                f"{ratio:.1f} in squares: is the query an average over a longer span already?"
            )
            yield Finding(Kind.DOUBLE_SMOOTHING, message, self._window, metric=metric)


def _names(history: FetchHistory, flags: Flags) -> list[str]:
    rows = np.flatnonzero(flags)
    if not len(rows):
        return []
    names = list(history.nodes)
    return [names[row] for row in rows]
