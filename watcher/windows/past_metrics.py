"""Metrics of windows that ended in the past, as arrays."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

#: Type, operator and name of a metric.
PastSeries = tuple[str, str, str]


@dataclass(frozen=True, slots=True, eq=False)
class PastMetrics:
    """Metrics of nodes over several windows of equal length, which ended in the past.

    Attributes:
        ends: end of each window, Unix seconds, ascending, shape (ends,).
        nodes: names of the nodes, each once.
        series: each metric's values in percent of capacity, shape (nodes, ends); NaN where there is no value.
    """

    ends: NDArray[np.int64]
    nodes: tuple[str, ...]
    series: Mapping[PastSeries, NDArray[np.float64]]
