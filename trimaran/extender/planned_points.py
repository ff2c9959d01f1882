"""Answers that send the replacement of a moved pod to its planned node."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from scoring.arrays import Int64s
from trimaran.cluster.target_note import TargetNote

STEP: Final = 100_000
"""Points that outweigh all other scores: kube-scheduler's own plugins reach 1,200 by default, in answers' units."""


def with_planned_node(points: Int64s, names: Sequence[str], note: TargetNote) -> Int64s:
    """Return answers that prefer the planned node to all others, and all others to the node that the pod has left.

    The order of the other nodes stays: it decides if the planned node is not among the candidates.

    Args:
        points: answers by score, shape (nodes,).
        names: names of the nodes.
        note: the plan.
    """
    planned = points + STEP
    for name, steps in ((note.target, 1), (note.source, -1)):
        if name in names:
            planned[names.index(name)] += steps * STEP
    return np.asarray(planned, np.int64)
