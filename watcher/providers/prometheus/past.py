"""Past windows from Prometheus: the expressions of a fetch, as range queries."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime.http import budget
from runtime.http.gather import Deadline
from watcher.model import Operator
from watcher.providers.node_names import NodeLabels
from watcher.providers.prometheus.node_name_cache import NodeNameCache
from watcher.providers.prometheus.queries import Expression, ResourceQuery
from watcher.windows.past_metrics import PastMetrics, PastSeries

RunRange = Callable[[str, range, Deadline], list[dict[str, Any]]]
_Values = NDArray[np.float64]


class PastQueries:
    """Range queries, one after another, so that they leave the server free for the next fetch.

    Args:
        run: runs a PromQL expression at each time of a range, and returns its series.
        names: names of the nodes, read at the end of each range, because nodes come and go.
        labels_of: returns the node labels of a series.
    """

    def __init__(self, run: RunRange, names: NodeNameCache, labels_of: Callable[[dict[str, Any]], NodeLabels]) -> None:
        self._run, self._names, self._labels_of = run, names, labels_of

    def read(
        self,
        queries: Sequence[tuple[ResourceQuery, Sequence[Expression]]],
        promql_of: Callable[[Expression, Operator], str],
        operators: Sequence[Operator],
        ends: range,
        deadline: Deadline,
    ) -> PastMetrics:
        """Return the metrics of the windows that ended at some times.

        Args:
            queries: each query with its expressions; the first expression that has series is used.
            promql_of: returns the PromQL of an operator over the window.
            operators: the operators.
            ends: the ends of the windows, Unix seconds.
            deadline: time at which everything must have been read.
        """
        self._names.read(ends[-1], deadline)
        rows: dict[str, int] = {}  # node to row
        values: dict[PastSeries, list[tuple[int, _Values]]] = {}
        for query, expressions in queries:
            for operator in operators:
                for expression in expressions:
                    with budget.released():
                        series = self._run(promql_of(expression, operator), ends, deadline)
                        if series:
                            key = (query.type, operator, expression.name)
                            values[key] = [
                                (rows.setdefault(node, len(rows)), _values(item, ends) * query.scale)
                                for node, item in self._by_node(series)
                            ]
                    if series:
                        break
        shape = len(rows), len(ends)
        return PastMetrics(np.array(ends), tuple(rows), {key: _mean(each, shape) for key, each in values.items()})

    def _by_node(self, series: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
        labels = [self._labels_of(item) for item in series]
        resolved = self._names.resolve(labels)
        for each, item in zip(labels, series, strict=True):
            if resolved[each].name:
                yield resolved[each].name, item


def _values(series: dict[str, Any], ends: range) -> _Values:
    """Return the values of a series at each time; NaN where it has none."""
    samples = series["values"]
    if len(samples) == len(ends):
        return np.array([float(text) for _, text in samples])
    values = np.full(len(ends), np.nan)
    for time, text in samples:
        values[(int(time) - ends.start) // ends.step] = float(text)
    return values


def _mean(rows: list[tuple[int, _Values]], shape: tuple[int, int]) -> _Values:
    """Return the mean of all series of each node, shape (nodes, ends); NaN where no series has a value."""
    sums, counts = np.zeros(shape), np.zeros(shape, np.int64)
    for row, values in rows:
        known = np.isfinite(values)
        np.add(sums[row], values, out=sums[row], where=known)
        counts[row] += known
    means: _Values = np.divide(sums, counts, out=np.full(shape, np.nan), where=counts > 0)
    return means
