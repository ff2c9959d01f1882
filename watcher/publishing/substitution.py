"""Substitution of missing measurements by those of a shorter window or by the last good ones. Pure functions.

A node is complete if it has CPU and Memory; other metrics are optional and are not substituted. A substitute keeps its
rollup. The node's metadata has its origin (``grade``) and, if it differs from the snapshot's window, the span of time
that it covers (``window_start``, ``window_end``, Unix seconds). So a snapshot has all data for the next substitution.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from watcher.freshness import Freshness
from watcher.model import REQUIRED, Grade, NodeMetrics, WatcherMetrics


def of_window(
    fetched: WatcherMetrics | None, before: WatcherMetrics | None, freshness: Freshness
) -> WatcherMetrics | None:
    """Return the snapshot to serve for exactly one window.

    Args:
        fetched: snapshot of the last fetch; None if it failed.
        before: previous return value of this function.
        freshness: limit of age; nodes that are not fresh are not served.
    """
    if fetched is not None:
        return fetched if before is None else _complete(fetched, [(Grade.LAST_GOOD, before)], freshness)
    if before is None or not freshness.is_fresh(before.window.end):
        return before
    nodes = {
        name: _with_grade(node, Grade.LAST_GOOD)
        for name, node in before.data.items()
        if freshness.is_fresh(_span(node, before)[1])
    }
    same = len(nodes) == len(before.data) and all(node is before.data[name] for name, node in nodes.items())
    return before if same else replace(before, data=nodes)


def of_default(
    order: Sequence[str],
    fetched: Mapping[str, WatcherMetrics],
    exact: Mapping[str, WatcherMetrics],
    freshness: Freshness,
) -> WatcherMetrics | None:
    """Return the snapshot to serve for requests without a window; None if no data are fresh.

    Args:
        order: the default window, then the windows that may replace it, best first.
        fetched: snapshots of the last fetch, by window.
        exact: return values of :func:`of_window`, by window.
        freshness: limit of age; nodes that are not fresh are not served.
    """
    recent = [fetched[name] for name in order if name in fetched and freshness.is_fresh(fetched[name].window.end)]
    last_served = [exact[name] for name in order if name in exact and freshness.is_fresh(exact[name].window.end)]
    if not recent and not last_served:
        return None
    base, *shorter = recent or last_served[:1]
    if recent and base.window.duration != order[0]:
        nodes = {name: _with_grade(node, Grade.SHORTER_WINDOW) for name, node in base.data.items()}
        base = replace(base, data=nodes)
    last_good = [(Grade.LAST_GOOD, snapshot) for snapshot in last_served]
    return _complete(base, [*((Grade.SHORTER_WINDOW, snapshot) for snapshot in shorter), *last_good], freshness)


def fresh_until(snapshots: Iterable[WatcherMetrics], freshness: Freshness) -> float:
    """Return the time, Unix seconds, of the next expiry of a value in these snapshots; expired values do not count."""
    ends = {
        end
        for metrics in snapshots
        for end in (metrics.window.end, *(_span(node, metrics)[1] for node in metrics.data.values()))
    }
    return min((end + freshness.expiry_seconds for end in ends if freshness.is_fresh(end)), default=float("inf"))


def _complete(
    base: WatcherMetrics, stand_ins: Sequence[tuple[Grade, WatcherMetrics]], freshness: Freshness
) -> WatcherMetrics:
    """Return the snapshot with missing values filled from the first stand-in that has them; unchanged if none does.

    Measurements of another provider are not used: the same name may have another meaning there.
    """
    incomplete = {name for name, node in base.data.items() if _missing_types(node)}
    changed: dict[str, NodeMetrics] = {}
    for grade, donor in stand_ins:
        if donor.source != base.source:
            continue
        for name in sorted((donor.data.keys() - base.data.keys()) | (donor.data.keys() & incomplete)):
            node, stand_in = changed.get(name, base.data.get(name)), donor.data[name]
            if freshness.is_fresh(_span(stand_in, donor)[1]):
                filled = _fill(node, stand_in, grade, base, donor)
                if filled is not None:
                    changed[name] = filled
    return replace(base, data={**base.data, **changed}) if changed else base


def _fill(
    node: NodeMetrics | None, stand_in: NodeMetrics, grade: Grade, base: WatcherMetrics, donor: WatcherMetrics
) -> NodeMetrics | None:
    """Return the node with its missing required metrics filled in; None if the stand-in has none of them."""
    span = _span(stand_in, donor)
    if node is None:
        metrics = stand_in.metrics
        node = NodeMetrics((), stand_in.tags, stand_in.metadata)
    else:
        missing = _missing_types(node)
        metrics = tuple(metric for metric in stand_in.metrics if metric.type in missing)
        if not metrics:
            return None
        span = min(span, _span(node, base), key=lambda start_end: start_end[1])  # the older span counts
    metadata = {**stand_in.metadata, **node.metadata}
    metadata |= {"window_start": span[0], "window_end": span[1]}
    if span == (base.window.start, base.window.end):
        del metadata["window_start"], metadata["window_end"]
    filled = NodeMetrics((*node.metrics, *metrics), {**stand_in.tags, **node.tags}, metadata)
    return _with_grade(filled, grade)


def _with_grade(node: NodeMetrics, grade: Grade) -> NodeMetrics:
    """Return the node with a grade; the same object if it already has this grade."""
    if node.metadata.get("grade") == grade:
        return node
    return replace(node, metadata={**node.metadata, "grade": grade.value})


def _span(node: NodeMetrics, metrics: WatcherMetrics) -> tuple[int, int]:
    """Return the start and end of the time that a node's values cover, Unix seconds."""
    metadata = node.metadata
    if "window_end" not in metadata:
        return metrics.window.start, metrics.window.end
    return int(metadata["window_start"]), int(metadata["window_end"])


def _missing_types(node: NodeMetrics) -> Collection[str]:
    return {*REQUIRED} - {metric.type for metric in node.metrics}
