"""Making a plugin's raw scores comparable: kube-scheduler's NormalizeScore step."""

import numpy as np

from scoring.arrays import Int64s

MAX_NODE_SCORE = 100


def stretched(scores: Int64s) -> Int64s:
    """Map the lowest score to 0 and the highest to 100, truncated; all equal gives 0.

    Source: ``NormalizeScore`` of NodeResourcesAllocatable and PodState, sigs.k8s.io/scheduler-plugins.

    Args:
        scores: any integers, shape (nodes,); not changed.
    """
    if scores.size == 0:
        return scores
    lowest = scores.min()
    spread = scores.max() - lowest
    if spread == 0:
        return np.zeros_like(scores)
    result: Int64s = (scores - lowest) * MAX_NODE_SCORE // spread
    return result
