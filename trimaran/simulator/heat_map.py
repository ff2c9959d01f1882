"""Heat maps: CPU use by node and time, reduced to a size that can be drawn."""

import numpy as np

from trimaran.simulator.replay import ReplayOutcome

HeatMap = list[list[int]]
"""CPU use in percent of capacity: a row per node or group of nodes, hottest first; a column per span of time."""

_MOST_ROWS = 100
_MOST_COLUMNS = 240


def heat_map(outcome: ReplayOutcome) -> HeatMap:
    """Return the mean CPU use of nodes over spans of time, after the warm-up.

    More than 100 nodes are grouped: nodes next to each other in the order of their mean use share a row. More than
    240 minutes are averaged into equal spans, of which the last may be shorter.
    """
    ledger, warm_up = outcome.cluster.ledger, outcome.cluster.trace.warm_up_minutes
    use = ledger.cpu_milli[:, warm_up:] / ledger.capacity[0][:, None]
    if not use.size:
        return []
    use = use[np.argsort(-use.mean(axis=1), kind="stable")]
    for axis, most in ((0, _MOST_ROWS), (1, _MOST_COLUMNS)):
        size = use.shape[axis]
        starts = np.arange(0, size, -(-size // most))
        counts = np.diff([*starts.tolist(), size])
        use = np.add.reduceat(use, starts, axis=axis) / (counts if axis else counts[:, None])
    return [[round(100 * part) for part in row] for row in use.tolist()]
