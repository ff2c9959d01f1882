"""InfluxDB, as Telegraf fills it: 1.x by InfluxQL (``/query``), 2.x by Flux (``/api/v2/query``).

``telegraf:cpu:percent`` is 100 minus the idle time of all processors (``cpu``, ``usage_idle``, ``cpu=cpu-total``);
``telegraf:memory:percent`` what is not available (``mem``, ``available_percent``, else ``used_percent``). What else
there is can be asked for in the settings. InfluxDB computes the windows from the samples themselves; their mean and
population deviation are exact. All queries run side by side, and a failed one costs only itself.

Plain HTTP instead of the packages ``influxdb`` and ``influxdb-client``: a query is one POST, and our session has what
theirs lack, an end to answers that do not end.
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import requests

from watcher.errors import ProviderAnswerError, ProviderError, ProviderRefused, SettingsError
from watcher.findings import Finding, Kind
from watcher.gather import Deadline, gather
from watcher.http import ProviderSession, provider_error, read_token
from watcher.model import Metric, NodeMetrics, Operator, Window
from watcher.node_names import NodeNames, Resolved
from watcher.providers.base import Check, Fetched
from watcher.providers.influxdb_answers import Unwritable, read_flux, read_influxql
from watcher.providers.influxdb_queries import Statistics, combined, flux, influxql, percent, queries
from watcher.settings import InfluxDbQuery, Settings, without_credentials

DEFAULT_ADDRESS = "http://influxdb:8086"
_CHECK_SECONDS = 10
_SLACK_PERCENT = 5.0

#: What InfluxDB says, and the setting that mends it.
_REMEDIES = {
    "database not found": "influxdb.database",
    "retention policy not found": "influxdb.retention_policy",
    "could not find bucket": "influxdb.bucket",
    "organization name": "influxdb.organization",
    "organization not found": "influxdb.organization",
    "compilation failed": "influxdb.queries",
}
_Version = Literal["1", "2"]


@dataclass(frozen=True, slots=True)
class _Asked:
    """What a query brought: the alternative that had samples, each series' tags and statistics, what was wrong."""

    query: InfluxDbQuery
    series: list[tuple[Mapping[str, Any], Statistics]]
    findings: tuple[Finding, ...]


