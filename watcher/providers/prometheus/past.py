"""Past windows from Prometheus: the expressions of a fetch, as range queries."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime.http import budget
from runtime.http.gather import Deadline
from watcher.model import Operator, Window
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
        self._lacking: dict[ResourceQuery, frozenset[str]] = {}  # nodes that no expression has

    def read(
        self,
        queries: Sequence[tuple[ResourceQuery, Sequence[Expression]]],
        promql_of: Callable[[ResourceQuery, Expression, Operator], str],
        operators: Sequence[Operator],
        ends: range,
        deadline: Deadline,
    ) -> PastMetrics:
        """Return the metrics of the windows that ended at the given times.

        Args:
            queries: each query with its expressions; each node has the values of the first expression that has it.
            promql_of: returns the PromQL of an operator over the window.
            operators: the operators.
            ends: the ends of the windows, Unix seconds.
            deadline: time at which everything must have been read.
        """
        self._names.read(ends[-1], deadline)
        rows: dict[str, int] = {}  # node to row
        values: dict[PastSeries, list[tuple[int, _Values]]] = {}
        for query, expressions in queries:
            bounds = query.bounds()
            for operator in operators:
                had: set[str] = set()
                for expression in expressions:
                    with budget.released():
                        series = self._run(promql_of(query, expression, operator), ends, deadline)
                        found = [
                            (node, _values(item, ends, bounds if operator is Operator.AVG else None) * query.scale)
                            for node, item in self._by_node(series, ends[-1], deadline)
                            if node not in had
                        ]
                    if found:
                        key = (query.type, operator, expression.name)
                        # Expressions may have the same name, such as a rule and its definition over raw series.
                        values.setdefault(key, []).extend(
                            (rows.setdefault(node, len(rows)), each) for node, each in found
                        )
                        had.update(node for node, _ in found)
                    missing = self._names.listed - had
                    if had and missing <= self._lacking.get(query, frozenset()):
                        break
                self._lacking[query] = self._names.listed - had if had else frozenset()
        shape = len(rows), len(ends)
        return PastMetrics(np.array(ends), tuple(rows), {key: _mean(each, shape) for key, each in values.items()})

    def _by_node(
        self, series: list[dict[str, Any]], end: int, deadline: Deadline
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        labels = [self._labels_of(item) for item in series]
        # As in a fetch, unknown series are resolved by the pods of exporters.
        resolved = self._names.resolve_fetched(frozenset(labels), Window("past", end, end), deadline, just_read=False)
        for each, item in zip(labels, series, strict=True):
            if resolved[each].name:
                yield resolved[each].name, item


def _values(series: dict[str, Any], ends: range, bounds: tuple[float, float] | None) -> _Values:
    """Return the values of a series at each time; NaN for a missing value, or one that is out of bounds."""
    samples = series["values"]
    if len(samples) == len(ends):
        values = np.array([float(text) for _, text in samples])
    else:
        values = np.full(len(ends), np.nan)
        for time, text in samples:
            values[(int(time) - ends.start) // ends.step] = float(text)
    if bounds is not None:
        values[(values < bounds[0]) | (values > bounds[1])] = np.nan
    return values


def _mean(rows: list[tuple[int, _Values]], shape: tuple[int, int]) -> _Values:
    """Return the mean of all series of each node, shape (nodes, ends); NaN where no series has a value.

    If one series begins later, such as that of a node that was created again, only it counts from then on.
    """
    by_row: dict[int, list[_Values]] = {}
    for row, values in rows:
        by_row.setdefault(row, []).append(values)
    means = np.full(shape, np.nan)
    for row, each in by_row.items():
        series = np.array(each)
        known = np.isfinite(series)
        begins = np.where(known, known.argmax(axis=1)[:, None], -1)
        counted = known & (begins == begins.max(axis=0))
        sums = np.where(counted, series, 0.0).sum(axis=0)
        np.divide(sums, counted.sum(axis=0), out=means[row], where=counted.any(axis=0))
    return means
