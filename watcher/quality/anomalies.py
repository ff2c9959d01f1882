"""What is wrong with metrics as the fetches before show it, and what is done about it. No clock, no input, no output.

Values are held against the past of the shortest window, where a fault shows first; what is found there is done to all
windows. What each kind means, and what is done by default, stands in docs/quality.md.
"""

import math
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from watcher import duration
from watcher.findings import Action, Finding, Kind
from watcher.model import AVERAGES, REQUIRED, MetricType, NodeMetrics, Operator, WatcherMetrics
from watcher.quality import detectors
from watcher.quality.history import Flags, Floats, History
from watcher.settings import QualitySettings, Reaction

_AVERAGED = ("step", "smoothing")  # tags with the span that samples are averages over
_MIN_REPEATS = 20  # fetches; values that come again in fewer may be counters in coarse steps
_LONG = 3  # times the span that makes a suspicion makes it beyond doubt
_PACE_FETCHES = 5  # over so many fetches a source's clock is seen to run
_MANY = 5  # nodes, and more than half of them all, are one finding
_DONE = {Reaction.REPORT: Action.REPORTED, Reaction.MARK: Action.MARKED, Reaction.DROP: Action.DROPPED}


class AnomalyDetector:
    """Holds every fetch against the ones before.

    Attributes:
        window: the window whose past is kept.
        depth: how many fetches of it.
        history: that past.
    """

    def __init__(self, settings: QualitySettings, windows: Sequence[str], interval_seconds: float) -> None:
        self.window = min(windows, key=duration.seconds)
        self.depth = settings.history_fetches
        self._settings = settings
        self._span = duration.seconds(self.window)
        self._interval = interval_seconds
        self.history = History(settings.history_fetches, interval_seconds / 2, settings.missing_seconds)
        self._source = ""
        self._newest: deque[tuple[int, Mapping[str, float]]] = deque(maxlen=_PACE_FETCHES)
        self._in_history: list[Finding] = []

    def remember(self, metrics: WatcherMetrics) -> None:
        """Make a snapshot of the window part of the past without judging it, as after a restart."""
        if metrics.source != self._source:  # another provider's values may mean something else
            self.history.clear()
        self._source = metrics.source
        self.history.append(metrics.timestamp, metrics.data)

    def judge(
        self,
        now: int,
        snapshots: Mapping[str, WatcherMetrics],
        newest: Mapping[str, float],
        known: Iterable[Finding] = (),
    ) -> tuple[dict[str, WatcherMetrics], list[Finding]]:
        """Judge one fetch, which becomes part of the past.

        Args:
            now: when it was, unix seconds.
            snapshots: what came, by window.
            newest: node to the time of its newest sample by the source's own clock, where the provider can tell.
            known: what was found already; what was dropped for a reason is not missing.

        Returns:
            The snapshots with suspect metrics marked or dropped, as the settings say, and what was found. A window that
            nothing is left of is left out.
        """
        findings = list(self._about_windows(snapshots))
        fresh = snapshots.get(self.window)
        if fresh is not None:
            self.remember(fresh)
            explained = {finding.node for finding in known if finding.window == self.window}
            told = any("smoothing" in node.tags for node in fresh.data.values())
            self._in_history = [*self._missing(fresh, explained), *self._standing_out(smoothing_told=told)]
        nodes = {name for metrics in snapshots.values() for name in metrics.data}
        ages = list(
            self._by_age(now, {node: time for node, time in newest.items() if node in nodes and math.isfinite(time)})
        )
        judged = _act(snapshots, [*self._in_history, *ages])
        findings += _together(ages, len(nodes))
        if fresh is not None:
            findings += _together(self._in_history, len(fresh.data))
        return judged, findings

    def _about_windows(self, snapshots: Mapping[str, WatcherMetrics]) -> Iterator[Finding]:
        for window, metrics in snapshots.items():
            thin = [
                Finding(Kind.LOW_COVERAGE, f"only {coverage:.0%} of the window has samples", window, node)
                for node, found in metrics.data.items()
                if isinstance(coverage := found.metadata.get("coverage", 1.0), int | float)
                and coverage < self._settings.min_coverage
            ]
            yield from _together(thin, len(metrics.data))
            tags = {tag for node in metrics.data.values() for tag in node.tags.items() if tag[0] in _AVERAGED}
            for tag, span in sorted(tags):
                if _seconds(span) > duration.seconds(window):
                    message = f"samples are averages over {span}: deviations within {window} say little (its {tag})"
                    yield Finding(Kind.DOUBLE_SMOOTHING, message, window)

    def _by_age(self, now: int, newest: Mapping[str, float]) -> Iterator[Finding]:
        """Yield whose newest sample is old or in the future; old ones that keep coming are of a clock behind."""
        if self._newest and now <= self._newest[-1][0]:
            self._newest.clear()
        self._newest.append((now, newest))
        then, before = self._newest[0]
        settings = self._settings
        for node, time in newest.items():
            age = now - time
            if age < -settings.clock_skew_seconds:
                message = f"the newest sample is {-age:.0f} s in the future: are the clocks synchronized?"
                yield Finding(Kind.CLOCK_SKEW, message, node=node)
            elif age > settings.stale_seconds:
                if time - before.get(node, time) > (now - then) / 2:
                    message = f"samples keep coming {age:.0f} s late: is the source slow, or its clock behind?"
                    yield Finding(Kind.CLOCK_SKEW, message, node=node)
                else:
                    message = f"the newest sample is {age:.0f} s old"
                    action = _DONE[settings.stale_action]
                    yield Finding(Kind.STALE, message, node=node, action=action, since=max(0, int(time)))

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
                    yield Finding(Kind.MISSING, "the node is gone", self.window, node, since=since)
                elif node in fresh.data:
                    message = f"there is no {type_} any more"
                    yield Finding(Kind.MISSING, message, self.window, node, type_, since=since)

    def _standing_out(self, *, smoothing_told: bool) -> Iterator[Finding]:
        """Yield what the values of each metric give away."""
        history = self.history
        for (metric, operator), column in history.series.items():
            if operator not in AVERAGES:
                continue
            values: Floats = history["value"][:, column]
            if np.isnan(values).all():
                continue
            columns = [other for (name, _), other in history.series.items() if name == metric]
            type_ = history.types[column]
            yield from self._frozen(metric, type_, values, columns)
            past, times = history.before(np.array([column]))
            # Where windows do not overlap, no value has anything to do with the one before.
            related = past[:, 0] if 2 * self._interval <= self._span else past[:, 0, :0]
            ages = (history.now - times)[: related.shape[1]]
            spikes = detectors.spikes(values, related, ages, self._span, self._settings.spike_factor)
            fallen = detectors.fell_to_a_hundredth(values, related)
            ratios = type_ in REQUIRED and detectors.are_ratios(values, past[:, 0], may_idle=type_ == MetricType.CPU)
            yield from self._wrong_scale(metric, values, fallen, all_nodes=ratios)
            for node in _names(history, spikes & ~fallen):
                message = (
                    f"{operator} is {values[history.nodes[node]]:.1f}, too far from before for a window to get there"
                )
                yield Finding(Kind.SPIKE, message, self.window, node, metric, _DONE[self._settings.spike_action])
            if type_ == MetricType.CPU and operator == Operator.AVG and not smoothing_told:
                yield from self._smoothed(metric, column)

    def _frozen(self, metric: str, type_: str, values: Floats, columns: list[int]) -> Iterator[Finding]:
        history, settings = self.history, self._settings
        since = np.fmax.reduce(history["since"][:, columns], axis=1)
        rest = history.now - since
        spans = np.array([settings.frozen_seconds, settings.frozen_resting_seconds])
        spans = np.maximum(spans, _MIN_REPEATS * self._interval)
        if type_ != MetricType.CPU:
            spans[0] = spans[1]
        able = values < 100 if type_ in REQUIRED else (values < 100) & (values > 0)  # at its limits it may stay
        longest = history["longest"][:, columns].min(axis=1)
        moved = history["moved"][:, columns].max(axis=1)
        allowed = detectors.may_rest(history["value"][:, columns], moved, longest, spans)
        for node in _names(history, able & (rest >= allowed)):
            row = history.nodes[node]
            long = rest[row] >= _LONG * allowed[row]
            action = _DONE[settings.frozen_action if long else Reaction.REPORT]
            message = f"it has been {values[row]:g} to the last bit for {rest[row] / 60:.0f} min"
            yield Finding(Kind.FROZEN, message, self.window, node, metric, action, int(since[row]))

    def _wrong_scale(self, metric: str, values: Floats, fallen: Flags, *, all_nodes: bool) -> Iterator[Finding]:
        known = int((~np.isnan(values)).sum())
        if all_nodes or _is_most(int(fallen.sum()), known):
            message = "the values of all nodes look like ratios, not percents: is the query's scale right?"
            action = _DONE[self._settings.wrong_scale_action]
            yield Finding(Kind.WRONG_SCALE, message, self.window, metric=metric, action=action)
            return
        for node in _names(self.history, fallen):
            message = f"it fell to a hundredth, {values[self.history.nodes[node]]:g}: is its scale right?"
            yield Finding(Kind.WRONG_SCALE, message, self.window, node, metric)

    def _smoothed(self, metric: str, column: int) -> Iterator[Finding]:
        """Yield when a metric that does not say so is made of averages."""
        history = self.history
        deviation = history.series.get((metric, Operator.STD))
        if deviation is None:
            return
        past, times = history.before(np.array([column, deviation]))
        if len(times) < 2:
            return
        lag = round(self._span / float(np.median(np.diff(times))))
        ratio = detectors.smoothing_ratio(past[:, 0], past[:, 1], lag)
        if ratio > self._settings.smoothing_ratio:
            message = (
                f"averages differ from window to window by more than deviations within them allow, "
                f"{ratio:.1f} in squares: is the query an average over a longer span already?"
            )
            yield Finding(Kind.DOUBLE_SMOOTHING, message, self.window, metric=metric)


