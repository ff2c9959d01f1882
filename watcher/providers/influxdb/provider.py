"""InfluxDB, as Telegraf fills it: 1.x by InfluxQL (``/query``), 2.x by Flux (``/api/v2/query``).

``telegraf:cpu:percent`` is 100 minus the idle time of all processors (``cpu``, ``usage_idle``, ``cpu=cpu-total``);
``telegraf:memory:percent`` what is not available (``mem``, ``available_percent``, else ``used_percent``). What else
there is can be asked for in the settings. InfluxDB computes the windows from the samples themselves; their mean and
population deviation are exact. All queries run side by side, and a failed one costs only itself.
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from runtime import duration
from runtime.http.gather import Deadline
from watcher.errors import ProviderAnswerError, ProviderError
from watcher.findings import Action, Finding, Kind
from watcher.model import SLACK_PERCENT, Metric, NodeMetrics, Operator, Window
from watcher.providers.base import Check, Fetched
from watcher.providers.influxdb.answers import Unwritable
from watcher.providers.influxdb.api import InfluxDbApi, Version
from watcher.providers.influxdb.queries import (
    TIME,
    Statistics,
    combined,
    flux,
    flux_newest,
    influxql,
    influxql_newest,
    percent,
    queries,
)
from watcher.providers.node_names import NodeNames, Resolved, Words, most_by_node
from watcher.settings import InfluxDbQuery, Settings

_CHECK_SECONDS = 10


@dataclass(frozen=True, slots=True)
class _Asked:
    """What a query brought.

    Attributes:
        query: the alternative that had samples.
        series: what each series calls its node, and its statistics.
        newest: the same with the time of its newest sample, when that was asked.
        findings: what was wrong.
    """

    query: InfluxDbQuery
    series: list[tuple[Words, Statistics]]
    newest: list[tuple[Words, float]]
    findings: tuple[Finding, ...]


class InfluxDbProvider:
    """Computes windows with InfluxDB's own functions."""

    def __init__(self, settings: Settings) -> None:
        """Prepare; nothing is contacted yet.

        Raises:
            SettingsError: 2.x without an organization or a token.
        """
        own = self._own = settings.influxdb
        self._api = InfluxDbApi(settings)
        self._queries = queries(own)
        self._chosen: dict[str, InfluxDbQuery] = {}
        self._operators = settings.watch.operators
        self._timed_window = max(settings.watch.windows, key=duration.seconds)  # once a fetch is enough
        self._names = NodeNames.unknown()

    def fetch(self, window: Window, deadline: Deadline) -> Fetched:
        """Return every node's metrics over the window.

        Raises:
            ProviderError: every query failed, or none found any samples.
        """
        version = self._api.version(deadline)
        answers = self._ask_all(version, window, deadline)
        findings: list[Finding] = []
        failures: list[ProviderError] = []
        nodes: dict[str, list[Metric]] = {}
        newest: dict[str, float] = {}
        for name, answer in answers.items():
            if isinstance(answer, ProviderError):
                failures.append(answer)
                findings.append(Finding(Kind.QUERY_FAILED, str(answer), window.duration, metric=name))
                continue
            if not answer.series:
                message = f"there are no samples of {_fields(self._queries[name])} (influxdb.queries)"
                findings.append(Finding(Kind.QUERY_FAILED, message, window.duration, metric=name))
            resolved = self._names.resolve_all(words for words, _ in answer.series)
            for node, statistics in self._by_node(name, answer, resolved, window, findings).items():
                nodes.setdefault(node, []).extend(
                    Metric(name, answer.query.type, operator, window.duration, statistics.values[operator])
                    for operator in self._operators
                    if operator in statistics.values
                )
            for node, at in most_by_node(answer.newest, resolved).items():
                newest[node] = max(at, newest.get(node, at))
        if not nodes:
            self._api.doubt_version()
            raise failures[0] if failures else ProviderAnswerError(self._nothing_found(version, window, answers))
        return Fetched(
            {node: NodeMetrics(tuple(metrics)) for node, metrics in nodes.items()}, tuple(findings), newest=newest
        )

    def check(self) -> Iterator[Check]:
        """Yield the connection and its version, then of each query the nodes, their names, and the values' range."""
        deadline = Deadline.after(_CHECK_SECONDS)
        try:
            version = self._api.version(deadline)
        except ProviderError as error:
            yield Check("version", ok=False, message=str(error), setting=self._api.remedy(error))
            return
        language = "InfluxQL" if version == "1" else "Flux"
        yield Check("version", ok=True, message=f"{self._api.where} is asked in {language}", setting="influxdb.version")
        now = int(time.time())
        window = Window("5m", now - 300, now)
        for name, answer in self._ask_all(version, window, deadline).items():
            step = f"query {name}"
            if isinstance(answer, ProviderError):
                yield Check(step, ok=False, message=str(answer), setting=self._api.remedy(answer))
                continue
            findings: list[Finding] = []
            resolved = self._names.resolve_all(words for words, _ in answer.series)
            nodes = self._by_node(name, answer, resolved, window, findings)
            averages = [each.values[Operator.AVG] for each in nodes.values() if Operator.AVG in each.values]
            if not answer.series:
                message = f"no samples of {_fields(self._queries[name])} in the last 5 minutes"
                yield Check(step, ok=False, message=message, setting="influxdb.queries")
            elif averages:
                low, high = min(averages), max(averages)
                percents = low >= -SLACK_PERCENT and high <= 100 + SLACK_PERCENT
                message = f"{len(averages)} nodes, {low:.4g} to {high:.4g} percent" + (
                    "" if percents else ": that is no percent of capacity; is the scale right?"
                )
                yield Check(step, ok=percents, message=message, setting="influxdb.queries")
            for finding in findings:
                setting = "influxdb.host_tag" if finding.kind is Kind.UNMATCHED_NODE else "influxdb.queries"
                about = f"{finding.node}: " if finding.node else ""
                yield Check(f"{step}: nodes", ok=False, message=about + finding.message, setting=setting)

    def close(self) -> None:
        """Close the connections."""
        self._api.close()

    def _ask_all(self, version: Version, window: Window, deadline: Deadline) -> dict[str, _Asked | ProviderError]:
        calls = {name: partial(self._ask, name, version, window, deadline) for name in self._queries}
        return self._api.gather(calls, deadline)

    def _ask(self, name: str, version: Version, window: Window, deadline: Deadline) -> _Asked:
        """Ask with the alternative that had samples last time, and with the others in turn if it has none now."""
        alternatives = self._queries[name]
        chosen = self._chosen.get(name, alternatives[0])
        for query in (chosen, *(each for each in alternatives if each is not chosen)):
            asked = self._ask_one(name, query, version, window, deadline)
            if asked.series:
                self._chosen[name] = query
                return asked
        return asked

    def _ask_one(self, name: str, query: InfluxDbQuery, version: Version, window: Window, deadline: Deadline) -> _Asked:
        findings = []
        if version == "2":
            answer = self._api.flux(flux(query, self._operators, window, self._own.bucket), deadline)
        else:
            ask = partial(influxql, query, self._operators, window, self._own.retention_policy)
            try:
                answer = self._api.influxql(ask(bounded=False), deadline)
            except Unwritable:
                # One node's absurd samples void the answer of all others: ask again without such samples.
                answer = self._api.influxql(ask(bounded=True), deadline)
                message = f"samples of {query.measurement}.{query.field} too large to add up are left out"
                findings.append(Finding(Kind.NOT_FINITE, message, window.duration, metric=name, action=Action.DROPPED))
        if answer.partial:
            message = "InfluxDB says that its answer is partial (its max-row-limit)"
            findings.append(Finding(Kind.PARTIAL_ANSWER, message, window.duration, metric=name))
        read = [(tags, percent(query, columns, sample_deviation=version == "1")) for tags, columns in answer.series]
        series = [(self._host(tags), known) for tags, known in read if known is not None]
        newest: list[tuple[Words, float]] = []
        if series and window.duration == self._timed_window:
            try:
                newest = self._ask_newest(query, version, window, deadline)
            except Exception as error:  # noqa: BLE001  translated
                message = f"the times of the newest samples cannot be read: {self._api.translated(error)}"
                findings.append(Finding(Kind.QUERY_FAILED, message, window.duration, metric=name))
        return _Asked(query, series, newest, tuple(findings))

    def _ask_newest(
        self, query: InfluxDbQuery, version: Version, window: Window, deadline: Deadline
    ) -> list[tuple[Words, float]]:
        """Ask when each series was last written: its averages stay for as long as the window, whatever stopped.

        Not in one request with the statistics: when a statement fails, InfluxDB 1.6 says only that the next one was
        not executed.
        """
        if version == "2":
            answer = self._api.flux(flux_newest(query, window, self._own.bucket), deadline)
        else:
            answer = self._api.influxql(influxql_newest(query, window, self._own.retention_policy), deadline)
        return [(self._host(tags), columns[TIME]) for tags, columns in answer.series if TIME in columns]

    def _by_node(
        self, name: str, asked: _Asked, resolved: Mapping[Words, Resolved], window: Window, findings: list[Finding]
    ) -> dict[str, Statistics]:
        """Return the statistics of each node; what is doubtful is added to the findings."""
        findings += asked.findings
        for words, each in resolved.items():
            if each.problem:
                message = f"{each.problem} (influxdb.host_tag = {self._own.host_tag!r})"
                findings.append(Finding(Kind.UNMATCHED_NODE, message, window.duration, words[0], name))
        parts: dict[str, list[Statistics]] = {}
        for words, statistics in asked.series:
            if resolved[words].name:
                parts.setdefault(resolved[words].name, []).append(statistics)
        nodes = {node: combined(asked.query, each) for node, each in parts.items()}
        for node, statistics in nodes.items():
            if len(parts[node]) > 1 and asked.query.combine == "one":
                message = f"{len(parts[node])} series are about this node: all their samples count (influxdb.queries)"
                findings.append(Finding(Kind.DUPLICATE, message, window.duration, node, name, Action.MERGED))
            if statistics.count == 1:
                message = "there is one sample only: its deviation of 0 says nothing"
                findings.append(Finding(Kind.LOW_COVERAGE, message, window.duration, node, name))
        return nodes

    def _host(self, tags: Mapping[str, Any]) -> Words:
        tag = tags.get(self._own.host_tag)
        host = tag if isinstance(tag, str) else ""
        return (host.removesuffix(self._own.host_name_suffix) or host,)

    def _nothing_found(self, version: Version, window: Window, answers: dict[str, _Asked | ProviderError]) -> str:
        own = self._own
        if any(isinstance(answer, _Asked) and answer.series for answer in answers.values()):
            return f"{self._api.where} has samples, but none has the tag {own.host_tag!r} (influxdb.host_tag)"
        fields = " nor ".join(_fields(alternatives) for alternatives in self._queries.values())
        where = (
            f"bucket {own.bucket!r} (influxdb.bucket)"
            if version == "2"
            else f"database {own.database!r} (influxdb.database, influxdb.retention_policy)"
        )
        return (
            f"{self._api.where} has no samples of {fields} in the last {window.duration} in {where}. Does "
            "Telegraf write there? (influxdb.queries)"
        )


def _fields(alternatives: tuple[InfluxDbQuery, ...]) -> str:
    return " or ".join(f"{query.measurement}.{query.field}" for query in alternatives)
