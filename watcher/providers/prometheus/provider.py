"""Provider for Prometheus and servers with its query API: Thanos, Mimir, VictoriaMetrics, OpenShift's monitoring.

The module ``queries`` has the PromQL expressions; ``node_name_cache`` finds the node of each series in the responses.
All queries for a window run concurrently; if some fail, the results of the others are used.
"""

import contextlib
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import orjson
import requests
from prometheus_api_client import PrometheusConnect
from urllib3.util.retry import Retry

from runtime import duration
from runtime.http.gather import Deadline, gather
from watcher.errors import ProviderAnswerError, ProviderError
from watcher.findings import Action, Finding, Kind
from watcher.model import Metric, MetricType, NodeMetrics, Operator, Window
from watcher.providers.base import Check, Fetched
from watcher.providers.node_names import NodeLabels, Resolved, most_by_node, without_port
from watcher.providers.own_labels import both_forms
from watcher.providers.prometheus.node_name_cache import NodeNameCache
from watcher.providers.prometheus.queries import NO_PRESSURE, STEP, Expression, ResourceQuery, queries, value_of
from watcher.providers.prometheus.shared_names import SharedName, SharedNames
from watcher.providers.session import ProviderSession, bearer, provider_error
from watcher.settings import Settings, without_credentials

if TYPE_CHECKING:
    from watcher.providers.prometheus.past import PastQueries
    from watcher.providers.prometheus.pod_use import PodUseQueries
    from watcher.windows.container_use import ContainerUse
    from watcher.windows.past_container_use import PastContainerUse
    from watcher.windows.past_metrics import PastMetrics

DEFAULT_ADDRESS = "http://prometheus-k8s:9090"
_NODE_LABELS = ("node", "Hostname", "instance")
_SHARED_SECONDS = 3600  # for which a node is served although several machines have its name
_ABSENT_EXPIRY_SECONDS = 600  # retry interval for an optional metric without series

_Rows = list[tuple[NodeLabels, float]]  # node labels and value of each series

#: Queries in addition to the metrics, and their names in findings.
_EXTRA_QUERIES = {
    "names": "the nodes' names",
    "gaps": "the coverage of the window",
}


@dataclass(slots=True)
class _QueryAnswer:
    """Result of a query for one metric.

    Attributes:
        expression: the alternative expression that has series.
        values: the node labels and the value of each series.
        warnings: the warnings in Prometheus' response.
    """

    expression: Expression
    values: _Rows = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


_Found = list[tuple[tuple[ResourceQuery, Operator], _QueryAnswer]]


