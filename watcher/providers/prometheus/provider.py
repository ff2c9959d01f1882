"""Prometheus, and what speaks its query API: Thanos, Mimir, VictoriaMetrics, OpenShift's monitoring.

What is asked stands in ``prometheus_queries``; what its answers are about, in ``prometheus_names``. All queries of a
window run side by side, and a failed one costs only itself.
"""

import contextlib
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

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
from watcher.providers.node_names import Resolved, Words, most_by_node, without_port
from watcher.providers.prometheus.names import NodeNameCache
from watcher.providers.prometheus.queries import STEP, Expression, ResourceQuery, queries
from watcher.providers.session import ProviderSession, bearer, provider_error
from watcher.settings import Settings, without_credentials

DEFAULT_ADDRESS = "http://prometheus-k8s:9090"
_NODE_LABELS = ("node", "Hostname", "instance")
_ABSENT_EXPIRY_SECONDS = 600  # an optional metric that is not there is looked for again after this

_Rows = list[tuple[Words, float]]  # a series' words for its node, and its value

#: What is asked beside the metrics, and how findings call it.
_BESIDE = {
    "names": "the nodes' names",
    "gaps": "how much of the window has samples",
}


@dataclass(slots=True)
class _Answer:
    """What one query brought: the expression that had series, each series' words for its node with its value."""

    expression: Expression
    values: _Rows = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


