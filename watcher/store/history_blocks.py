"""Nodes x minutes of the history, as arrays and packed: hundredths of a percent, two bytes each."""

import zlib
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from watcher.history import RESOLUTION_SECONDS, Steps
from watcher.model import NodeColumns
from watcher.store.schema import HOUR

Matrix = NDArray[np.uint16]
Rows = NDArray[np.int64]

#: Nodes of a block: one is unpacked in a tenth of a millisecond.
CHUNK = 128
MISSING = 0xFFFF
UNREADABLE = (zlib.error, ValueError, TypeError)
_LARGEST = MISSING - 1
_PER_PERCENT = 100
_COMPRESSION = 1


def column(body: bytes) -> Matrix:
    """Return one minute of one series by node number.

    Raises:
        ValueError, TypeError: it is none.
    """
    return np.frombuffer(body, "<u2")


def columns_of(nodes: NodeColumns, numbers: Mapping[str, int]) -> dict[tuple[str, str, str], bytes]:
    """Return each series (type, operator, name) of the nodes that have numbers, as ``column`` reads it."""
    size = max(numbers.values(), default=-1) + 1
    values = np.frombuffer(nodes.numbers, np.float64)
    found: dict[tuple[str, str, str], Matrix] = {}
    for group in nodes.groups:
        places = np.array([numbers.get(name, -1) for name in group.names], np.int64)
        numbered = places >= 0
        for order, series in enumerate(group.series):
            start = group.start + order * len(places)
            percents = values[start : start + len(places)]
            with np.errstate(invalid="ignore"):
                small = np.clip(np.round(percents * _PER_PERCENT), 0, _LARGEST)
            small = np.where(np.isfinite(small), small, MISSING)
            key = (series.type, series.operator, series.name)
            target = found.setdefault(key, np.full(size, MISSING, np.uint16))
            target[places[numbered]] = small[numbered]
    return {key: target.astype("<u2").tobytes() for key, target in found.items()}


def empty(nodes: int, minutes: int) -> Matrix:
    """Return nodes x minutes without a value."""
    return np.full((nodes, minutes), MISSING, np.uint16)


def has_any(matrix: Matrix) -> NDArray[np.bool_]:
    """Return which nodes have a value."""
    known: NDArray[np.bool_] = (matrix != MISSING).any(axis=1)
    return known


def pack(matrix: Matrix) -> bytes:
    """Pack a block: what each minute differs from the one before, all low bytes before the high ones."""
    steps = np.diff(matrix, axis=1, prepend=np.uint16(0)).astype(np.int16)
    folded = ((steps << 1) ^ (steps >> 15)).astype("<u2")  # a small step down is a small number too
    return zlib.compress(folded.view(np.uint8).reshape(-1, 2).T.tobytes(), _COMPRESSION)


def unpack(body: bytes, rows: Rows) -> Matrix:
    """Unpack these rows of a block.

    Raises:
        ValueError, zlib.error: it is none.
    """
    low, high = np.frombuffer(zlib.decompress(body), np.uint8).reshape(2, CHUNK, HOUR)[:, rows]
    folded = low.astype(np.uint16) | (high.astype(np.uint16) << 8)
    steps = (folded >> 1) ^ -(folded & 1)
    return np.cumsum(steps, axis=1, dtype=np.uint16)


def lay_hour(under: Matrix, first: int, block: Matrix, begin: int) -> None:
    """Lay an hour over nodes x minutes; where it has nothing, what is there stays.

    Args:
        under: nodes x minutes, changed.
        first: the minute with which it begins.
        block: nodes x 60 minutes.
        begin: the minute with which that begins.
    """
    start, end = max(begin, first), min(begin + HOUR, first + under.shape[1])
    if start < end:
        over = block[:, start - begin : end - begin]
        np.copyto(under[:, start - first : end - first], over, where=over != MISSING)


def lay_minute(under: Matrix, minute: int, values: Matrix, at: Rows) -> None:
    """Lay a minute over nodes x minutes, as ``lay_hour`` does.

    Args:
        under: nodes x minutes, changed.
        minute: which of its minutes.
        values: by node.
        at: where in ``values`` each of the nodes is; beyond its end are those that have none.
    """
    rows = np.flatnonzero(at < len(values))
    given = values[at[rows]]
    known = given != MISSING
    under[rows[known], minute] = given[known]


def by_steps(matrix: Matrix, steps: Steps, *, largest: bool) -> NDArray[np.float32]:
    """Return nodes x steps in percent from nodes x minutes: the mean of each step, or the largest."""
    length = steps.seconds // RESOLUTION_SECONDS
    counts = np.zeros((len(matrix), steps.count), np.uint32)
    totals = np.zeros_like(counts)
    for first in range(length):  # to add along an axis so short takes numpy two and a half times as long
        minute = matrix[:, first::length]
        known = minute != MISSING
        values = np.where(known, minute, 0)
        counts += known
        if largest:
            np.maximum(totals, values, out=totals)
        else:
            totals += values
    divisors = (np.minimum(counts, 1) if largest else counts).astype(np.float32)
    with np.errstate(invalid="ignore"):  # 0 / 0 is what is not there
        means: NDArray[np.float32] = np.round(totals.astype(np.float32) / (divisors * _PER_PERCENT), 2)
    return means
