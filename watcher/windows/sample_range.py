"""Impossible samples: below 0, or far above the capacity of the node.

They are left out of a window and counted, never replaced by the nearest possible value: a source that reports -13
percent every other time has measured nothing at these times, and an average that counts 0 for it is half the true one.
If a node has no other samples, its unit or scale is wrong: they are kept, and the analyzer drops their average with a
finding. https://github.com/kubernetes-sigs/metrics-server/issues/750
"""

import math

import numpy as np

from watcher.findings import Action, Finding, Kind
from watcher.model import LOWEST_PERCENT, MOST_PERCENT
from watcher.windows.operators import Counts, Floats

Flags = np.ndarray[tuple[int, ...], np.dtype[np.bool_]]


def are_wrong(values: Floats) -> Flags:
    """Return which values, in percent of capacity, are impossible; a NaN is a missing sample, not an impossible one."""
    return ~((values >= LOWEST_PERCENT) & (values <= MOST_PERCENT) | np.isnan(values))


def leave_out(values: Floats) -> tuple[Floats, Counts, Floats]:
    """Replace impossible samples by NaN.

    Args:
        values: percent of capacity, shape (nodes, times); NaN where there is no sample.

    Returns:
        The values, the number of samples that were left out of each row, shape (nodes,), and an example of them, shape
        (nodes,); NaN without one.
    """
    wrong = are_wrong(values)
    wrong &= (~wrong & ~np.isnan(values)).any(axis=1, keepdims=True)
    counts = wrong.sum(axis=1)
    if not counts.any():
        return values, counts, np.full(len(values), np.nan)
    first = values[np.arange(len(values)), wrong.argmax(axis=1)]
    return np.where(wrong, np.nan, values), counts, np.where(counts > 0, first, np.nan)


def left_out(
    node: str, metric: str, window: str, dropped: int, total: int, example: float, step_seconds: int = 0
) -> Finding:
    """Return the finding about samples that were left out.

    Args:
        node: the node's name.
        metric: the metric's published name.
        window: the window's duration, such as ``5m``.
        dropped: number of samples that were left out.
        total: number of all samples.
        example: one of the samples that were left out, percent of capacity.
        step_seconds: time over which the source averages samples before it returns them; 0 or 1 if it does not. The
            samples themselves are unknown then, so the other averages may contain wrong ones.
    """
    unseen = f"; each is an average over {step_seconds} s, and wrong samples in others are not seen"
    shown = f"{example:.4g}" if math.isfinite(example) else "infinity or NaN"
    message = (
        f"{dropped} of {total} samples are below 0 or above {MOST_PERCENT:g} percent of capacity, such as "
        f"{shown}: they are left out{unseen if step_seconds > 1 else ''}"
    )
    return Finding(Kind.OUT_OF_RANGE, message, window, node, metric, Action.DROPPED)


def hidden_in_averages(node: str, metric: str, window: str, step_seconds: int) -> Finding:
    """Return the finding about impossible samples in a source that only returns averages over steps."""
    message = f"samples out of range are hidden in averages over {step_seconds} s: they cannot be left out"
    return Finding(Kind.OUT_OF_RANGE, message, window, node, metric, Action.REPORTED)
