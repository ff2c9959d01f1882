"""Measured loads of nodes, corrected for moves that the metrics' window does not show completely yet.

A load is a mean over a window. After a move the window still has the time in which the pod ran on its former node: the
former node's load looks higher than it is now, and the new node's lower. The correction moves the pod's use, weighted
by the share of the window before the move, from the former to the new node. It is 0 once the whole window is after the
move. While the replacement starts, its use counts on the new node.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple


class RecentMove(NamedTuple):
    """Move that was made.

    Attributes:
        at: time of the eviction, Unix seconds.
        source: name of the former node.
        target: name of the new node.
        source_percent: use of the pod, percent of the former node's capacity.
        target_percent: use of the pod, percent of the new node's capacity.
    """

    at: float
    source: str
    target: str
    source_percent: float
    target_percent: float


def corrected_loads(
    loads: Mapping[str, float], window: tuple[float, float], moves: Iterable[RecentMove]
) -> dict[str, float]:
    """Return the loads as they would be if the moves had been made before the window.

    Args:
        loads: load of each measured node, percent of its capacity.
        window: begin and end of the window over which the loads are averaged, Unix seconds.
        moves: moves; a move before the window changes nothing.
    """
    begin, end = window
    corrected = dict(loads)
    for move in moves:
        before = min(max((move.at - begin) / (end - begin), 0.0), 1.0) if end > begin else float(move.at > begin)
        for node, percent in ((move.source, -move.source_percent), (move.target, move.target_percent)):
            if node in corrected:
                corrected[node] = max(corrected[node] + before * percent, 0.0)
    return corrected
