"""Normalization of a plugin's raw scores to 0 to 100, as in the NormalizeScore step of kube-scheduler."""

import numpy as np

from scoring.arrays import Int64s

MAX_NODE_SCORE = 100
INFEASIBLE = -1
"""Total score of a node that did not pass the filters; lower than every other total."""


def inverted(counts: Int64s) -> Int64s:
    """Map 0 to 100 and the highest count to 0, truncated; if all counts are 0, map them to 100.

    Source: ``DefaultNormalizeScore`` with ``reverse``, k8s.io/kubernetes/pkg/scheduler/framework/plugins/helper.

    Args:
        counts: counts of reasons against each node, at least 0, shape (nodes,); not modified.
    """
    highest = counts.max(initial=0)
    if highest == 0:
        return np.full_like(counts, MAX_NODE_SCORE)
    return np.asarray(MAX_NODE_SCORE - MAX_NODE_SCORE * counts // highest)


def scaled_to_highest(scores: Int64s) -> Int64s:
    """Map 0 to 0 and the highest score to 100, truncated; if all scores are 0, they remain 0.

    Source: ``DefaultNormalizeScore`` without ``reverse``.

    Args:
        scores: integers, at least 0, shape (nodes,); not modified.
    """
    return np.asarray(MAX_NODE_SCORE * scores // max(1, scores.max(initial=0)))


def rescaled(scores: Int64s) -> Int64s:
    """Map the lowest score to 0 and the highest to 100, truncated; if all scores are equal, map them to 0.

    Source: ``NormalizeScore`` of NodeResourcesAllocatable and PodState, sigs.k8s.io/scheduler-plugins.

    Args:
        scores: any integers, shape (nodes,); not modified.
    """
    if scores.size == 0:
        return scores
    lowest = scores.min()
    spread = scores.max() - lowest
    if spread == 0:
        return np.zeros_like(scores)
    return np.asarray((scores - lowest) * MAX_NODE_SCORE // spread)
