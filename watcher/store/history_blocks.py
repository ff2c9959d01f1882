"""Arrays of the history, of shape (nodes, minutes), and the packed form in which the database stores them.

A value is in hundredths of a percent and takes two bytes; 0xFFFF stands for a missing value.
"""

import zlib
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from watcher.history import RESOLUTION_SECONDS, Steps
from watcher.model import NodeColumns
from watcher.store.schema import HOUR

Matrix = NDArray[np.uint16]
Rows = NDArray[np.int64]

#: Number of nodes in a block; unpacking a block takes a tenth of a millisecond.
CHUNK = 128
MISSING = 0xFFFF
UNREADABLE = (zlib.error, ValueError, TypeError)
_LARGEST = MISSING - 1
_PER_PERCENT = 100
_COMPRESSION = 1


def unpack_minute(body: bytes) -> Matrix:
    """Return the values of one series in one minute, an array indexed by node number.

    Raises:
        ValueError, TypeError: the body is not a packed minute.
    """
    return np.frombuffer(body, "<u2")


def pack_minutes(nodes: NodeColumns, numbers: Mapping[str, int]) -> dict[tuple[str, str, str], bytes]:
    """Pack the values of all nodes in one minute; :func:`unpack_minute` reverses it.

    Args:
        nodes: metrics of the nodes.
        numbers: node name to node number; nodes without a number are left out.

    Returns:
        Series (type, operator, name) to the packed array of its values, indexed by node number.
    """
    size = max(numbers.values(), default=-1) + 1
    values = np.frombuffer(nodes.numbers, np.float64)
    columns: dict[tuple[str, str, str], Matrix] = {}
    for group in nodes.groups:
        places = np.array([numbers.get(name, -1) for name in group.names], np.int64)
        numbered = places >= 0
        for order, series in enumerate(group.series):
            start = group.start + order * len(places)
            small = pack_percents(values[start : start + len(places)])
            key = (series.type, series.operator, series.name)
            target = columns.setdefault(key, np.full(size, MISSING, np.uint16))
            target[places[numbered]] = small[numbered]
    return {key: target.astype("<u2").tobytes() for key, target in columns.items()}


def pack_percents(percents: NDArray[np.float64]) -> Matrix:
    """Return values in percent as values of the history: hundredths of a percent, or missing if they are not finite."""
    small = np.clip(np.round(percents * _PER_PERCENT), 0, _LARGEST)
    return np.where(np.isfinite(percents), small, MISSING).astype(np.uint16)


def empty_matrix(nodes: int, minutes: int) -> Matrix:
    """Return an array of shape (nodes, minutes) in which all values are missing."""
    return np.full((nodes, minutes), MISSING, np.uint16)


def has_values(matrix: Matrix) -> NDArray[np.bool_]:
    """Return a mask of the nodes that have at least one value, shape (nodes,)."""
    known: NDArray[np.bool_] = (matrix != MISSING).any(axis=1)
    return known


def pack_block(matrix: Matrix) -> bytes:
    """Pack a block, the values of 128 nodes over one hour, shape (128, 60).

    The differences between successive minutes are zigzag-encoded and compressed, all low bytes before all high bytes.
    """
    steps = np.diff(matrix, axis=1, prepend=np.uint16(0)).astype(np.int16)
    folded = ((steps << 1) ^ (steps >> 15)).astype("<u2")  # zigzag: small negative differences become small numbers
    return zlib.compress(folded.view(np.uint8).reshape(-1, 2).T.tobytes(), _COMPRESSION)


def unpack_block(body: bytes, rows: Rows) -> Matrix:
    """Return the given rows of a packed block, shape (rows, 60).

    Args:
        body: the packed block.
        rows: indices of the rows to return, 0 to 127.

    Raises:
        ValueError, zlib.error: the body is not a packed block.
    """
    low, high = np.frombuffer(zlib.decompress(body), np.uint8).reshape(2, CHUNK, HOUR)[:, rows]
    folded = low.astype(np.uint16) | (high.astype(np.uint16) << 8)
    steps = (folded >> 1) ^ -(folded & 1)
    return np.cumsum(steps, axis=1, dtype=np.uint16)


def overlay_hour(under: Matrix, first: int, block: Matrix, begin: int) -> None:
    """Copy the values of an hour into a matrix; where the hour has no value, the matrix stays unchanged.

    Args:
        under: matrix that is changed, shape (nodes, minutes).
        first: first minute of the matrix, in minutes of Unix time.
        block: values of the hour, shape (nodes, 60).
        begin: first minute of the hour, in minutes of Unix time.
    """
    start, end = max(begin, first), min(begin + HOUR, first + under.shape[1])
    if start < end:
        over = block[:, start - begin : end - begin]
        np.copyto(under[:, start - first : end - first], over, where=over != MISSING)


def overlay_minute(under: Matrix, minute: int, values: Matrix, at: Rows) -> None:
    """Copy the values of a minute into a matrix; where the minute has no value, the matrix stays unchanged.

    Args:
        under: matrix that is changed, shape (nodes, minutes).
        minute: index of the column to change.
        values: values of the minute, indexed by node number.
        at: index into ``values`` of each row of the matrix; an index beyond the end means no value.
    """
    rows = np.flatnonzero(at < len(values))
    present = values[at[rows]]
    known = present != MISSING
    under[rows[known], minute] = present[known]


def aggregate(matrix: Matrix, steps: Steps, *, largest: bool) -> NDArray[np.float32]:
    """Return the mean, or the largest value, of each node in each step: percent, shape (nodes, steps).

    A step without values is NaN.

    Args:
        matrix: values in hundredths of a percent, shape (nodes, minutes).
        steps: steps of time.
        largest: return the largest value instead of the mean.
    """
    length = steps.seconds // RESOLUTION_SECONDS
    counts = np.zeros((len(matrix), steps.count), np.uint32)
    totals = np.zeros_like(counts)
    for first in range(length):  # summing along such a short axis takes numpy two and a half times as long
        minute = matrix[:, first::length]
        known = minute != MISSING
        values = np.where(known, minute, 0)
        counts += known
        if largest:
            np.maximum(totals, values, out=totals)
        else:
            totals += values
    divisors = (np.minimum(counts, 1) if largest else counts).astype(np.float32)
    with np.errstate(invalid="ignore"):  # 0 / 0 gives NaN: no value
        means: NDArray[np.float32] = np.round(totals.astype(np.float32) / (divisors * _PER_PERCENT), 2)
    return means
