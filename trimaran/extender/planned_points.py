"""Scores that send the replacement of a moved pod to the node that the rebalancer planned."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from scoring.arrays import Int64s
from trimaran.cluster.target_note import TargetNote

STEP: Final = 100_000
"""Points that outweigh all other scores: kube-scheduler's default plugins reach 1,200 points of the extender."""


def with_planned_node(points: Int64s, names: Sequence[str], note: TargetNote) -> Int64s:
    """Return the scores with the planned node above all others, and the node that the moved pod has left below them.

    The other nodes keep their order, which decides if the planned node is not a candidate.

    Args:
        points: scores for kube-scheduler, shape (nodes,).
        names: names of the nodes.
        note: plan of the rebalancer for the pod.
    """
    planned = points + STEP
    for name, steps in ((note.target, 1), (note.source, -1)):
        if name in names:
            planned[names.index(name)] += steps * STEP
    return np.asarray(planned, np.int64)