class PrometheusProvider:
    """Provider that lets Prometheus compute each window, with functions such as ``avg_over_time``."""

    def __init__(self, settings: Settings) -> None:
        options = settings.prometheus
        self.address = settings.provider.address or DEFAULT_ADDRESS
        self._shown = without_credentials(self.address)
        self._queries = queries(options)
        self.pressure_absence = NO_PRESSURE if options.pressure else "prometheus.pressure is false"
        self._operators = settings.watch.operators
        self._timed_window = max(settings.watch.windows, key=duration.seconds)  # one window per fetch is enough
        self._most_percent = 100 * settings.watch.max_sample_ratio
        # The longest window contains the others: they are checked only while it has something to find.
        self._has_gaps = self._has_refused = True
        self._matchers = options.matchers
        self._labels = options.node_label or both_forms(_NODE_LABELS)
        self._node_labels = tuple(self._labels.split(", "))
        self._seen = threading.local()
        self._session = ProviderSession(settings.provider, bearer(settings.provider), self._note_warnings)
        self._connect = PrometheusConnect(self.address, session=self._session, retry=Retry(total=0))
        self._chosen: dict[ResourceQuery, Expression] = {}
        self._absent_until: dict[ResourceQuery, float] = {}
        self._has_own_label = bool(options.node_label)
        self._names = NodeNameCache(self._run, self._matchers, has_own_label=self._has_own_label)
        self._shared_names = SharedNames(self._run, self._matchers, self._node_labels_of)
        self._lacking: dict[tuple[ResourceQuery, str], tuple[frozenset[str], float]] = {}
        self._pods: PodUseQueries | None = None
        self._past: PastQueries | None = None

    def fetch(self, window: Window, deadline: Deadline) -> Fetched:
        """Return every node's metrics over the window.

        Raises:
            ProviderError: every query failed, or none has series.
        """
        is_timed = window.duration == self._timed_window
        calls: dict[Any, Any] = {
            (query, operator): partial(self._ask, query, operator, window, deadline)
            for query in self._due_queries()
            for operator in self._operators
        }
        if is_timed or self._has_gaps:
            calls["gaps"] = partial(self._ask_required, Expression.gaps, window, deadline)
        if names_due := self._names.are_due():
            calls["names"] = partial(self._names.read, window.end, deadline)
        answers = gather(calls, deadline, give_up=self._session.abort)
        # Failures of names and gaps are findings only: the metrics are usable without them.
        extra_answers = {key: answers.pop(key, None) for key in _EXTRA_QUERIES}
        gaps = extra_answers["gaps"]
        findings = [
            Finding(
                Kind.QUERY_FAILED, f"{_EXTRA_QUERIES[key]} cannot be read: {self._translated(answer)}", window.duration
            )
            for key, answer in extra_answers.items()
            if isinstance(answer, Exception)
        ]
        failures = {key: self._translated(answer) for key, answer in answers.items() if isinstance(answer, Exception)}
        succeeded = {key: answer for key, answer in answers.items() if isinstance(answer, _QueryAnswer)}
        for (query, operator), problem in failures.items():
            findings.append(Finding(Kind.QUERY_FAILED, f"{operator}: {problem}", window.duration, metric=query.name))
        # Map the series to nodes, and serve the metrics that there are, even if some queries failed.
        found = list(succeeded.items())
        resolved = self._names.resolve_fetched(_labels_of(found), window, deadline, just_read=names_due)
        if further := self._ask_further(succeeded, resolved, window, deadline):
            found += further
            resolved = self._names.resolve(_labels_of(found))
        findings += self._recompute_refused(found, resolved, window, deadline)
        nodes = self._by_node(found, resolved, window.duration, findings)
        if not nodes:
            raise next(iter(failures.values()), ProviderAnswerError(self._describe_empty_result()))
        coverage = _lowest([most_by_node(rows, resolved) for rows in gaps] if isinstance(gaps, list) else [])
        for node in coverage.keys() & nodes.keys():
            nodes[node] = replace(nodes[node], metadata={"coverage": round(coverage[node], 4)})
        self._mark_shared_names(nodes, window, deadline, findings)
        # Only windows with gaps can have a stopped node, so the times need no queries in most fetches.
        newest = {}
        if is_timed:
            self._has_gaps = bool(coverage) or not isinstance(gaps, list)
        if coverage and is_timed:
            with contextlib.suppress(Exception):  # the gaps are reported already
                newest = self._newest(resolved, window, deadline)
        return Fetched(nodes, tuple(findings), newest=newest)

    def pod_use(self, window: Window, deadline: Deadline) -> "ContainerUse":
        """Return the use of every container, from the series of cAdvisor.

        Raises:
            ProviderError: there are no series, or nothing can be read.
        """
        if self._pods is None:
            from watcher.providers.prometheus.pod_use import PodUseQueries  # imports numpy

            self._pods = PodUseQueries(self._run, self._matchers, self._translated)
        self._seen.warnings = []
        use = self._pods.fetch(window, deadline)
        partial_answers = [Finding(Kind.PARTIAL_ANSWER, warning) for warning in self._seen.warnings]
        return replace(use, findings=(*use.findings, *partial_answers))

    def past_pod_use(self, ends: range, timeout_seconds: float) -> "Iterator[tuple[tuple[str, ...], PastContainerUse]]":
        """Yield the past use of containers, a part of the namespaces at a time, after their names.

        Raises:
            ProviderError: a query failed.
        """
        from watcher.providers.prometheus.past_pod_use import PastPodUseQueries  # imports numpy

        try:
            yield from PastPodUseQueries(self._run, self._run_range, self._matchers).read(ends, timeout_seconds)
        except Exception as error:
            raise self._translated(error) from error

    def past(self, window: str, ends: range, deadline: Deadline) -> "PastMetrics":
        """Return the metrics of windows that ended in the past, by the expressions that :meth:`fetch` uses.

        Raises:
            ProviderError: a query failed.
        """
        if self._past is None:
            from watcher.providers.prometheus.past import PastQueries  # imports numpy

            names = NodeNameCache(self._run, self._matchers, has_own_label=self._has_own_label)
            self._past = PastQueries(self._run_range, names, self._node_labels_of)
        try:
            return self._past.read(
                [(query, self._alternatives(query)) for query in self._due_queries()],
                lambda expression, operator: expression.over(window, operator, self._matchers, self._labels),
                self._operators,
                ends,
                deadline,
            )
        except Exception as error:
            raise self._translated(error) from error

    def series(self, promql: str, deadline: Deadline) -> Iterator[tuple[Mapping[str, str], float]]:
        """Yield the labels and the present value of each series of a PromQL expression; NaN for an unreadable value.

        Raises:
            ProviderError: the query failed.
        """
        try:
            answer = self._run(promql, None, deadline)
        except Exception as error:
            raise self._translated(error) from error
        yield from ((item["metric"], value_of(item)) for item in answer)

    def check(self) -> Iterator[Check]:
        """Yield the connection, each query, and the matching of its series to nodes."""
        deadline = Deadline.after(10)
        try:
            self._run("vector(1)", None, deadline)
            self._names.read(None, deadline)
        except Exception as error:  # noqa: BLE001  translated
            yield Check("query API", ok=False, message=str(self._translated(error)), setting="provider.address")
            return
        yield Check("query API", ok=True, message=f"{self._shown} answers queries")
        missing: list[ResourceQuery] = []
        for query in self._queries:
            step = f"query {query.type}"
            try:
                expression, series = self._find(query, self._matchers, deadline)
            except Exception as error:  # noqa: BLE001  translated
                yield Check(step, ok=False, message=str(self._translated(error)), setting="prometheus.queries")
                return
            if series:
                self._chosen.setdefault(query, expression)
                yield Check(step, ok=True, message=f"{len(series)} series of {self._printable(expression)}")
                yield self._check_names(query, expression, series, deadline)
            elif query.required:
                missing.append(query)
            else:
                tried = " | ".join(map(self._printable, query.expressions))
                yield Check(step, ok=True, message=f"no series; this metric is optional: {tried}")
        if missing:
            yield self._diagnose(missing, deadline)
        else:
            yield self._check_shared_names(deadline)

    def close(self) -> None:
        """Abort requests in progress and close the connections."""
        self._session.abort()
        self._session.close()

    def _check_names(
        self, query: ResourceQuery, expression: Expression, series: list[dict[str, Any]], deadline: Deadline
    ) -> Check:
        """Return the check of series against nodes, and of a required metric's listed nodes against series."""
        resolved = self._resolve_checked(series, deadline)
        unseen = self._names.listed - {node.name for node in resolved.values()} if query.required else frozenset()
        for further in query.expressions:
            if unseen and further != expression:
                also: list[dict[str, Any]] = []
                with contextlib.suppress(Exception):  # the step names the nodes that remain
                    also = self._run(further.now(self._matchers, self._labels), None, deadline)
                more = self._resolve_checked(also, deadline)
                resolved = {**more, **resolved}
                unseen -= {node.name for node in more.values()}
        problems = [node.problem for node in resolved.values() if node.problem]
        if unseen:
            problems.append(f"{len(unseen)} nodes have no series, such as {', '.join(sorted(unseen)[:5])}")
        more_problems = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        message = f"{problems[0]}{more_problems}" if problems else f"all {len(resolved)} are matched"
        details = tuple(sorted(f"{_joined(labels)} is {node.name or 'no node'}" for labels, node in resolved.items()))
        step, setting = f"query {query.type}: node names", "prometheus.node_label"
        return Check(step, ok=not problems, message=message, setting=setting, details=details)

    def _check_shared_names(self, deadline: Deadline) -> Check:
        step, setting = "one machine for each name", "prometheus.matchers"
        try:
            shared = self._find_shared_names(int(time.time()), deadline)
        except Exception as error:  # noqa: BLE001  translated
            return Check(step, ok=False, message=str(self._translated(error)), setting=setting)
        if not shared:
            return Check(step, ok=True, message="no name has series of several machines")
        node, name = min(shared.items())
        more = f" (and {len(shared) - 1} more nodes)" if len(shared) > 1 else ""
        return Check(step, ok=False, message=f"{node}: {name.message}{more}", setting=setting)

    def _resolve_checked(self, series: list[dict[str, Any]], deadline: Deadline) -> Mapping[NodeLabels, Resolved]:
        labels = frozenset(map(self._node_labels_of, series))
        now = int(time.time())
        return self._names.resolve_fetched(labels, Window("now", now, now), deadline, just_read=True)

    def _diagnose(self, missing: list[ResourceQuery], deadline: Deadline) -> Check:
        """Return one failed step for all queries without series; it tells if ``prometheus.matchers`` excludes them."""
        step = f"query {' and '.join(dict.fromkeys(query.type for query in missing))}"
        tried = " | ".join(self._printable(expression) for query in missing for expression in query.expressions)
        if self._matchers:
            with contextlib.suppress(Exception):  # this query only serves the diagnosis
                if any(self._find(query, "", deadline)[1] for query in missing):
                    message = f"no series with {self._matchers}, but there are series without these matchers: {tried}"
                    return Check(step, ok=False, message=message, setting="prometheus.matchers")
        message = f"no series of {tried}. Has node_exporter been scraped for half a minute?"
        return Check(step, ok=False, message=message, setting="prometheus.queries")

    def _find(self, query: ResourceQuery, matchers: str, deadline: Deadline) -> tuple[Expression, list[dict[str, Any]]]:
        """Return the first of a query's expressions that has series now, and its series.

        If no expression has series, return the first expression and an empty list.
        """
        for expression in query.expressions:
            series = self._run(expression.now(matchers, self._labels), None, deadline)
            if series:
                return expression, series
        return query.expressions[0], []

    def _printable(self, expression: Expression) -> str:
        """Return an expression in a form that can be pasted into Prometheus."""
        return expression.now(self._matchers, self._labels)

    def _ask(self, query: ResourceQuery, operator: Operator, window: Window, deadline: Deadline) -> _QueryAnswer:
        """Query one metric over a window: try the expression that had series last time, then the alternatives."""
        alternatives = self._alternatives(query)
        self._seen.warnings = []
        for expression in alternatives:
            answer = self._ask_one(query, expression, operator, window, deadline)
            if answer.values:
                self._chosen[query] = expression
                return answer
        if not query.required:
            self._absent_until[query] = time.monotonic() + _ABSENT_EXPIRY_SECONDS
        return _QueryAnswer(alternatives[0], [], self._seen.warnings)

    def _ask_further(
        self,
        answers: Mapping[tuple[ResourceQuery, Operator], _QueryAnswer],
        resolved: Mapping[NodeLabels, Resolved],
        window: Window,
        deadline: Deadline,
    ) -> _Found:
        """Query the other expressions of metrics that listed nodes lack, such as rules for some of the nodes.

        Nodes that no expression has are looked for again after some minutes.
        """
        calls: dict[Any, Any] = {}
        for query in self._queries:
            answer = answers.get((query, self._operators[0]))
            if len(query.expressions) == 1 or answer is None or not answer.values:
                continue
            missing = self._names.listed - _nodes_of(answer, resolved)
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
            for (query, operator, _), answer in gather(calls, deadline, give_up=self._session.abort).items()
            if isinstance(answer, _QueryAnswer) and answer.values
        ]
        named = self._names.resolve(_labels_of(further))
        for (query, _), answer in further:
            lacking, until = self._lacking[query, window.duration]
            self._lacking[query, window.duration] = lacking - _nodes_of(answer, named), until
        return further

    def _mark_shared_names(
        self, nodes: dict[str, NodeMetrics], window: Window, deadline: Deadline, findings: list[Finding]
    ) -> None:
        """Mark nodes whose name several machines have; remove them an hour later, unless all nodes are such."""
        try:
            shared = self._find_shared_names(window.end, deadline)
        except Exception as error:  # noqa: BLE001  the metrics are usable, and the next fetch tries again
            message = f"machines with one name cannot be looked for: {self._translated(error)}"
            findings.append(Finding(Kind.QUERY_FAILED, message, window.duration))
            return
        for node in nodes.keys() & shared.keys():
            name = shared[node]
            is_over = window.end - name.since >= _SHARED_SECONDS and not nodes.keys() <= shared.keys()
            if is_over:
                del nodes[node]
            else:
                metadata = {**nodes[node].metadata, "suspect": str(Kind.DUPLICATE)}
                nodes[node] = replace(nodes[node], metadata=metadata)
            action = Action.DROPPED if is_over else Action.MARKED
            findings.append(Finding(Kind.DUPLICATE, name.message, window.duration, node, "", action, name.since))

    def _find_shared_names(self, at: int, deadline: Deadline) -> Mapping[str, SharedName]:
        asked = [(query, self._chosen[query]) for query in self._queries if query.required and query in self._chosen]
        return self._shared_names.names(asked, self._names.resolve, at, deadline)

    def _ask_one(
        self, query: ResourceQuery, expression: Expression, operator: Operator, window: Window, deadline: Deadline
    ) -> _QueryAnswer:
        self._seen.warnings = []
        checked = window.duration == self._timed_window or self._has_refused
        bounds = query.bounds(self._most_percent) if checked else None
        promql = expression.over(window.duration, operator, self._matchers, self._labels, window.end, bounds)
        series = self._run(promql, window.end, deadline)
        return _QueryAnswer(expression, [self._read(item) for item in series], self._seen.warnings)

    def _recompute_refused(
        self,
        found: _Found,
        resolved: Mapping[NodeLabels, Resolved],
        window: Window,
        deadline: Deadline,
    ) -> list[Finding]:
        """Compute the statistics of nodes with samples out of range again, without these; return a finding for each."""
        findings: list[Finding] = []
        has_refused = False
        for (query, operator), answer in found:
            if operator is not Operator.AVG or not answer.expression.is_guarded():
                continue
            low, high = query.bounds(self._most_percent) or (-math.inf, math.inf)
            refused = {labels: resolved[labels].name for labels, value in answer.values if value < low or value > high}
            if not refused:
                continue
            has_refused = True
            from watcher.providers.prometheus.refused import RefusedSeries  # imports numpy

            def run(promql: str, matcher: str) -> list[dict[str, Any]]:
                matchers = ",".join(filter(None, (self._matchers, matcher)))
                filled = promql.replace("$matchers", matchers).replace("$labels", self._labels)
                return self._run(filled, window.end, deadline)

            series = RefusedSeries(run, self._node_labels_of, self._node_labels, self._operators, self._most_percent)
            try:
                computed, counted = series.read(query, answer.expression, refused, window)
            except Exception as error:  # noqa: BLE001  translated; the analyzer drops the values out of range
                message = f"samples out of range cannot be read: {self._translated(error)}"
                findings.append(Finding(Kind.QUERY_FAILED, message, window.duration, metric=query.name))
                continue
            findings += counted
            for (_, other), same in ((key, each) for key, each in found if key[0] is query):
                if same.expression is answer.expression:
                    same.values[:] = [(labels, computed.get((labels, other), value)) for labels, value in same.values]
        if window.duration == self._timed_window:
            self._has_refused = has_refused
        return findings

    def _due_queries(self) -> list[ResourceQuery]:
        """Return the queries except those of optional metrics that had no series lately."""
        now = time.monotonic()
        return [query for query in self._queries if self._absent_until.get(query, 0) <= now]

    def _alternatives(self, query: ResourceQuery) -> list[Expression]:
        """Return a query's expressions; the one that had series last time comes first."""
        return sorted(query.expressions, key=lambda expression: expression != self._chosen.get(query))

    def _ask_required(
        self, promql_of: Callable[[Expression, str, str, str], str], window: Window, deadline: Deadline
    ) -> list[_Rows]:
        """Query the series that each required metric is computed from.

        Args:
            promql_of: a method of :class:`Expression` that returns the PromQL to run, such as ``gaps``.
            window: the window.
            deadline: the deadline of the fetch.
        """
        return [self._ask_about(query, promql_of, window, deadline) for query in self._queries if query.required]

    def _newest(self, resolved: Mapping[NodeLabels, Resolved], window: Window, deadline: Deadline) -> dict[str, float]:
        """Return the time of each node's newest sample, Unix seconds; of its required metrics the oldest counts.

        The time is queried separately, because an average over a window does not show that a series has stopped.
        """
        ended = self._ask_required(Expression.newest_ended, window, deadline)
        alive = self._ask_required(Expression.newest_alive, window, deadline)
        by_node = ([most_by_node(rows, resolved) for rows in answer] for answer in (ended, alive))
        return _lowest([ended | alive for ended, alive in zip(*by_node, strict=True)])

    def _ask_about(
        self,
        query: ResourceQuery,
        promql_of: Callable[[Expression, str, str, str], str],
        window: Window,
        deadline: Deadline,
    ) -> _Rows:
        """Query the series that a metric is computed from.

        Args:
            query: the query of the metric.
            promql_of: a method of :class:`Expression` that returns the PromQL to run, such as ``gaps``.
            window: the window.
            deadline: the deadline of the fetch.

        Returns:
            Node labels and value of each series; empty if the series are unknown or do not exist.
        """
        chosen = self._chosen.get(query)
        for expression in (chosen,) if chosen else query.expressions:
            promql = promql_of(expression, window.duration, self._matchers, self._labels)
            series = self._run(promql, window.end, deadline) if promql else []
            if series:
                return [self._read(item) for item in series]
        return []

    def _by_node(
        self,
        answers: _Found,
        resolved: Mapping[NodeLabels, Resolved],
        window: str,
        findings: list[Finding],
    ) -> dict[str, NodeMetrics]:
        """Return each node's metrics, of each metric by the first expression that has the node."""
        findings += [_unmatched(labels, node, window) for labels, node in resolved.items() if node.problem]
        names = {labels: node.name for labels, node in resolved.items()}
        nodes: dict[str, dict[tuple[str, str], Metric]] = {}
        merged: dict[str, set[str]] = {}
        tags: dict[str, dict[str, str]] = {}
        had: dict[tuple[ResourceQuery, Operator], set[str]] = {}  # nodes that an earlier expression has
        for (query, operator), answer in answers:
            name = answer.expression.name
            for warning in answer.warnings:
                findings.append(Finding(Kind.PARTIAL_ANSWER, warning, window, metric=name))
            if query.required and not answer.values and operator is Operator.AVG:
                findings.append(Finding(Kind.QUERY_FAILED, f"there are no series of {query.type}", window, metric=name))
            expression_tags = _tags(answer.expression) if query.type == MetricType.CPU else {}
            earlier = had.setdefault((query, operator), set())
            counts: dict[str, int] = {}
            key, type_, scale = (name, operator), query.type, query.scale
            for labels, value in answer.values:
                node = names[labels]
                if not node or node in earlier:
                    continue
                metrics = nodes.get(node)
                if metrics is None:
                    metrics = nodes[node] = {}
                percent = value * scale
                if key in metrics:  # the running mean of all replicas
                    counts[node] = counts.get(node, 1) + 1
                    percent = metrics[key].value + (percent - metrics[key].value) / counts[node]
                    merged.setdefault(node, set()).add(name)
                metrics[key] = Metric(name, type_, operator, window, percent)
                if expression_tags:
                    tags[node] = expression_tags
            earlier |= _nodes_of(answer, resolved)
        for node, doubled in merged.items():
            message = "this node has several series: their mean is used; set prometheus.matchers to one replica"
            findings += [
                Finding(Kind.DUPLICATE, message, window, node, name, Action.MERGED) for name in sorted(doubled)
            ]
        return {node: NodeMetrics(tuple(metrics.values()), tags.get(node, {})) for node, metrics in nodes.items()}

    def _run(self, promql: str, at: int | None, deadline: Deadline) -> list[dict[str, Any]]:
        seconds = _remaining_seconds(deadline)
        params = _params(seconds) | ({} if at is None else {"time": str(at)})
        return self._checked(promql, self._connect.custom_query(promql, params=params, timeout=seconds))

    def _run_range(self, promql: str, times: range, deadline: Deadline) -> list[dict[str, Any]]:
        seconds = _remaining_seconds(deadline)
        first, last = (datetime.fromtimestamp(at, UTC) for at in (times[0], times[-1]))
        answer = self._connect.custom_query_range(
            promql, first, last, str(times.step), params=_params(seconds), timeout=seconds
        )
        return self._checked(promql, answer)

    def _checked(self, promql: str, answer: Any) -> list[dict[str, Any]]:
        if not isinstance(answer, list) or not all(isinstance(item, dict) and "metric" in item for item in answer):
            raise ProviderAnswerError(
                f"Prometheus at {self._shown} answered {promql} with something other than a list of series"
            )
        return answer

    def _read(self, series: dict[str, Any]) -> tuple[NodeLabels, float]:
        return self._node_labels_of(series), value_of(series)

    def _node_labels_of(self, series: dict[str, Any]) -> NodeLabels:
        labels = series["metric"]
        return tuple(labels.get(label, "") for label in self._node_labels)

    def _note_warnings(self, response: requests.Response) -> None:
        """Store a response's warnings for :meth:`_ask`: prometheus-api-client drops them, but data may be missing."""
        if b'"warnings"' in response.content:
            self._seen.warnings = [
                str(warning)[:300] for warning in orjson.loads(response.content).get("warnings") or ()
            ]

    def _translated(self, error: Exception) -> ProviderError:
        return provider_error("Prometheus", self.address, error)

    def _describe_empty_result(self) -> str:
        tried = dict.fromkeys(
            expression.now("$matchers", "$labels")
            for query in self._queries
            if query.required
            for expression in query.expressions
        )
        matchers = f" with {self._matchers}" if self._matchers else ""
        return (
            f"Prometheus at {self._shown} has no series of any of: {'; '.join(tried)}{matchers}. "
            "Has node_exporter been scraped for half a minute? "
            "(prometheus.query_set, prometheus.matchers, prometheus.queries)"
        )