def _act(snapshots: Mapping[str, WatcherMetrics], findings: Iterable[Finding]) -> dict[str, WatcherMetrics]:
    """Mark and drop what the findings say. One without a node is about all, and so is one without a metric."""
    marked: dict[str, set[str]] = defaultdict(set)
    dropped: dict[str, set[str]] = defaultdict(set)
    for finding in findings:
        if finding.action is Action.MARKED:
            marked[finding.node].add(finding.kind)
        elif finding.action is Action.DROPPED:
            dropped[finding.node].add(finding.metric)
    if not marked and not dropped:
        return dict(snapshots)
    judged = {}
    for window, metrics in snapshots.items():
        data = {}
        for name, node in metrics.data.items():
            left = _without(node, dropped[""] | dropped[name] if dropped else set())
            kinds = marked[""] | marked[name]
            if left.metrics:
                data[name] = (
                    replace(left, metadata={**left.metadata, "suspect": ",".join(sorted(kinds))}) if kinds else left
                )
        if data:
            judged[window] = replace(metrics, data=data)
    return judged


def _without(node: NodeMetrics, names: set[str]) -> NodeMetrics:
    if not names:
        return node
    return replace(node, metrics=tuple(each for each in node.metrics if "" not in names and each.name not in names))


def _together(findings: Iterable[Finding], nodes: int) -> list[Finding]:
    """Make one finding of those of one kind about most nodes."""
    groups: dict[tuple[str, ...], list[Finding]] = defaultdict(list)
    for finding in findings:
        groups[finding.kind, finding.window, finding.metric, finding.action].append(finding)
    result: list[Finding] = []
    for group in groups.values():
        if _is_most(len(group), nodes):
            message = f"{len(group)} of {nodes} nodes, for one: {group[0].message}"
            since = min(finding.since for finding in group)
            result.append(replace(group[0], node="", message=message, since=since))
        else:
            result += group
    return result


def _is_most(count: int, nodes: int) -> bool:
    return count >= _MANY and 2 * count > nodes


def _names(history: History, flags: Flags) -> list[str]:
    rows = np.flatnonzero(flags)
    if not len(rows):
        return []
    names = list(history.nodes)
    return [names[row] for row in rows]


def _seconds(span: str) -> int:
    try:
        return duration.seconds(span)
    except ValueError:
        return 0