class InfluxDbProvider:
    """Computes windows with InfluxDB's own functions."""

    def __init__(self, settings: Settings) -> None:
        """Prepare; nothing is contacted yet.

        Raises:
            SettingsError: 2.x without an organization or a token.
        """
        own = self._own = settings.influxdb
        self._settings = settings.provider
        self._address = settings.provider.address or DEFAULT_ADDRESS
        self._where = f"InfluxDB at {without_credentials(self._address)}"
        self._queries = queries(own)
        self._chosen: dict[str, InfluxDbQuery] = {}
        self._operators = settings.watch.operators
        self._names: tuple[frozenset[tuple[str, ...]], Mapping[tuple[str, ...], Resolved]] = (frozenset(), {})
        self._version: _Version | None = None if own.version == "auto" else own.version
        self._doubtful = False
        if self._version == "2" and (problems := self._missing()):
            raise SettingsError(problems)
        self._session = ProviderSession(settings.provider, self._authenticate)

    def fetch(self, window: Window, deadline: Deadline) -> Fetched:
        """Return every node's metrics over the window.

        Raises:
            ProviderError: every query failed, or none found any samples.
        """
        answers = self._ask_all(self._detected(deadline), window, deadline)
        findings: list[Finding] = []
        failures: list[ProviderError] = []
        nodes: dict[str, list[Metric]] = {}
        for name, answer in answers.items():
            if isinstance(answer, ProviderError):
                failures.append(answer)
                findings.append(Finding(Kind.QUERY_FAILED, str(answer), window.duration, metric=name))
                continue
            if not answer.series:
                message = f"there are no samples of {_fields(self._queries[name])} (influxdb.queries)"
                findings.append(Finding(Kind.QUERY_FAILED, message, window.duration, metric=name))
            for node, statistics in self._by_node(name, answer, window, findings).items():
                nodes.setdefault(node, []).extend(
                    Metric(name, answer.query.type, operator, window.duration, statistics.values[operator])
                    for operator in self._operators
                    if operator in statistics.values
                )
        if not nodes:
            self._doubtful = self._own.version == "auto"  # another one may listen there by now
            raise failures[0] if failures else ProviderAnswerError(self._nothing_found(window, answers))
        return Fetched({node: NodeMetrics(tuple(metrics)) for node, metrics in nodes.items()}, tuple(findings))

    def check(self) -> Iterator[Check]:
        """Yield the connection and its version, then of each query the nodes, their names, and the values' range."""
        deadline = Deadline.after(_CHECK_SECONDS)
        try:
            version = self._detected(deadline)
        except ProviderError as error:
            yield Check("version", ok=False, message=str(error), setting=self._remedy(error))
            return
        language = "InfluxQL" if version == "1" else "Flux"
        yield Check("version", ok=True, message=f"{self._where} is asked in {language}", setting="influxdb.version")
        now = int(time.time())
        window = Window("5m", now - 300, now)
        for name, answer in self._ask_all(version, window, deadline).items():
            step = f"query {name}"
            if isinstance(answer, ProviderError):
                yield Check(step, ok=False, message=str(answer), setting=self._remedy(answer))
                continue
            findings: list[Finding] = []
            nodes = self._by_node(name, answer, window, findings)
            averages = [each.values[Operator.AVG] for each in nodes.values() if Operator.AVG in each.values]
            if not answer.series:
                message = f"no samples of {_fields(self._queries[name])} in the last 5 minutes"
                yield Check(step, ok=False, message=message, setting="influxdb.queries")
            elif averages:
                low, high = min(averages), max(averages)
                percents = low >= -_SLACK_PERCENT and high <= 100 + _SLACK_PERCENT
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
        self._session.close()

    def _ask_all(self, version: _Version, window: Window, deadline: Deadline) -> dict[str, _Asked | ProviderError]:
        answers = gather(
            {name: partial(self._ask, name, version, window, deadline) for name in self._queries},
            deadline,
            give_up=self._session.abort,
        )
        return {
            name: self._translated(answer) if isinstance(answer, Exception) else answer
            for name, answer in answers.items()
        }

    def _ask(self, name: str, version: _Version, window: Window, deadline: Deadline) -> _Asked:
        """Ask with the alternative that had samples last time, and with the others in turn if it has none now."""
        alternatives = self._queries[name]
        chosen = self._chosen.get(name, alternatives[0])
        for query in (chosen, *(each for each in alternatives if each is not chosen)):
            asked = self._ask_one(name, query, version, window, deadline)
            if asked.series:
                self._chosen[name] = query
                return asked
        return asked

    def _ask_one(
        self, name: str, query: InfluxDbQuery, version: _Version, window: Window, deadline: Deadline
    ) -> _Asked:
        findings = []
        if version == "2":
            script = flux(query, self._operators, window, self._own.bucket)
            answer = read_flux(self._post_flux(script, deadline))
        else:
            statement = partial(influxql, query, self._operators, window, self._own.retention_policy)
            try:
                answer = read_influxql(self._post_influxql(statement(bounded=False), deadline))
            except Unwritable:
                # One node's absurd samples void the answer of all others: ask again without such samples.
                answer = read_influxql(self._post_influxql(statement(bounded=True), deadline))
                message = f"samples of {query.measurement}.{query.field} too large to add up are left out"
                findings.append(Finding(Kind.NOT_FINITE, message, window.duration, metric=name, action="dropped"))
        if answer.partial:
            message = "InfluxDB says that its answer is partial (its max-row-limit)"
            findings.append(Finding(Kind.PARTIAL_ANSWER, message, window.duration, metric=name))
        read = [(tags, percent(query, columns, sample_deviation=version == "1")) for tags, columns in answer.series]
        return _Asked(query, [(tags, known) for tags, known in read if known is not None], tuple(findings))

    def _by_node(self, name: str, asked: _Asked, window: Window, findings: list[Finding]) -> dict[str, Statistics]:
        """Return the statistics of each node; what is doubtful is added to the findings."""
        findings += asked.findings
        read: list[tuple[tuple[str, ...], Statistics]] = []
        for tags, statistics in asked.series:
            tag = tags.get(self._own.host_tag)
            host = tag if isinstance(tag, str) else ""
            read.append(((host.removesuffix(self._own.host_name_suffix) or host,), statistics))
        resolved = self._resolved(frozenset(words for words, _ in read))
        for words, each in resolved.items():
            if each.problem:
                message = f"{each.problem} (influxdb.host_tag = {self._own.host_tag!r})"
                findings.append(Finding(Kind.UNMATCHED_NODE, message, window.duration, words[0], name))
        parts: dict[str, list[Statistics]] = {}
        for words, statistics in read:
            if resolved[words].name:
                parts.setdefault(resolved[words].name, []).append(statistics)
        nodes = {node: combined(asked.query, each) for node, each in parts.items()}
        for node, statistics in nodes.items():
            if len(parts[node]) > 1 and asked.query.combine == "one":
                message = f"{len(parts[node])} series are about this node: all their samples count (influxdb.queries)"
                findings.append(Finding(Kind.DUPLICATE, message, window.duration, node, name, "merged"))
            if statistics.count == 1:
                message = "there is one sample only: its deviation of 0 says nothing"
                findings.append(Finding(Kind.LOW_COVERAGE, message, window.duration, node, name))
        return nodes

    def _resolved(self, hosts: frozenset[tuple[str, ...]]) -> Mapping[tuple[str, ...], Resolved]:
        """Resolve the hosts' names; they are the same for all queries, and from one fetch to the next."""
        known, resolved = self._names
        if hosts != known:
            resolved = NodeNames.unknown().resolve_all(hosts)
            self._names = hosts, resolved
        return resolved

    def _detected(self, deadline: Deadline) -> _Version:
        """Return the version to speak to, asking the server where the settings leave it to us."""
        if self._version is None or self._doubtful:
            (answer,) = gather({"ping": partial(self._ping, deadline)}, deadline, give_up=self._session.abort).values()
            if isinstance(answer, Exception):
                raise self._translated(answer) from answer
            self._version, self._doubtful = answer, False
        return self._version

    def _ping(self, deadline: Deadline) -> _Version:
        said = self._session.get(f"{self._address}/ping", timeout=_seconds(deadline)).headers.get("X-Influxdb-Version")
        major = (said or "").removeprefix("v").partition(".")[0]
        if major == "1":
            return "1"
        if major == "2" or (said is None and self._own.organization):  # InfluxDB Cloud does not say
            if problems := self._missing():
                raise ProviderRefused(f"{self._where} is of version 2: {'; '.join(problems)}")
            return "2"
        what = f"says that its version is {said[:40]}" if said else "does not say its version at /ping"
        raise ProviderAnswerError(
            f"{self._where} {what}; is provider.address right? Set influxdb.version to 1 to ask in "
            "InfluxQL, to 2 to ask in Flux"
        )

    def _post_influxql(self, statement: str, deadline: Deadline) -> bytes:
        data = {"db": self._own.database, "epoch": "s", "q": statement}
        return self._session.post(f"{self._address}/query", data=data, timeout=_seconds(deadline)).content

    def _post_flux(self, script: str, deadline: Deadline) -> bytes:
        dialect = {"header": True, "annotations": ["datatype", "group", "default"], "delimiter": ","}
        return self._session.post(
            f"{self._address}/api/v2/query",
            params={"org": self._own.organization},
            json={"type": "flux", "query": script, "dialect": dialect},
            headers={"Accept": "application/csv"},
            timeout=_seconds(deadline),
        ).content

    def _authenticate(self, request: requests.PreparedRequest) -> None:
        if self._own.username and self._version != "2":
            password = self._own.password.get_secret_value() if self._own.password else ""
            requests.auth.HTTPBasicAuth(self._own.username.encode(), password.encode())(request)
        elif token := read_token(self._settings):
            request.headers["Authorization"] = f"{'Token' if self._version == '2' else 'Bearer'} {token}"

    def _missing(self) -> list[str]:
        problems = []
        if not self._own.organization:
            problems.append("influxdb.organization (TRIMARAN_INFLUXDB__ORGANIZATION) is missing: InfluxDB 2.x needs it")
        settings = self._settings
        if not (settings.token or settings.token_file or settings.openshift_auth or settings.headers):
            problems.append("provider.token (METRICS_PROVIDER_TOKEN) is missing: InfluxDB 2.x answers nobody without")
        return problems

    def _translated(self, error: Exception) -> ProviderError:
        problem = provider_error("InfluxDB", self._address, error)
        text, setting = str(problem), self._remedy(problem)
        if isinstance(problem, ProviderAnswerError) and "InfluxDB at" not in text:
            text = f"{self._where}: {text}"
        return type(problem)(text if setting in text else f"{text} ({setting})")

    def _remedy(self, error: ProviderError) -> str:
        """Return the setting that most probably mends an error."""
        text = str(error)
        named = (setting for words, setting in _REMEDIES.items() if words in text)
        if isinstance(error, ProviderRefused):
            credentials = "influxdb.password" if self._own.username and self._version != "2" else "provider.token"
            return "influxdb.organization" if "influxdb.organization" in text else credentials
        fallback = "influxdb.queries" if isinstance(error, ProviderAnswerError) else "provider.address"
        return next(named, "provider.address" if "provider.address" in text else fallback)

    def _nothing_found(self, window: Window, answers: dict[str, _Asked | ProviderError]) -> str:
        own = self._own
        if any(isinstance(answer, _Asked) and answer.series for answer in answers.values()):
            return f"{self._where} has samples, but none has the tag {own.host_tag!r} (influxdb.host_tag)"
        fields = " nor ".join(_fields(alternatives) for alternatives in self._queries.values())
        where = (
            f"bucket {own.bucket!r} (influxdb.bucket)"
            if self._version == "2"
            else f"database {own.database!r} (influxdb.database, influxdb.retention_policy)"
        )
        return (
            f"{self._where} has no samples of {fields} in the last {window.duration} in {where}. Does "
            "Telegraf write there? (influxdb.queries)"
        )


def _seconds(deadline: Deadline) -> float:
    return max(0.1, deadline.remaining_seconds())


def _fields(alternatives: tuple[InfluxDbQuery, ...]) -> str:
    return " or ".join(f"{query.measurement}.{query.field}" for query in alternatives)
