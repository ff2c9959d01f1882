"""InfluxDB with Telegraf's measurements: 1.x by InfluxQL (``/query``), 2.x by Flux (``/api/v2/query``).

``telegraf:cpu:percent`` is 100 minus the idle time of all processors (``cpu``, ``usage_idle``, ``cpu=cpu-total``);
``telegraf:memory:percent`` is the memory that is not available (``mem``, ``available_percent``, else ``used_percent``).
The settings can add other measurements. InfluxDB computes the statistics of each window from the raw samples, so mean
and population deviation are exact. All queries run concurrently; if some fail, the results of the others are used.
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from runtime import duration
from runtime.http.gather import Deadline
from watcher.errors import ProviderAnswerError, ProviderError
from watcher.findings import Action, Finding, Kind
from watcher.model import SLACK_PERCENT, Metric, NodeMetrics, Operator, Window
from watcher.providers.base import Check, Fetched
from watcher.providers.influxdb.api import InfluxDbApi, Version
from watcher.providers.influxdb.queries import (
    COUNT,
    LARGEST,
    SMALLEST,
    TIME,
    Bounds,
    Statistics,
    combined,
    flux,
    flux_newest,
    influxql,
    influxql_newest,
    percent,
    queries,
    separated,
)
from watcher.providers.influxdb.results import InfiniteValueError, QueryResult
from watcher.providers.node_names import NodeLabels, NodeNames, Resolved, most_by_node
from watcher.settings import InfluxDbQuery, Settings
from watcher.windows.shared_names import SharedNameMemory, mark_shared_names

_CHECK_SECONDS = 10


@dataclass(frozen=True, slots=True)
class _QueryAnswer:
    """Result of a query.

    Attributes:
        query: the first alternative query that has samples.
        series: the node labels of each series, and its statistics.
        newest: the node labels of each series, and the time of its newest sample in Unix seconds; empty if not
            requested.
        findings: the problems found in the response.
    """

    query: InfluxDbQuery
    series: list[tuple[NodeLabels, Statistics]]
    newest: list[tuple[NodeLabels, float]]
    findings: tuple[Finding, ...]


class InfluxDbProvider:
    """Provider that lets InfluxDB compute each window, with functions such as ``MEAN``."""

    def __init__(self, settings: Settings) -> None:
        """Prepare the provider; nothing is sent yet.

        Raises:
            SettingsError: InfluxDB 2.x needs an organization and a token, and one is missing.
        """
        options = self._options = settings.influxdb
        self._api = InfluxDbApi(settings)
        self._queries = queries(options)
        self._chosen: dict[str, InfluxDbQuery] = {}
        self._operators = settings.watch.operators
        self._timed_window = max(settings.watch.windows, key=duration.seconds)  # one window per fetch is enough
        self._names = NodeNames.unknown()
        self._memory = SharedNameMemory()

    def fetch(self, window: Window, deadline: Deadline) -> Fetched:
        """Return every node's metrics over the window.

        Raises:
            ProviderError: every query failed, or none has samples.
        """
        version = self._api.version(deadline)
        answers = self._ask_all(version, window, deadline)
        findings: list[Finding] = []
        failures: list[ProviderError] = []
        nodes: dict[str, list[Metric]] = {}
        shared: dict[str, str] = {}
        newest: dict[str, float] = {}
        for name, answer in answers.items():
            if isinstance(answer, ProviderError):
                failures.append(answer)
                findings.append(Finding(Kind.QUERY_FAILED, str(answer), window.duration, metric=name))
                continue
            if not answer.series:
                message = f"there are no samples of {_fields(self._queries[name])} (influxdb.queries)"
                findings.append(Finding(Kind.QUERY_FAILED, message, window.duration, metric=name))
            resolved = self._names.resolve_all(labels for labels, _ in answer.series)
            of_nodes, of_several = self._by_node(name, answer, resolved, window, findings)
            shared |= of_several
            for node, statistics in of_nodes.items():
                nodes.setdefault(node, []).extend(
                    Metric(name, answer.query.type, operator, window.duration, statistics.values[operator])
                    for operator in self._operators
                    if operator in statistics.values
                )
            for node, time_ in most_by_node(answer.newest, resolved).items():
                newest[node] = max(time_, newest.get(node, time_))
        # Another server may listen at the address now, with another version.
        if not nodes:
            self._api.doubt_version()
            if failures:
                raise failures[0]
            raise ProviderAnswerError(self._describe_empty_result(version, window, answers))
        served = {node: NodeMetrics(tuple(metrics)) for node, metrics in nodes.items()}
        mark_shared_names(served, self._memory.noticed(shared, window), window, findings)
        return Fetched(served, tuple(findings), newest=newest)

    def check(self) -> Iterator[Check]:
        """Yield a step for the version, then steps for each query: its nodes, their names and the range of values."""
        deadline = Deadline.after(_CHECK_SECONDS)
        try:
            version = self._api.version(deadline)
        except ProviderError as error:
            yield Check("version", ok=False, message=str(error), setting=self._api.remedy(error))
            return
        language = "InfluxQL" if version == "1" else "Flux"
        yield Check(
            "version", ok=True, message=f"{self._api.where} is queried in {language}", setting="influxdb.version"
        )
        now = int(time.time())
        window = Window("5m", now - 300, now)
        for name, answer in self._ask_all(version, window, deadline).items():
            step = f"query {name}"
            if isinstance(answer, ProviderError):
                yield Check(step, ok=False, message=str(answer), setting=self._api.remedy(answer))
                continue
            findings: list[Finding] = []
            resolved = self._names.resolve_all(labels for labels, _ in answer.series)
            nodes, shared = self._by_node(name, answer, resolved, window, findings)
            findings += [Finding(Kind.DUPLICATE, message, node=node) for node, message in shared.items()]
            averages = [
                statistics.values[Operator.AVG] for statistics in nodes.values() if Operator.AVG in statistics.values
            ]
            if not answer.series:
                message = f"no samples of {_fields(self._queries[name])} in the last 5 minutes"
                yield Check(step, ok=False, message=message, setting="influxdb.queries")
            elif averages:
                low, high = min(averages), max(averages)
                plausible = low >= -SLACK_PERCENT and high <= 100 + SLACK_PERCENT
                message = f"{len(averages)} nodes, {low:.4g} to {high:.4g} percent" + (
                    "" if plausible else ": these are not percent of capacity; is the scale right?"
                )
                yield Check(step, ok=plausible, message=message, setting="influxdb.queries")
            for finding in findings:
                setting = "influxdb.host_tag" if finding.kind is Kind.UNMATCHED_NODE else "influxdb.queries"
                prefix = f"{finding.node}: " if finding.node else ""
                yield Check(f"{step}: nodes", ok=False, message=prefix + finding.message, setting=setting)

    def close(self) -> None:
        """Close the connections."""
        self._api.close()

    def _ask_all(self, version: Version, window: Window, deadline: Deadline) -> dict[str, _QueryAnswer | ProviderError]:
        calls = {name: partial(self._ask, name, version, window, deadline) for name in self._queries}
        return self._api.gather(calls, deadline)

    def _ask(self, name: str, version: Version, window: Window, deadline: Deadline) -> _QueryAnswer:
        """Query one metric over a window: try the alternative that had samples last time, then the others."""
        alternatives = self._queries[name]
        chosen = self._chosen.get(name, alternatives[0])
        for query in (chosen, *(other for other in alternatives if other is not chosen)):
            result = self._ask_alternative(name, query, version, window, deadline)
            if result.series:
                self._chosen[name] = query
                return result
        return result

    def _ask_alternative(
        self, name: str, query: InfluxDbQuery, version: Version, window: Window, deadline: Deadline
    ) -> _QueryAnswer:
        findings = []
        try:
            answer = self._statistics(query, version, window, None, deadline)
        except InfiniteValueError:
            # Absurd samples of one node make the response impossible for all nodes: repeat without such samples.
            answer = self._statistics(query, version, window, Bounds(), deadline)
            message = f"samples of {query.measurement}.{query.field} too large to add up are left out"
            findings.append(Finding(Kind.NOT_FINITE, message, window.duration, metric=name, action=Action.DROPPED))
        if answer.partial:
            message = "InfluxDB reports that its response is partial (its max-row-limit)"
            findings.append(Finding(Kind.PARTIAL_ANSWER, message, window.duration, metric=name))
        findings += self._without_wrong_samples(name, query, version, window, answer, deadline)
        rows = [(tags, percent(query, columns, sample_deviation=version == "1")) for tags, columns in answer.series]
        series = [(self._host(tags), replace(each, tags=tags)) for tags, each in rows if each is not None]
        newest: list[tuple[NodeLabels, float]] = []
        has_several = query.combine == "one" and len({labels for labels, _ in series}) < len(series)
        if series and (has_several or window.duration == self._timed_window):
            try:
                times = self._ask_newest(query, version, window, deadline)
                newest = [(self._host(tags), at) for tags, at in times if window.duration == self._timed_window]
                by_tags = {tuple(sorted(tags.items())): at for tags, at in times}
                series = [
                    (labels, replace(each, newest=by_tags.get(tuple(sorted(each.tags.items())), 0.0)))
                    for labels, each in series
                ]
            except Exception as error:  # noqa: BLE001  translated
                message = f"the times of the newest samples cannot be read: {self._api.translated(error)}"
                findings.append(Finding(Kind.QUERY_FAILED, message, window.duration, metric=name))
        return _QueryAnswer(query, series, newest, tuple(findings))

    def _statistics(
        self, query: InfluxDbQuery, version: Version, window: Window, bounds: Bounds | None, deadline: Deadline
    ) -> QueryResult:
        if version == "2":
            return self._api.flux(flux(query, self._operators, window, self._options.bucket, bounds), deadline)
        statement = influxql(query, self._operators, window, self._options.retention_policy, bounds)
        return self._api.influxql(statement, deadline)

    def _without_wrong_samples(
        self, name: str, query: InfluxDbQuery, version: Version, window: Window, answer: QueryResult, deadline: Deadline
    ) -> list[Finding]:
        """Compute the statistics of hosts with samples out of range again, from their other samples.

        Returns:
            A finding for each of these hosts.
        """
        bounds = Bounds.of(query)
        refused = [tags for tags, columns in answer.series if bounds.refuse(columns)]
        if not refused:
            return []
        hosts = (str(tags.get(self._options.host_tag, "")) for tags in refused)
        only = bounds.only(self._options.host_tag, hosts)
        try:
            again = self._statistics(query, version, window, only, deadline).series
        except Exception as error:  # noqa: BLE001  translated; the analyzer drops averages out of range
            message = f"samples out of range cannot be left out: {self._api.translated(error)}"
            return [Finding(Kind.QUERY_FAILED, message, window.duration, metric=name)]
        from watcher.windows.sample_range import left_out  # imports numpy

        right = {tuple(sorted(tags.items())): columns for tags, columns in again}
        findings = []
        for tags, columns in answer.series:
            known = right.get(tuple(sorted(tags.items())))
            if not bounds.refuse(columns) or known is None:
                continue
            is_low = columns.get(SMALLEST, bounds.lowest) < bounds.lowest
            example = query.offset + query.scale * columns[SMALLEST if is_low else LARGEST]
            total = int(columns.get(COUNT, 0))
            numbers = total - int(known.get(COUNT, 0)), total, example
            findings.append(left_out(self._host(tags)[0], name, window.duration, *numbers))
            columns.clear()
            columns.update(known)
        return findings

    def _ask_newest(
        self, query: InfluxDbQuery, version: Version, window: Window, deadline: Deadline
    ) -> list[tuple[Mapping[str, Any], float]]:
        """Return the tags of each series and the time of its newest sample, to detect stopped series.

        A window's average does not show this: it remains for a whole window after the series has stopped. The time has
        a request of its own, because InfluxDB 1.6 does not report why one of several statements in a request failed.
        """
        if version == "2":
            answer = self._api.flux(flux_newest(query, window, self._options.bucket), deadline)
        else:
            answer = self._api.influxql(influxql_newest(query, window, self._options.retention_policy), deadline)
        return [(tags, columns[TIME]) for tags, columns in answer.series if TIME in columns]

    def _by_node(
        self,
        name: str,
        result: _QueryAnswer,
        resolved: Mapping[NodeLabels, Resolved],
        window: Window,
        findings: list[Finding],
    ) -> tuple[dict[str, Statistics], dict[str, str]]:
        """Return each node's statistics, and the node names that several machines share; add problems to findings."""
        findings += result.findings
        for labels, node_name in resolved.items():
            if node_name.problem:
                message = f"{node_name.problem} (influxdb.host_tag = {self._options.host_tag!r})"
                findings.append(Finding(Kind.UNMATCHED_NODE, message, window.duration, labels[0], name))
        series: dict[str, list[Statistics]] = {}
        for labels, statistics in result.series:
            if resolved[labels].name:
                series.setdefault(resolved[labels].name, []).append(statistics)
        shared: dict[str, str] = {}
        if result.query.combine == "one":
            for node, parts in series.items():
                series[node], shared[node] = separated(parts)
        nodes = {node: combined(result.query, node_series) for node, node_series in series.items()}
        for node, statistics in nodes.items():
            if len(series[node]) > 1 and not shared.get(node) and result.query.combine == "one":
                message = f"this node has {len(series[node])} series: all their samples are used (influxdb.queries)"
                findings.append(Finding(Kind.DUPLICATE, message, window.duration, node, name, Action.MERGED))
            if statistics.count == 1:
                message = "there is only one sample: its deviation of 0 has no meaning"
                findings.append(Finding(Kind.LOW_COVERAGE, message, window.duration, node, name))
        return nodes, {node: message for node, message in shared.items() if message}

    def _host(self, tags: Mapping[str, Any]) -> NodeLabels:
        tag = tags.get(self._options.host_tag)
        host = tag if isinstance(tag, str) else ""
        return (host.removesuffix(self._options.host_name_suffix) or host,)

    def _describe_empty_result(
        self, version: Version, window: Window, answers: dict[str, _QueryAnswer | ProviderError]
    ) -> str:
        options = self._options
        if any(isinstance(answer, _QueryAnswer) and answer.series for answer in answers.values()):
            return f"{self._api.where} has samples, but none with the tag {options.host_tag!r} (influxdb.host_tag)"
        fields = " nor ".join(_fields(alternatives) for alternatives in self._queries.values())
        place = (
            f"bucket {options.bucket!r} (influxdb.bucket)"
            if version == "2"
            else f"database {options.database!r} (influxdb.database, influxdb.retention_policy)"
        )
        return (
            f"{self._api.where} has no samples of {fields} in the last {window.duration} in {place}. Does "
            "Telegraf write there? (influxdb.queries)"
        )


def _fields(alternatives: tuple[InfluxDbQuery, ...]) -> str:
    return " or ".join(f"{query.measurement}.{query.field}" for query in alternatives)
