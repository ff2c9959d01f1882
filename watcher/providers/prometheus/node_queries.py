"""Queries for the metrics of a window: choose alternative expressions, and leave out samples out of range."""

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from runtime.http.gather import Deadline, gather
from watcher.findings import Finding, Kind
from watcher.model import Operator, Window
from watcher.providers.node_names import NodeLabels, Resolved
from watcher.providers.prometheus.answers import Found, LabelNames, QueryAnswer, labels_of, nodes_of
from watcher.providers.prometheus.connection import PrometheusConnection
from watcher.providers.prometheus.node_name_cache import NodeNameCache
from watcher.providers.prometheus.queries import Expression, ResourceQuery

_ABSENT_EXPIRY_SECONDS = 600  # retry interval for an optional metric without series


class NodeQueries:
    """Queries for the metrics of a window, which begin with the expression that had series last time. Thread-safe.

    Args:
        connection: the connection to the Prometheus.
        queries: the queries.
        operators: the operators to compute.
        matchers: label matchers for all series.
        labels: the labels that name a node.
        longest: the longest window, which contains the others. They are checked for samples out of range only while the
            longest window has such samples.

    Attributes:
        queries: the queries.
        chosen: the expression of each query that had series last time.
    """

    def __init__(
        self,
        connection: PrometheusConnection,
        queries: Sequence[ResourceQuery],
        operators: Sequence[Operator],
        matchers: str,
        labels: LabelNames,
        longest: str,
    ) -> None:
        self.queries, self._operators = queries, operators
        self._connection, self._matchers, self._labels = connection, matchers, labels
        self.chosen: dict[ResourceQuery, Expression] = {}
        self._longest, self._has_refused = longest, True
        self._absent_until: dict[ResourceQuery, float] = {}
        self._lacking: dict[tuple[ResourceQuery, str], tuple[frozenset[str], float]] = {}

    def due(self) -> list[ResourceQuery]:
        """Return the queries except those of optional metrics that had no series lately."""
        now = time.monotonic()
        return [query for query in self.queries if self._absent_until.get(query, 0) <= now]

    def alternatives(self, query: ResourceQuery) -> list[Expression]:
        """Return a query's expressions; the one that had series last time comes first."""
        return sorted(query.expressions, key=lambda expression: expression != self.chosen.get(query))

    def ask(self, query: ResourceQuery, operator: Operator, window: Window, deadline: Deadline) -> QueryAnswer:
        """Query one metric over a window: try the expression that had series last time, then the alternatives."""
        alternatives = self.alternatives(query)
        self._connection.forget_warnings()
        for expression in alternatives:
            answer = self._ask_one(query, expression, operator, window, deadline)
            if answer.values:
                self.chosen[query] = expression
                return answer
        if not query.required:
            self._absent_until[query] = time.monotonic() + _ABSENT_EXPIRY_SECONDS
        return QueryAnswer(alternatives[0], [], self._connection.warnings)

    def ask_further(
        self,
        answers: Mapping[tuple[ResourceQuery, Operator], QueryAnswer],
        resolved: Mapping[NodeLabels, Resolved],
        names: NodeNameCache,
        window: Window,
        deadline: Deadline,
    ) -> Found:
        """Query the alternative expressions of metrics for listed nodes that the answers lack.

        Nodes that no expression covers are queried again only after ``_ABSENT_EXPIRY_SECONDS``.
        """
        calls: dict[Any, Any] = {}
        for query in self.queries:
            answer = answers.get((query, self._operators[0]))
            if len(query.expressions) == 1 or answer is None or not answer.values:
                continue
            missing = names.listed - nodes_of(answer, resolved)
            lacking, until = self._lacking.get((query, window.duration), (frozenset(), 0.0))
            if not missing or (missing <= lacking and time.monotonic() < until):
                continue
            self._lacking[query, window.duration] = missing, time.monotonic() + _ABSENT_EXPIRY_SECONDS
            calls |= {
                (query, operator, expression): partial(self._ask_one, query, expression, operator, window, deadline)
                for expression in query.expressions
                if expression != answer.expression
                for operator in self._operators
            }
        if not calls:
            return []
        further = [
            ((query, operator), answer)
            for (query, operator, _), answer in gather(calls, deadline, give_up=self._connection.abort).items()
            if isinstance(answer, QueryAnswer) and answer.values
        ]
        named = names.resolve(labels_of(further))
        for (query, _), answer in further:
            lacking, until = self._lacking[query, window.duration]
            self._lacking[query, window.duration] = lacking - nodes_of(answer, named), until
        return further

    def recompute_refused(
        self, found: Found, resolved: Mapping[NodeLabels, Resolved], window: Window, deadline: Deadline
    ) -> list[Finding]:
        """Compute the statistics of nodes with samples out of range again, without these samples; return findings.

        Args:
            found: the answers, whose values are changed in place.
            resolved: the node of each series.
            window: the window.
            deadline: the deadline of the fetch.
        """
        findings: list[Finding] = []
        has_refused = False
        for (query, operator), answer in found:
            if operator is not Operator.AVG or not answer.expression.is_guarded():
                continue
            low, high = query.bounds() or (-math.inf, math.inf)
            # The average of a window that contains a NaN is NaN, which fails this comparison, too.
            refused = {labels: resolved[labels].name for labels, value in answer.values if not low <= value <= high}
            if not refused:
                continue
            has_refused = True
            from watcher.providers.prometheus.refused import RefusedSeries  # imports numpy

            def run(promql: str, matcher: str) -> list[dict[str, Any]]:
                matchers = ",".join(filter(None, (self._matchers, matcher)))
                filled = promql.replace("$matchers", matchers).replace("$labels", self._labels.by)
                return self._connection.run(filled, window.end, deadline)

            series = RefusedSeries(run, self._labels.of, self._labels.names, self._operators)
            try:
                computed, counted = series.read(query, answer.expression, refused, window)
            except Exception as error:  # noqa: BLE001  translated; the analyzer drops the values out of range
                message = f"samples out of range cannot be read: {self._connection.translated(error)}"
                findings.append(Finding(Kind.QUERY_FAILED, message, window.duration, metric=query.name))
                continue
            findings += counted
            for (_, other), same in ((key, each) for key, each in found if key[0] is query):
                if same.expression is answer.expression:
                    same.values[:] = [(labels, computed.get((labels, other), value)) for labels, value in same.values]
        if window.duration == self._longest:
            answered = {query for (query, operator), _ in found if operator is Operator.AVG}
            self._has_refused = has_refused or any(each.required and each not in answered for each in self.queries)
        return findings

    def now(self, query: ResourceQuery, matchers: str, deadline: Deadline) -> tuple[Expression, list[dict[str, Any]]]:
        """Return the first of a query's expressions that has series now, and its series.

        If no expression has series, return the first expression and an empty list.
        """
        for expression in query.expressions:
            series = self._connection.run(expression.now(matchers, self._labels.by), None, deadline)
            if series:
                return expression, series
        return query.expressions[0], []

    def required(self) -> Iterable[tuple[ResourceQuery, Expression]]:
        """Return the required metrics that have series, with their expressions."""
        return [(query, self.chosen[query]) for query in self.queries if query.required and query in self.chosen]

    def _ask_one(
        self, query: ResourceQuery, expression: Expression, operator: Operator, window: Window, deadline: Deadline
    ) -> QueryAnswer:
        self._connection.forget_warnings()
        is_checked = window.duration == self._longest or self._has_refused
        bounds = query.bounds() if is_checked else None
        promql = expression.over(window.duration, operator, self._matchers, self._labels.by, window.end, bounds)
        series = self._connection.run(promql, window.end, deadline)
        return QueryAnswer(expression, self._labels.rows(series), self._connection.warnings)
