"""Checks of a fetch against earlier fetches and a second source, without access to the clock, files or the network.

Only one window's values are compared with earlier ones: those of the shortest window that overlaps from fetch to fetch,
because a fault shows there first. Actions on findings are applied to all windows. docs/quality.md describes each kind
of finding and its default action.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from runtime import duration
from watcher.findings import Action, Finding, Kind
from watcher.model import AVERAGES, REQUIRED, NodeMetrics, WatcherMetrics
from watcher.quality.corroboration import Corroboration
from watcher.quality.history import Floats, group_by_series
from watcher.quality.judged_window import judged_window
from watcher.quality.reactions import mark_suspects, merge_common
from watcher.quality.source_anomalies import SourceAnomalyDetector
from watcher.quality.staleness import Staleness
from watcher.settings import QualitySettings

_SPAN_TAGS = ("step", "smoothing")  # tags with the time span that samples are averages over
_MOST_SOURCES = 4  # sources with a history; more can only come from a faulty provider


class AnomalyDetector:
    """Detector that compares every fetch with earlier fetches, and with a second source if one is configured.

    Attributes:
        window: the window whose values are compared, such as ``5m``.
        depth: the number of fetches in the history.
    """

    def __init__(self, settings: QualitySettings, windows: Sequence[str], interval_seconds: float) -> None:
        self.window = judged_window(windows, interval_seconds)
        self.depth = settings.history_fetches
        self._settings = settings
        self._interval = interval_seconds
        # One for each source, as another provider's values may have another meaning.
        self._detectors: dict[str, SourceAnomalyDetector] = {}
        # Key: source, metric, operator and the second source's metric.
        self._corroborations: dict[tuple[str, ...], Corroboration] = {}
        self._staleness = Staleness(settings)
        self._history_findings: list[Finding] = []

    def remember(self, metrics: WatcherMetrics) -> None:
        """Add a snapshot to the history without checking it, such as a stored snapshot after a restart."""
        self._detector(metrics.source).remember(metrics.timestamp, metrics.data)

    def judge(
        self,
        now: int,
        snapshots: Mapping[str, WatcherMetrics],
        newest: Mapping[str, float],
        known_findings: Iterable[Finding] = (),
        second_source: Mapping[str, NodeMetrics] | None = None,
    ) -> tuple[dict[str, WatcherMetrics], list[Finding]]:
        """Check one fetch for anomalies and add it to the history.

        Args:
            now: time of the fetch, Unix seconds.
            snapshots: the fetched snapshots by window.
            newest: node name to the time of its newest sample by the source's own clock, where known.
            known_findings: findings of earlier checks of this fetch. Nodes in them are not reported as missing, because
                an earlier check may have dropped their metrics.
            second_source: metrics of a second source over :attr:`window`, by node name.

        Returns:
            The snapshots by window with suspect nodes marked, and the findings.
        """
        findings = list(self._window_findings(snapshots))
        snapshot = snapshots.get(self.window)
        if snapshot is not None:
            explained = {finding.node for finding in known_findings if finding.window == self.window}
            self._history_findings = self._detector(snapshot.source).judge(snapshot, explained)
            if second_source:
                self._history_findings += self._disagreements(snapshot, second_source)
        nodes = {name for metrics in snapshots.values() for name in metrics.data}
        ages = list(
            self._staleness.judge(
                now, {node: time for node, time in newest.items() if node in nodes and math.isfinite(time)}
            )
        )
        judged = mark_suspects(snapshots, [*self._history_findings, *ages])
        findings += merge_common(ages, len(nodes))
        if snapshot is not None:
            findings += merge_common(self._history_findings, len(snapshot.data))
        return judged, findings

    def size_bytes(self) -> int:
        """Return the memory that the histories of all sources take, in bytes."""
        return sum(detector.history.size_bytes for detector in self._detectors.values())

    def _detector(self, source: str) -> SourceAnomalyDetector:
        """Return the detector of a source; of more than 4 sources' detectors, drop the least recently used."""
        detector = self._detectors.pop(source, None) or SourceAnomalyDetector(
            self._settings, self.window, self._interval
        )
        self._detectors[source] = detector
        if len(self._detectors) > _MOST_SOURCES:
            del self._detectors[next(iter(self._detectors))]
        return detector

    def _disagreements(self, snapshot: WatcherMetrics, second_source: Mapping[str, NodeMetrics]) -> Iterator[Finding]:
        """Yield a finding for each node and metric for which the second source contradicts the snapshot's values."""
        history = self._detector(snapshot.source).history  # already includes this fetch
        names = [name for name in snapshot.data if name in second_source]
        rows = [history.nodes[name] for name in names]
        their_levels = _levels(second_source, names)
        for (metric, operator), column in history.series.items():
            type_, values = history.types[column], history["value"][rows, column]
            if operator in AVERAGES and type_ in REQUIRED and not np.isnan(values).all():
                for their_metric, their_values in their_levels[type_].items():
                    key = (snapshot.source, metric, operator, their_metric)
                    corroboration = self._corroborations.setdefault(
                        key, Corroboration(self._settings.disagreement_percent)
                    )
                    result = corroboration.judge(snapshot.timestamp, names, values, their_values)
                    # If more than half of the nodes disagree, the second source is as likely to be wrong.
                    most_disagree = 2 * result.found.sum() > len(names)
                    action = Action.REPORTED if most_disagree else self._settings.disagreement_action
                    for row in np.flatnonzero(result.found):
                        message = (
                            f"{type_} is {values[row]:.1f}, but a second source suggests {result.expected[row]:.1f} "
                            f"({their_metric} {their_values[row]:.1f})"
                        )
                        yield Finding(Kind.DISAGREEMENT, message, self.window, names[row], metric, action,
                                      int(result.since[row]))  # fmt: skip

    def _window_findings(self, snapshots: Mapping[str, WatcherMetrics]) -> Iterator[Finding]:
        for window, metrics in snapshots.items():
            low_coverage = [
                Finding(Kind.LOW_COVERAGE, f"only {coverage:.0%} of the window has samples", window, node)
                for node, node_metrics in metrics.data.items()
                if node_metrics.metadata
                and isinstance(coverage := node_metrics.metadata.get("coverage", 1.0), int | float)
                and coverage < self._settings.min_coverage
            ]
            yield from merge_common(low_coverage, len(metrics.data))
            tags = {
                tag for node in metrics.data.values() if node.tags for tag in node.tags.items() if tag[0] in _SPAN_TAGS
            }
            for tag, span in sorted(tags):
                if _seconds(span) > duration.seconds(window):
                    message = f"samples are averages over {span} ({tag}): deviations within {window} are too low"
                    yield Finding(Kind.DOUBLE_SMOOTHING, message, window)


def _levels(data: Mapping[str, NodeMetrics], names: Sequence[str]) -> dict[str, dict[str, Floats]]:
    """Return the nodes' averages by resource and metric name: percent, shape (nodes,); NaN for a missing value."""
    levels: dict[str, dict[str, Floats]] = {type_: {} for type_ in REQUIRED}
    row_of = {name: row for row, name in enumerate(names)}
    for series, (group, values) in group_by_series({name: data[name] for name in names}).items():
        rows = [row_of[name] for name in group]
        for column, (metric, operator, type_) in enumerate(series):
            if operator in AVERAGES and type_ in levels:
                metric_levels = levels[type_].setdefault(metric, np.full(len(names), np.nan))
                metric_levels[rows] = values[column :: len(series)]
    return levels


def _seconds(span: str) -> int:
    try:
        return duration.seconds(span)
    except ValueError:
        return 0
