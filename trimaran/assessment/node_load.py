"""Hot nodes of a recording, nodes without metrics, and gaps."""

from collections.abc import Iterator

import numpy as np

from scoring.arrays import Bools, Float64s
from trimaran.assessment.model import AssessmentProblem, HotNode, utc_text
from trimaran.traces.node_use import NodeUse

HOT_PERCENT = 80.0
_SMOOTH_MINUTES = 5
_COOL_MINUTES = 30
_GONE_MINUTES = 10
_LEAST_HOT_SHARE = 0.01
_MEMORY_PERCENT = 90.0
_HEAT_NODES = 20


def hot_nodes(use: NodeUse) -> list[HotNode]:
    """Return the nodes that are hot now, then those that were hot in a hundredth of the time; the hottest ones first.

    Loads are means of five minutes. A hot time ends with half an hour below 80 percent.
    """
    loads = 100 * smoothed(use.cpu)
    found = []
    for name, load in zip(use.nodes, loads, strict=True):
        known = np.isfinite(load)
        if not known.any():
            continue
        hot = known & (load >= HOT_PERCENT)
        share = float(hot.sum() / known.sum())
        since = _hot_since(hot)
        if share >= _LEAST_HOT_SHARE or since is not None:
            moment = None if since is None else use.begin + 60 * since
            found.append(HotNode(name, moment, share, float(load[known].mean()), float(load[known].max())))
    return sorted(found, key=lambda node: (node.since is None, -node.hot_share))


def heat(use: NodeUse) -> dict[str, list[float | None]]:
    """Return the mean CPU use of the nodes with the highest means by hour, percent; None where unknown."""
    with np.errstate(invalid="ignore"):
        means = np.nan_to_num(_mean(use.cpu, axis=1))
    rows = np.argsort(-means, kind="stable")[:_HEAT_NODES]
    hours = use.cpu.shape[1] // 60
    by_hour = 100 * _mean(use.cpu[rows, : hours * 60].reshape(len(rows), hours, 60), axis=2)
    return {
        use.nodes[row]: [None if np.isnan(value) else round(float(value), 1) for value in values]
        for row, values in zip(rows.tolist(), by_hour, strict=True)
    }


def problems(use: NodeUse) -> Iterator[AssessmentProblem]:
    """Yield nodes without metrics, and nodes short of memory."""
    measured = np.isfinite(use.cpu)
    anywhere: Bools = np.asarray(measured.any(axis=0))
    for row in np.flatnonzero(~measured.any(axis=1)):
        yield AssessmentProblem(
            use.nodes[row], "no pod of this node is measured: its load is not known",
            'let Prometheus scrape the cAdvisor metrics of its kubelet; look at up{job=~".*kubelet.*"}',
        )  # fmt: skip
    for row in np.flatnonzero(measured.any(axis=1)):
        last = int(np.flatnonzero(measured[row])[-1])
        if anywhere[last + 1 :].sum() > _GONE_MINUTES:
            yield AssessmentProblem(
                use.nodes[row], f"no pod of this node is measured since {_time(use, last)}",
                f"look at the target of its kubelet in Prometheus, and at kubectl describe node {use.nodes[row]}",
            )  # fmt: skip
    memory = 100 * smoothed(use.memory)
    with np.errstate(invalid="ignore"):
        full = (memory >= _MEMORY_PERCENT).sum(axis=1)
    for row in np.argsort(-full, kind="stable"):
        if full[row] >= _COOL_MINUTES:
            yield AssessmentProblem(
                use.nodes[row], f"its pods used {_MEMORY_PERCENT:.0f} % of its memory or more for {full[row]} minutes",
                "raise the memory requests of its workloads: trimaran workloads --patch",
            )  # fmt: skip


def gaps(use: NodeUse) -> Iterator[AssessmentProblem]:
    """Yield the longest time without metrics of any node, if it is longer than ten minutes."""
    if gap := _longest_gap(np.asarray(np.isfinite(use.cpu).any(axis=0))):
        start, end = gap
        yield AssessmentProblem(
            "Prometheus",
            f"no pod is measured for {end - start} minutes, from {_time(use, start)} to {_time(use, end)}",
            "look for restarts of Prometheus or a full disk in this time",
        )  # fmt: skip


def smoothed(values: Float64s) -> Float64s:
    """Return means of the last five minutes of each row; NaN where one is missing."""
    padded = np.concatenate([np.repeat(values[:, :1], _SMOOTH_MINUTES - 1, axis=1), values], axis=1)
    windows = np.lib.stride_tricks.sliding_window_view(padded, _SMOOTH_MINUTES, axis=1)
    return np.asarray(windows.mean(axis=2))


def _hot_since(hot: Bools) -> int | None:
    """Return the first minute of the hot time at the end; None if the last half an hour has no hot minute."""
    minutes = np.flatnonzero(hot)
    if not len(minutes) or minutes[-1] < len(hot) - _COOL_MINUTES:
        return None
    breaks = np.flatnonzero(np.diff(minutes) > _COOL_MINUTES)
    return int(minutes[breaks[-1] + 1] if len(breaks) else minutes[0])


def _longest_gap(anywhere: Bools) -> tuple[int, int] | None:
    """Return the longest range of minutes without any value, if it is longer than ten minutes."""
    known = np.flatnonzero(np.concatenate([[True], anywhere, [True]]))
    lengths = np.diff(known) - 1
    longest = int(lengths.argmax())
    start = int(known[longest])
    return (start, start + int(lengths[longest])) if lengths[longest] > _GONE_MINUTES else None


def _time(use: NodeUse, minute: int) -> str:
    return utc_text(use.begin + 60 * minute)


def _mean(values: Float64s, axis: int) -> Float64s:
    known = np.isfinite(values)
    counts = known.sum(axis=axis)
    return np.asarray(np.where(counts, np.where(known, values, 0).sum(axis=axis) / np.maximum(counts, 1), np.nan))