class PrometheusProvider:
    """Computes windows with Prometheus' own functions over time."""

    def __init__(self, settings: Settings) -> None:
        own = settings.prometheus
        self.address = settings.provider.address or DEFAULT_ADDRESS
        self._shown = without_credentials(self.address)
        self._queries = queries(own)
        self._operators = settings.watch.operators
        self._timed_window = max(settings.watch.windows, key=duration.seconds)  # once a fetch is enough
        self._matchers = own.matchers
        self._words = (own.node_label,) if own.node_label else _NODE_LABELS
        self._labels = ", ".join(self._words)
        self._seen = threading.local()
        self._session = ProviderSession(settings.provider, bearer(settings.provider), self._note_warnings)
        self._connect = PrometheusConnect(self.address, session=self._session, retry=Retry(total=0))
        self._chosen: dict[ResourceQuery, Expression] = {}
        self._absent_until: dict[ResourceQuery, float] = {}
        self._names = NodeNameCache(self._run, self._matchers)

    def fetch(self, window: Window, deadline: Deadline) -> Fetched:
        """Return every node's metrics over the window.

        Raises:
            ProviderError: every query failed, or none found any series.
        """
        now = time.monotonic()
        asked = [query for query in self._queries if self._absent_until.get(query, 0) <= now]
        calls: dict[Any, Any] = {"gaps": partial(self._ask_needed, Expression.gaps, window, deadline)} | {
            (query, operator): partial(self._ask, query, operator, window, deadline)
            for query in asked
            for operator in self._operators
        }
        if names_due := self._names.are_due():
            calls["names"] = partial(self._names.read, window.end, deadline)
        answers = gather(calls, deadline, give_up=self._session.abort)
        beside = {key: answers.pop(key, None) for key in _BESIDE}
        gaps = beside["gaps"]
        findings = [
            Finding(Kind.QUERY_FAILED, f"{_BESIDE[key]} cannot be read: {self._translated(answer)}", window.duration)
            for key, answer in beside.items()
            if isinstance(answer, Exception)
        ]
        failures = {key: self._translated(answer) for key, answer in answers.items() if isinstance(answer, Exception)}
        found = {key: answer for key, answer in answers.items() if isinstance(answer, _Answer)}
        for (query, operator), problem in failures.items():
            findings.append(Finding(Kind.QUERY_FAILED, f"{operator}: {problem}", window.duration, metric=query.name))
        words = frozenset(words for answer in found.values() for words, _ in answer.values)
        resolved = self._names.resolve_fetched(words, window, deadline, just_read=names_due)
        nodes = self._by_node(found, resolved, window.duration, findings)
        if not nodes:
            raise next(iter(failures.values()), ProviderAnswerError(self._nothing_found()))
        coverage = _least([most_by_node(rows, resolved) for rows in gaps] if isinstance(gaps, list) else [])
        for node in coverage.keys() & nodes.keys():
            nodes[node] = replace(nodes[node], metadata={"coverage": round(coverage[node], 4)})
        newest = {}
        if coverage and window.duration == self._timed_window:
            with contextlib.suppress(Exception):  # that they have gaps is said already
                newest = self._newest(resolved, window, deadline)
        return Fetched(nodes, tuple(findings), newest=newest)

    def check(self) -> Iterator[Check]:
        """Yield the connection, each query, and how series are matched to nodes."""
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
                yield from self._check_series(step, self._shown_query(expression), series)
            elif query.required:
                missing.append(query)
            else:
                tried = " | ".join(map(self._shown_query, query.expressions))
                yield Check(step, ok=True, message=f"not there, and not needed: {tried}")
        if missing:
            yield self._blame(missing, deadline)

    def close(self) -> None:
        """End what is under way and close the connections."""
        self._session.abort()
        self._session.close()

    def _check_series(self, step: str, shown: str, series: list[dict[str, Any]]) -> Iterator[Check]:
        resolved = self._names.resolve(self._read(item)[0] for item in series)
        yield Check(step, ok=True, message=f"{len(series)} series of {shown}")
        bad = [each.problem for each in resolved.values() if each.problem]
        more = f" (and {len(bad) - 1} more)" if len(bad) > 1 else ""
        message = f"{bad[0]}{more}" if bad else f"all {len(resolved)} are matched"
        became = tuple(sorted(f"{_shown_words(words)} is {each.name}" for words, each in resolved.items()))
        setting = "prometheus.node_label"
        yield Check(f"{step}: node names", ok=not bad, message=message, setting=setting, details=became)

    def _blame(self, missing: list[ResourceQuery], deadline: Deadline) -> Check:
        """Say once what is missing, and whether the matchers are why."""
        step = f"query {' and '.join(dict.fromkeys(query.type for query in missing))}"
        tried = " | ".join(self._shown_query(each) for query in missing for each in query.expressions)
        if self._matchers:
            with contextlib.suppress(Exception):  # that it cannot be told says nothing against the rest
                if any(self._find(query, "", deadline)[1] for query in missing):
                    message = f"no series with {self._matchers}, but there are without: {tried}"
                    return Check(step, ok=False, message=message, setting="prometheus.matchers")
        message = f"no series of {tried}. Is node_exporter scraped, and for half a minute already?"
        return Check(step, ok=False, message=message, setting="prometheus.queries")

    def _find(self, query: ResourceQuery, matchers: str, deadline: Deadline) -> tuple[Expression, list[dict[str, Any]]]:
        """Return the first expression that has series now, with them; the first without any where none has."""
        for expression in query.expressions:
            series = self._run(expression.now(matchers, self._labels), None, deadline)
            if series:
                return expression, series
        return query.expressions[0], []

    def _shown_query(self, expression: Expression) -> str:
        """Return an expression as it can be pasted into Prometheus."""
        return expression.now(self._matchers, self._labels)

    def _ask(self, query: ResourceQuery, operator: Operator, window: Window, deadline: Deadline) -> _Answer:
        """Ask with the expression that had series last time, and with the others in turn if it has none now."""
        chosen = self._chosen.get(query, query.expressions[0])
        self._seen.warnings = []
        for expression in (chosen, *(each for each in query.expressions if each != chosen)):
            series = self._run(
                expression.over(window.duration, operator, self._matchers, self._labels), window.end, deadline
            )
            if series:
                self._chosen[query] = expression
                return _Answer(expression, [self._read(item) for item in series], self._seen.warnings)
        if not query.required:
            self._absent_until[query] = time.monotonic() + _ABSENT_EXPIRY_SECONDS
        return _Answer(chosen, [], self._seen.warnings)

    def _ask_needed(
        self, promql_of: Callable[[Expression, str, str, str], str], window: Window, deadline: Deadline
    ) -> list[_Rows]:
        """Ask about the series of each needed metric."""
        return [self._ask_about(query, promql_of, window, deadline) for query in self._queries if query.required]

    def _newest(self, resolved: Mapping[Words, Resolved], window: Window, deadline: Deadline) -> dict[str, float]:
        """Return when each node was measured last: its averages stay for as long as the window, whatever stopped."""
        ended = self._ask_needed(Expression.newest_ended, window, deadline)
        alive = self._ask_needed(Expression.newest_alive, window, deadline)
        by_node = ([most_by_node(rows, resolved) for rows in answer] for answer in (ended, alive))
        return _least([ended | alive for ended, alive in zip(*by_node, strict=True)])

    def _ask_about(
        self, query: ResourceQuery, promql_of: Callable[[Expression, str, str, str], str], window: Window, deadline: Deadline
    ) -> _Rows:
        """Ask about the series that a metric is computed from; nothing when they are not known, or there are none."""
        chosen = self._chosen.get(query)
        for expression in (chosen,) if chosen else query.expressions:
            promql = promql_of(expression, window.duration, self._matchers, self._labels)
            series = self._run(promql, window.end, deadline) if promql else []
            if series:
                return [self._read(item) for item in series]
        return []

    def _by_node(
        self,
        found: dict[tuple[ResourceQuery, Operator], _Answer],
        resolved: Mapping[Words, Resolved],
        window: str,
        findings: list[Finding],
    ) -> dict[str, NodeMetrics]:
        findings += [_unmatched(words, each, window) for words, each in resolved.items() if each.problem]
        names = {words: each.name for words, each in resolved.items()}
        nodes: dict[str, dict[tuple[str, str], Metric]] = {}
        merged: dict[str, set[str]] = {}
        tags: dict[str, str] = {}
        for (query, operator), answer in found.items():
            name = answer.expression.name
            for warning in answer.warnings:
                findings.append(Finding(Kind.PARTIAL_ANSWER, warning, window, metric=name))
            if query.required and not answer.values and operator is Operator.AVG:
                findings.append(Finding(Kind.QUERY_FAILED, f"there are no series of {query.type}", window, metric=name))
            if query.type == MetricType.CPU and answer.values:
                tags |= {"smoothing": answer.expression.smoothing} if answer.expression.smoothing else {}
                tags |= {} if answer.expression.is_selector() else {"step": STEP}
            counts: dict[str, int] = {}
            key, type_, scale = (name, operator), query.type, query.scale
            for words, value in answer.values:
                node = names[words]
                metrics = nodes.get(node)
                if metrics is None:
                    metrics = nodes[node] = {}
                percent = value * scale
                if key in metrics:  # the mean of all replicas, whatever order they come in
                    counts[node] = counts.get(node, 1) + 1
                    percent = metrics[key].value + (percent - metrics[key].value) / counts[node]
                    merged.setdefault(node, set()).add(name)
                metrics[key] = Metric(name, type_, operator, window, percent)
        for node, doubled in merged.items():
            message = "several series are about this node: the mean is used; set prometheus.matchers to one replica"
            findings += [
                Finding(Kind.DUPLICATE, message, window, node, name, Action.MERGED) for name in sorted(doubled)
            ]
        nodes.pop("", None)
        return {node: NodeMetrics(tuple(metrics.values()), tags) for node, metrics in nodes.items()}

    def _run(self, promql: str, at: int | None, deadline: Deadline) -> list[dict[str, Any]]:
        seconds = deadline.remaining_seconds()
        if not seconds:
            raise TimeoutError("no time is left")  # the expressions before this one took it
        params = {"timeout": f"{seconds:.3f}", **({} if at is None else {"time": str(at)})}
        answer = self._connect.custom_query(promql, params=params, timeout=seconds)
        if not isinstance(answer, list) or not all(isinstance(item, dict) and "metric" in item for item in answer):
            raise ProviderAnswerError(f"Prometheus at {self._shown} answered {promql} with no list of series")
        return answer

    def _read(self, series: dict[str, Any]) -> tuple[Words, float]:
        try:
            value = float(series["value"][1])
        except (LookupError, TypeError, ValueError):
            value = math.nan  # costs one value, and a finding
        labels = series["metric"]
        return tuple(labels.get(word, "") for word in self._words), value

    def _note_warnings(self, response: requests.Response) -> None:
        """Keep what prometheus-api-client drops: warnings of an answer that may be partial."""
        if b'"warnings"' in response.content:
            self._seen.warnings = [str(each)[:300] for each in orjson.loads(response.content).get("warnings") or ()]

    def _translated(self, error: Exception) -> ProviderError:
        return provider_error("Prometheus", self.address, error)

    def _nothing_found(self) -> str:
        tried = dict.fromkeys(each.promql for query in self._queries if query.required for each in query.expressions)
        matchers = f" with {self._matchers}" if self._matchers else ""
        return (
            f"Prometheus at {self._shown} has no series of any of: {'; '.join(tried)}{matchers}. "
            "Is node_exporter scraped, and for half a minute already? "
            "(prometheus.query_set, prometheus.matchers, prometheus.queries)"
        )


def _least(by_metric: list[dict[str, float]]) -> dict[str, float]:
    """Return the lowest value of each node."""
    least: dict[str, float] = {}
    for node, value in (item for each in by_metric for item in each.items()):
        least[node] = min(value, least.get(node, value))
    return least


def _shown_words(words: Words) -> str:
    return " ".join(filter(None, words)) or "what has no label"


def _unmatched(words: Words, resolved: Resolved, window: str) -> Finding:
    shown = without_port(next(filter(None, words), ""))
    return Finding(Kind.UNMATCHED_NODE, f"{resolved.problem} (prometheus.node_label)", window, resolved.name or shown)
