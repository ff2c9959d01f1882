"""Substitution of missing measurements: values of a shorter window, or the last good values. Pure functions.

A node is complete if it has CPU and Memory; other metrics are optional and are not substituted. A substituted metric
keeps its rollup, the window that it was measured over. The node's metadata contains the ``grade``
(``shorter_window`` or ``last_good``) and, if the values cover another time than the snapshot's window, this time
(``window_start``, ``window_end``, Unix seconds). So the next substitution needs no data in addition to the snapshots.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from watcher.freshness import Freshness
from watcher.model import REQUIRED, Grade, NodeMetrics, WatcherMetrics


def of_window(
    fetched: WatcherMetrics | None, before: WatcherMetrics | None, freshness: Freshness
) -> WatcherMetrics | None:
    """Return the snapshot to serve if a request names this window; None if there is no snapshot of the window.

    Nodes and values that the last fetch lacks are taken from the previous snapshot, while they are fresh. If the whole
    previous snapshot has expired and the fetch failed, the previous snapshot is returned unchanged.

    Args:
        fetched: the window's snapshot in the last fetch; None if the fetch failed.
        before: previous return value of this function for the window.
        freshness: limit of age of the values from ``before``.
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
    """Return the snapshot to serve if a request names no window; None if no data are fresh.

    Nodes and values that the snapshot lacks are taken from shorter windows, then from earlier fetches.

    Args:
        order: the default window, then the windows that may replace it, best first.
        fetched: window to its snapshot in the last fetch.
        exact: window to the return value of :func:`of_window`.
        freshness: limit of age of all values.
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
    """Return the time of the next expiry of a value in these snapshots, Unix seconds.

    Values that have expired do not count. Return infinity if all values have expired.
    """
    ends = {
        end
        for metrics in snapshots
        for end in (metrics.window.end, *(_span(node, metrics)[1] for node in metrics.data.values()))
    }
    return min((end + freshness.expiry_seconds for end in ends if freshness.is_fresh(end)), default=float("inf"))


def _complete(
    base: WatcherMetrics, stand_ins: Sequence[tuple[Grade, WatcherMetrics]], freshness: Freshness
) -> WatcherMetrics:
    """Return the snapshot with missing nodes and values from other snapshots; unchanged if these lack them, too.

    Snapshots of another provider are not used, since the same metric name may have another meaning there.

    Args:
        base: the snapshot to complete.
        stand_ins: the other snapshots, best first, each with the grade that its values give to a node.
        freshness: limit of age of the values from ``stand_ins``.
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
    """Return a node with its missing CPU or Memory metrics taken from another snapshot; None if it lacks them, too.

    Args:
        node: the node in ``base``; None if it is missing there.
        stand_in: the node in ``donor``.
        grade: grade to give to the node.
        base: the snapshot to complete.
        donor: the snapshot that the missing metrics are taken from.
    """
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
    """Return a copy of the node with this grade; the node itself if it already has the grade."""
    if node.metadata.get("grade") == grade:
        return node
    return replace(node, metadata={**node.metadata, "grade": grade.value})


def _span(node: NodeMetrics, metrics: WatcherMetrics) -> tuple[int, int]:
    """Return start and end of the time that a node's values cover, Unix seconds.

    The node's metadata contains them if they differ from the window of the snapshot, ``metrics``.
    """
    metadata = node.metadata
    if "window_end" not in metadata:
        return metrics.window.start, metrics.window.end
    return int(metadata["window_start"]), int(metadata["window_end"])


def _missing_types(node: NodeMetrics) -> Collection[str]:
    return {*REQUIRED} - {metric.type for metric in node.metrics}
