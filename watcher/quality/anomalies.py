"""What is wrong with metrics as the fetches before show it, and what is done about it. No clock, no input, no output.

Values are held against the past of one window, the shortest that overlaps from fetch to fetch, where a fault shows
first; what is found there is done to all windows. What each kind means, and what is done by default, stands in
docs/quality.md.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from runtime import duration
from watcher.findings import Finding, Kind
from watcher.model import AVERAGES, REQUIRED, NodeMetrics, WatcherMetrics
from watcher.quality.corroboration import Corroboration
from watcher.quality.history import Floats, alike
from watcher.quality.judged_window import judged_window
from watcher.quality.past import Past
from watcher.quality.reactions import DONE, act, together
from watcher.quality.staleness import Staleness
from watcher.settings import QualitySettings, Reaction

_AVERAGED = ("step", "smoothing")  # tags with the span that samples are averages over
_MOST_SOURCES = 4  # with a past of their own; more are providers gone mad


class AnomalyDetector:
    """Holds every fetch against the ones before, and against a second source where there is one.

    Attributes:
        window: the window whose past is kept.
        depth: how many fetches of it.
    """

    def __init__(self, settings: QualitySettings, windows: Sequence[str], interval_seconds: float) -> None:
        self.window = judged_window(windows, interval_seconds)
        self.depth = settings.history_fetches
        self._settings = settings
        self._interval = interval_seconds
        self._pasts: dict[str, Past] = {}  # by source: another provider's values may mean something else
        self._against: dict[tuple[str, ...], Corroboration] = {}  # by source, metric, operator and the other's metric
        self._staleness = Staleness(settings)
        self._in_history: list[Finding] = []

    def remember(self, metrics: WatcherMetrics) -> None:
        """Make a snapshot of the window part of the past without judging it, as after a restart."""
        self._past(metrics.source).remember(metrics.timestamp, metrics.data)

    def judge(
        self,
        now: int,
        snapshots: Mapping[str, WatcherMetrics],
        newest: Mapping[str, float],
        known: Iterable[Finding] = (),
        beside: Mapping[str, NodeMetrics] | None = None,
    ) -> tuple[dict[str, WatcherMetrics], list[Finding]]:
        """Judge one fetch, which becomes part of the past.

        Args:
            now: when it was, unix seconds.
            snapshots: what came, by window.
            newest: node to the time of its newest sample by the source's own clock, where the provider can tell.
            known: what was found already; what was dropped for a reason is not missing.
            beside: what a second source says of the nodes, over :attr:`window`.

        Returns:
            The snapshots with suspect metrics marked or dropped, as the settings say, and what was found. A window that
            nothing is left of is left out.
        """
        findings = list(self._about_windows(snapshots))
        fresh = snapshots.get(self.window)
        if fresh is not None:
            explained = {finding.node for finding in known if finding.window == self.window}
            self._in_history = self._past(fresh.source).judge(fresh, explained)
            if beside:
                self._in_history += self._contradicted(fresh, beside)
        nodes = {name for metrics in snapshots.values() for name in metrics.data}
        ages = list(
            self._staleness.judge(
                now, {node: time for node, time in newest.items() if node in nodes and math.isfinite(time)}
            )
        )
        judged = act(snapshots, [*self._in_history, *ages])
        findings += together(ages, len(nodes))
        if fresh is not None:
            findings += together(self._in_history, len(fresh.data))
        return judged, findings

    def size_bytes(self) -> int:
        """Return the memory that recent values take."""
        return sum(past.history.size_bytes for past in self._pasts.values())

    def _past(self, source: str) -> Past:
        """Return a source's past; of too many sources that have been gone for longest is forgotten."""
        past = self._pasts.pop(source, None) or Past(self._settings, self.window, self._interval)
        self._pasts[source] = past
        if len(self._pasts) > _MOST_SOURCES:
            del self._pasts[next(iter(self._pasts))]
        return past

    def _contradicted(self, fresh: WatcherMetrics, beside: Mapping[str, NodeMetrics]) -> Iterator[Finding]:
        """Yield where a second source says otherwise."""
        history = self._past(fresh.source).history  # which has the fetch already
        names = [name for name in fresh.data if name in beside]
        rows = [history.nodes[name] for name in names]
        theirs = _levels(beside, names)
        for (metric, operator), column in history.series.items():
            type_, values = history.types[column], history["value"][rows, column]
            if operator in AVERAGES and type_ in REQUIRED and not np.isnan(values).all():
                for other, others in theirs[type_].items():
                    key = (fresh.source, metric, operator, other)
                    against = self._against.setdefault(key, Corroboration(self._settings.disagreement_percent))
                    found = against.judge(fresh.timestamp, names, values, others)
                    # More than half of them, and it is as likely that the second source is wrong.
                    all_ = 2 * found.found.sum() > len(names)
                    action = DONE[Reaction.REPORT if all_ else self._settings.disagreement_action]
                    for row in np.flatnonzero(found.found):
                        message = (
                            f"{type_} is {values[row]:.1f}, but {found.usual[row]:.1f} by what a second source says "
                            f"({other} {others[row]:.1f})"
                        )
                        yield Finding(Kind.DISAGREEMENT, message, self.window, names[row], metric, action,
                                      int(found.since[row]))  # fmt: skip

    def _about_windows(self, snapshots: Mapping[str, WatcherMetrics]) -> Iterator[Finding]:
        for window, metrics in snapshots.items():
            thin = [
                Finding(Kind.LOW_COVERAGE, f"only {coverage:.0%} of the window has samples", window, node)
                for node, found in metrics.data.items()
                if found.metadata
                and isinstance(coverage := found.metadata.get("coverage", 1.0), int | float)
                and coverage < self._settings.min_coverage
            ]
            yield from together(thin, len(metrics.data))
            tags = {
                tag for node in metrics.data.values() if node.tags for tag in node.tags.items() if tag[0] in _AVERAGED
            }
            for tag, span in sorted(tags):
                if _seconds(span) > duration.seconds(window):
                    message = f"samples are averages over {span}: deviations within {window} say little (its {tag})"
                    yield Finding(Kind.DOUBLE_SMOOTHING, message, window)


def _levels(data: Mapping[str, NodeMetrics], names: Sequence[str]) -> dict[str, dict[str, Floats]]:
    """Return the averages of each resource by the metric's name; NaN where a node has none."""
    found: dict[str, dict[str, Floats]] = {type_: {} for type_ in REQUIRED}
    places = {name: row for row, name in enumerate(names)}
    for series, (alike_names, values) in alike({name: data[name] for name in names}).items():
        rows = [places[name] for name in alike_names]
        for column, (metric, operator, type_) in enumerate(series):
            if operator in AVERAGES and type_ in found:
                levels = found[type_].setdefault(metric, np.full(len(names), np.nan))
                levels[rows] = values[column :: len(series)]
    return found


def _seconds(span: str) -> int:
    try:
        return duration.seconds(span)
    except ValueError:
        return 0
