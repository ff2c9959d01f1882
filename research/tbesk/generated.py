"""Generated clusters like the one in the TBESK paper, whose tables of nodes and pods are not available.

There are five models of nodes with different proportions of resources. Other pods use 4 to 14 % of each node at its
peak. Some pods to place request mostly CPU and bandwidth, some mostly memory and disk, some all resources evenly.
"""

from typing import Final

import numpy as np

from trimaran.planning.problem import Problem

# millicores, MiB, Mbit/s, MB/s
_MODELS: Final = np.array([
    [32_000, 131_072, 10_000, 2_000],
    [48_000, 131_072, 10_000, 1_600],
    [32_000, 196_608, 8_000, 2_400],
    [64_000, 262_144, 20_000, 4_000],
    [40_000, 163_840, 12_000, 2_400],
])  # fmt: skip
# Requests of a pod of each class, relative to an even share of everything.
_CLASSES: Final = np.array([[1.5, 0.6, 1.5, 0.6], [0.6, 1.5, 0.6, 1.5], [1.0, 1.0, 1.0, 1.0]])
_MIX: Final = np.array([0.38, 0.32, 0.3])
_FILL: Final = np.array([0.68, 0.74, 0.72, 0.66])  # use of the whole cluster with all pods placed


def generated_cluster(nodes: int = 31, pods: int = 1800, seed: int = 0) -> Problem:
    """Return a generated cluster with pods to place, which together use about 70 % of its capacity at the peak.

    All amounts are integers, so that sums are exact.
    """
    rng = np.random.default_rng(seed)
    capacity = _MODELS[rng.integers(0, len(_MODELS), nodes)].astype(np.float64)
    used = np.floor(capacity * rng.uniform(0.04, 0.14, capacity.shape))
    shape = _CLASSES[rng.choice(len(_CLASSES), pods, p=_MIX)]
    size = rng.lognormal(0.0, 0.6, (pods, 1)) * rng.lognormal(0.0, 0.25, (pods, len(_FILL))) * shape
    wanted = np.maximum(_FILL * capacity.sum(axis=0) - used.sum(axis=0), 0.0)
    demand = np.maximum(np.floor(size / size.sum(axis=0) * wanted), 1.0)
    return Problem.of(capacity, used, demand)
