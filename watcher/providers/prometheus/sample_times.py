"""Gaps in windows, and the times of the newest samples, from the series that the metrics are computed from.

An average over a window shows neither.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from runtime.http.gather import Deadline
from watcher.model import Grade, NodeMetrics, Window
from watcher.providers.node_names import NodeLabels, Resolved, most_by_node
from watcher.providers.prometheus.answers import Found, LabelNames, Rows
from watcher.providers.prometheus.node_name_cache import Run
from watcher.providers.prometheus.queries import Expression, ResourceQuery
from watcher.providers.prometheus.shared_names import Resolve

_ENDED_SECONDS = 120  # a series has ended if another series of the node has samples newer by this


@dataclass(frozen=True, slots=True)
class NodesOf:
    """Lookup of the nodes of series, which reuses the nodes of the fetched series.

    Attributes:
        resolved: the node of each series of the fetch. It is used first, because ``resolve`` caches only the last set
            of series, and resolving 5,000 nodes again would slow down each fetch.
        resolve: returns the node of each other series.
    """

    resolved: Mapping[NodeLabels, Resolved]
    resolve: Resolve

    def by_node(self, rows: Rows, *, only_fetched: bool = False) -> dict[str, float]:
        """Return the highest value among each node's series; with ``only_fetched``, of fetched series only."""
        other = [labels for labels, _ in rows if not only_fetched and labels not in self.resolved]
        return most_by_node(rows, {**self.resolved, **self.resolve(other)} if other else self.resolved)


class SampleTimes:
    """Reads the gaps and the newest samples of required metrics.

    Args:
        run: runs a PromQL expression at a time, in Unix seconds or now, and returns its series.
        matchers: label matchers for all series.
        labels: the labels that name a node.
        queries: the queries of required metrics.
        chosen: the expression of each query that has series; :class:`NodeQueries` changes the mapping.
    """

    def __init__(
        self,
        run: Run,
        matchers: str,
        labels: LabelNames,
        queries: Sequence[ResourceQuery],
        chosen: Mapping[ResourceQuery, Expression],
    ) -> None:
        self._run, self._matchers, self._labels = run, matchers, labels
        self._queries, self._chosen = queries, chosen
        self._unchecked: frozenset[str] = frozenset()

    def gaps(self, window: Window, deadline: Deadline) -> list[Rows]:
        """Return, for each required metric, the share of the window that has samples, for nodes with gaps."""
        return [self._ask(query, Expression.gaps, window, deadline) for query in self._queries]

    def newest(self, nodes_of: NodesOf, window: Window, deadline: Deadline) -> dict[str, float]:
        """Return the time of each node's newest sample, Unix seconds: the earliest over the required metrics."""
        answers = (self._ask(query, Expression.newest, window, deadline) for query in self._queries)
        return _lowest([nodes_of.by_node(rows) for rows in answers])

    def mark(self, nodes: dict[str, NodeMetrics], gaps: Sequence[Rows] | None, nodes_of: NodesOf) -> bool:
        """Set coverage and grade of nodes whose window has gaps, or cannot be checked; return whether any has gaps.

        Args:
            nodes: the nodes, which are changed.
            gaps: result of :meth:`gaps`; None if it is unknown, to set the grades of the last fetch again.
            nodes_of: the node of each series.
        """
        # Prometheus looks back five minutes for a sample, so it also returns series that ended before the window. Only
        # a user's expression may have other labels than its series.
        chosen = [self._chosen.get(query) for query in self._queries] if gaps else []
        shares = [
            nodes_of.by_node(rows, only_fetched=not (expression and expression.is_custom))
            for expression, rows in zip(chosen, gaps or (), strict=True)
        ]
        coverage = {node: share for node, share in _lowest(shares).items() if share < 1}
        for node in coverage.keys() & nodes.keys():
            nodes[node] = replace(nodes[node], metadata={"coverage": round(coverage[node], 4)})
        if gaps is not None:
            self._unchecked = frozenset(
                node
                for expression, share_of in zip(chosen, shares, strict=True)
                if expression and expression.lists_all_shares
                for node in nodes.keys() - share_of.keys()
            )
        for node in self._unchecked & nodes.keys():
            metadata = {**nodes[node].metadata, "grade": Grade.UNCHECKED.value}
            nodes[node] = replace(nodes[node], metadata=metadata)
        return bool(coverage)

    def ended(
        self,
        found: Found,
        resolved: Mapping[NodeLabels, Resolved],
        gaps: Sequence[Rows],
        window: Window,
        deadline: Deadline,
    ) -> frozenset[NodeLabels]:
        """Return the node labels of series whose machine is gone: its node was deleted, or created again.

        The mean over an earlier machine and the present one would be wrong. The times of samples are only queried if a
        node has several series, or if a series with gaps belongs to no node.

        Args:
            found: the answers of the fetch.
            resolved: the node of each series.
            gaps: result of :meth:`gaps`.
            window: the window.
            deadline: the deadline of the fetch.
        """
        ended: set[NodeLabels] = set()
        with_gaps = {labels for rows in gaps for labels, _ in rows}
        series_of: dict[Expression, set[NodeLabels]] = {}  # as deviations may look further back than averages
        for _, answer in found:
            series_of.setdefault(answer.expression, set()).update(labels for labels, _ in answer.values)
        for expression, series in series_of.items():
            unmatched = {labels for labels in with_gaps & series if resolved[labels].problem}
            if not unmatched and len({resolved[labels].name for labels in series}) == len(series):
                continue
            if promql := expression.newest(window.duration, self._matchers, self._labels.by):
                newest = dict(self._labels.rows(self._run(promql, window.end, deadline)))
                latest = most_by_node(newest.items(), resolved)
                of_all = max(newest.values(), default=0)
                for each in series:
                    last = of_all if each in unmatched else latest.get(resolved[each].name, 0)
                    # A rate at the start of the window may be of a series without samples in the window.
                    if newest.get(each, 0) < last - _ENDED_SECONDS:
                        ended.add(each)
        return frozenset(ended)

    def _ask(
        self,
        query: ResourceQuery,
        promql_of: Callable[[Expression, str, str, str], str],
        window: Window,
        deadline: Deadline,
    ) -> Rows:
        """Query the series that a metric is computed from; return no rows if they are unknown or do not exist."""
        chosen = self._chosen.get(query)
        for expression in (chosen,) if chosen else query.expressions:
            promql = promql_of(expression, window.duration, self._matchers, self._labels.by)
            series = self._run(promql, window.end, deadline) if promql else []
            if series:
                return self._labels.rows(series)
        return []


def _lowest(by_metric: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return each node's lowest value in any of several mappings from node name to value."""
    least: dict[str, float] = {}
    for node, value in (item for values in by_metric for item in values.items()):
        least[node] = min(value, least.get(node, value))
    return least