def _remaining_seconds(deadline: Deadline) -> float:
    seconds = deadline.remaining_seconds()
    if not seconds:
        raise TimeoutError("the deadline has passed")  # earlier expressions used all of it
    return seconds


def _params(seconds: float) -> dict[str, str]:
    # VictoriaMetrics moves times of the last half minute back, and those of a range to multiples of its step, unless
    # a request is not to be cached. Other servers ignore this.
    return {"timeout": f"{seconds:.3f}", "nocache": "1"}


def _lowest(by_metric: list[dict[str, float]]) -> dict[str, float]:
    """Return each node's lowest value in any of several mappings from node name to value."""
    least: dict[str, float] = {}
    for node, value in (item for values in by_metric for item in values.items()):
        least[node] = min(value, least.get(node, value))
    return least


def _tags(expression: Expression) -> dict[str, str]:
    """Return the tags of the CPU metrics that an expression computes."""
    tags = {"smoothing": expression.smoothing} if expression.smoothing else {}
    return tags if expression.is_selector() else {**tags, "step": STEP}


def _labels_of(answers: "_Found") -> frozenset[NodeLabels]:
    return frozenset(labels for _, answer in answers for labels, _ in answer.values)


def _nodes_of(answer: _QueryAnswer, resolved: Mapping[NodeLabels, Resolved]) -> frozenset[str]:
    return frozenset(resolved[labels].name for labels, _ in answer.values)


def _joined(labels: NodeLabels) -> str:
    return " ".join(filter(None, labels)) or "a series without labels"


def _unmatched(labels: NodeLabels, resolved: Resolved, window: str) -> Finding:
    shown = without_port(next(filter(None, labels), ""))
    action = Action.REPORTED if resolved.name else Action.DROPPED
    message = f"{resolved.problem} (prometheus.node_label)"
    return Finding(Kind.UNMATCHED_NODE, message, window, resolved.name or shown, action=action)
