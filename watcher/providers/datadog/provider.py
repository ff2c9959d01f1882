"""Datadog, through its v2 timeseries API.

A setting holds a query for each resource: metrics with their aggregation over a host's series, and arithmetic. Each
metric gets the filter, the grouping by host and the average over steps of a minute (20 s for windows below 5 minutes,
more for long ones); the arithmetic is the request's formula. Average and deviation of the points are computed here. The
resources are asked for side by side.

``max:cpu.utilization``, ``max:memory.utilization``: CPU and Memory in percent, as load-watcher's users report them. The
Agent has no such metrics: docs/providers/datadog.md has queries for its own. What is published has the query's name.
"""

import re
import time
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import requests

from runtime.http.gather import Deadline, gather, within
from watcher.errors import ProviderAnswerError, ProviderError, ProviderRefused, ProviderUnavailable, SettingsError
from watcher.findings import Action, Finding, Kind
from watcher.model import Window
from watcher.providers.base import Check, Fetched
from watcher.providers.datadog.queries import AGENT_QUERIES, DatadogQuery, read_queries
from watcher.providers.node_names import without_port
from watcher.providers.session import ProviderSession, provider_error, read_token
from watcher.settings import Settings, without_credentials
from watcher.windows.point_table import PointTable, choose_step, combine, newest, step_tags, to_floats

DEFAULT_ADDRESS = "https://api.datadoghq.com"
_STEPS = (60, 300, 3600)
_SHORT_STEP, _SHORT_SPAN = 20, 300
_SITE = re.compile(r"(?:app\.)?((?:(?:us|ap|uk)\d\.)?(?:datadoghq\.(?:com|eu)|ddog-gov\.com))")
_RATE_LIMIT = ("Name", "Limit", "Period", "Reset")
_PARTS = ("times", "series", "values")
_SHOWN = 5


class DatadogProvider:
    """Computes windows from Datadog's points."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings.provider
        self._own = settings.datadog
        self._queries, problems = read_queries(settings.datadog)
        if settings.provider.token is None and settings.provider.token_file is None:
            variables = "provider.token (METRICS_PROVIDER_TOKEN) or provider.token_file (TRIMARAN_PROVIDER__TOKEN_FILE)"
            problems.append(f"{variables}: an API key is needed")
        if settings.provider.app_key is None:
            variable = "provider.app_key (METRICS_PROVIDER_APP_KEY)"
            problems.append(f"{variable}: an application key with the scope timeseries_query is needed")
        if problems:
            raise SettingsError(problems)
        self._operators = settings.watch.operators
        self._address = api_address(settings.provider.address or DEFAULT_ADDRESS)
        self._shown = without_credentials(self._address)
        self._session = ProviderSession(settings.provider, self._authenticate)

    def fetch(self, window: Window, deadline: Deadline) -> Fetched:
        """Return every node's metrics over the window; a failed query costs only itself.

        Raises:
            ProviderError: every query failed, or none found any series of a host.
        """
        scope = self._scope()
        answers = gather(
            {query: partial(self._ask, query, window, deadline, scope) for query in self._queries},
            deadline,
            give_up=self._session.abort,
        )
        findings: list[Finding] = []
        tables: list[PointTable] = []
        failures: list[ProviderError] = []
        for query, answer in answers.items():
            if isinstance(answer, Exception):
                failures.append(self._translated(answer))
                message = f"{query.type}: {failures[-1]}"
                findings.append(Finding(Kind.QUERY_FAILED, message, window.duration, metric=query.text))
                continue
            table, found = self._table(query, answer, window)
            tables.append(table)
            findings += found
        tags = step_tags(_step(window))
        nodes, doubts = combine(tables, window, self._operators, tags, "datadog.node_tag, datadog.cluster_name")
        if not nodes:
            raise failures[0] if failures else ProviderAnswerError(self._nothing(findings))
        return Fetched(nodes, (*findings, *doubts), newest=newest(tables))

    def check(self) -> Iterator[Check]:
        """Yield the API key, then each query; where one finds nothing, what it finds with other settings."""
        deadline = Deadline.after(20)
        now = int(time.time())
        window = Window("15m", now - 900, now)
        try:
            answer = within(partial(self._validate, deadline), deadline, self._session.abort)
        except Exception as error:  # noqa: BLE001  translated
            problem = self._translated(error)
            setting = "provider.token" if isinstance(problem, ProviderRefused) else "provider.address"
            yield Check("API key", ok=False, message=str(problem), setting=setting)
            return
        valid = isinstance(answer, dict) and answer.get("valid") is True
        message = f"{self._shown} {'accepts' if valid else 'does not accept'} the API key"
        yield Check("API key", ok=valid, message=message, setting="provider.token")
        for query in self._queries:
            step = f"query {query.type}"
            try:
                hosts = self._hosts(query, window, deadline, self._scope())
                if hosts:
                    yield Check(step, ok=True, message=f"{query.text}: {len(hosts)} hosts, such as {hosts[0]}")
                else:
                    yield self._diagnosis(step, query, window, deadline)
            except Exception as error:  # noqa: BLE001  translated
                problem = self._translated(error)
                setting = "provider.app_key" if isinstance(problem, ProviderRefused) else query.setting
                yield Check(step, ok=False, message=str(problem), setting=setting)

    def close(self) -> None:
        """End what is under way and close the connections."""
        self._session.abort()
        self._session.close()

    def _diagnosis(self, step: str, query: DatadogQuery, window: Window, deadline: Deadline) -> Check:
        """Say why a query that works finds no host."""
        everywhere = self._hosts(query, window, deadline, "") if self._scope() else []
        if everywhere:
            message = f"{query.text}: no host with {self._scope()}, but without it {', '.join(everywhere[:_SHOWN])}"
            setting = "datadog.cluster_name" if self._own.cluster_name else "datadog.host_name_suffix"
            return Check(step, ok=False, message=message, setting=setting)
        message = f"{query.text} has no series by {self._own.node_tag} in the last 15 minutes"
        if query.type in AGENT_QUERIES:
            agents = DatadogQuery.parse(AGENT_QUERIES[query.type], query.type, query.setting)
            hosts = self._hosts(agents, window, deadline, self._scope())
            message += f"; {agents.text}, of the Agent itself, has {len(hosts)} hosts"
        return Check(step, ok=False, message=message, setting=query.setting)

    def _hosts(self, query: DatadogQuery, window: Window, deadline: Deadline, scope: str) -> list[str]:
        ask = partial(self._ask, query, window, deadline, scope)
        attributes = within(ask, deadline, self._session.abort)[0]
        hosts = {self._host(series) for series in attributes["series"]}
        return sorted(host for host in hosts if host)

    def _validate(self, deadline: Deadline) -> Any:
        return self._session.get(f"{self._address}/api/v1/validate", timeout=deadline.remaining_seconds()).json()

    def _ask(self, query: DatadogQuery, window: Window, deadline: Deadline, scope: str) -> tuple[Mapping[str, list[Any]], str]:
        """Return the answer's times, series and values, and what it says went wrong."""
        step = _step(window)
        terms = [
            {
                "data_source": "metrics",
                "name": f"query{number}",
                "query": f"{metric}{{{_joined(own, scope)}}} by {{{self._own.node_tag}}}.rollup(avg, {step})",
            }
            for number, (metric, own) in enumerate(query.terms, 1)
        ]
        attributes = {
            "from": (window.start + 1) * 1000,  # inclusive here, exclusive there: our windows end with their end
            "to": (window.end + 1) * 1000,
            "interval": step * 1000,
            "queries": terms,
            "formulas": [{"formula": query.formula}],
        }
        answer = self._session.post(
            f"{self._address}/api/v2/query/timeseries",
            json={"data": {"type": "timeseries_request", "attributes": attributes}},
            timeout=max(0.1, deadline.remaining_seconds()),
        ).json()
        errors = answer.get("errors") if isinstance(answer, dict) else None
        said = (", ".join(map(str, errors)) if isinstance(errors, list) else str(errors or ""))[:300]
        data = answer.get("data") if isinstance(answer, dict) else None
        found = data.get("attributes") if isinstance(data, dict) else None
        parts = (
            {key: found[key] for key in _PARTS if isinstance(found.get(key), list)} if isinstance(found, dict) else {}
        )
        if len(parts) < len(_PARTS) or (said and not parts["series"]):
            raise ProviderAnswerError(
                f"Datadog at {self._shown} answered {query.text} without series{said and ': '}{said} ({query.setting})"
            )
        return parts, said

    def _table(
        self, query: DatadogQuery, answer: tuple[Mapping[str, list[Any]], str], window: Window
    ) -> tuple[PointTable, list[Finding]]:
        """Put a query's points under their nodes, and say what could not be."""
        attributes, said = answer
        table = PointTable(query.text, query.type, window, _step(window))
        times = to_floats(attributes["times"]) / 1000
        unmatched: list[str] = []
        unusable = abs(len(attributes["series"]) - len(attributes["values"]))
        for series, points in zip(attributes["series"], attributes["values"], strict=False):
            host = self._host(series)
            node = without_port(host).removesuffix(self._own.host_name_suffix)
            values = to_floats(points)
            if not node:
                unmatched.append(str(series.get("group_tags") if isinstance(series, dict) else series)[:100])
            elif len(values) != len(times):
                unusable += 1
            else:
                table.add(node, times, values)
        messages = []
        if said:
            messages.append((Kind.PARTIAL_ANSWER, f"Datadog says: {said}", Action.REPORTED))
        if unusable:
            messages.append((Kind.PARTIAL_ANSWER, f"{unusable} series do not fit their points", Action.DROPPED))
        if unmatched:
            shown = ", ".join(sorted(unmatched)[:_SHOWN])
            message = f"{len(unmatched)} series name no {self._own.node_tag}: {shown} (datadog.node_tag)"
            messages.append((Kind.UNMATCHED_NODE, message, Action.DROPPED))
        if not attributes["series"]:
            messages.append(
                (Kind.QUERY_FAILED, f"there are no series of {query.type} ({query.setting})", Action.REPORTED)
            )
        return table, [
            Finding(kind, message, window.duration, metric=query.text, action=action)
            for kind, message, action in messages
        ]

    def _host(self, series: Any) -> str:
        """Return what the node's tag of a series says; empty where it says nothing."""
        tags = series.get("group_tags") if isinstance(series, dict) else None
        prefix = f"{self._own.node_tag}:"
        tags = tags if isinstance(tags, list) else []
        found = [tag.removeprefix(prefix) for tag in tags if isinstance(tag, str) and tag.startswith(prefix)]
        return found[0] if found and found[0] != "N/A" else ""

    def _scope(self) -> str:
        own = self._own
        parts = [f"{own.node_tag}:*{own.host_name_suffix}"] if own.host_name_suffix else []
        return ",".join([*parts, f"{own.cluster_tag}:{own.cluster_name}"] if own.cluster_name else parts)

    def _nothing(self, findings: list[Finding]) -> str:
        queries = "; ".join(f"{query.text} ({query.setting})" for query in self._queries)
        scope = f" with {self._scope()} (datadog.cluster_name, datadog.host_name_suffix)" if self._scope() else ""
        unmatched = [finding.message for finding in findings if finding.kind is Kind.UNMATCHED_NODE]
        agents = " and ".join(AGENT_QUERIES.values())
        return (
            f"Datadog at {self._shown} has no points by {self._own.node_tag} (datadog.node_tag) of {queries}{scope}. "
            f"{''.join(unmatched[:1])}{'. ' if unmatched else ''}The Agent's own metrics are {agents}"
        )

    def _authenticate(self, request: requests.PreparedRequest) -> None:
        request.headers["DD-API-KEY"] = read_token(self._settings)
        key = self._settings.app_key
        request.headers["DD-APPLICATION-KEY"] = key.get_secret_value() if key else ""

    def _translated(self, error: Exception) -> ProviderError:
        problem = provider_error("Datadog", self._address, error)
        if isinstance(problem, ProviderRefused):
            keys = "the API key (provider.token) and the application key (provider.app_key, scope timeseries_query)"
            return ProviderRefused(f"{problem}; {keys} are both of one site, {self._shown} (provider.address)?")
        response = error.response if isinstance(error, requests.HTTPError) else None
        if response is None or response.status_code != 429:
            return problem
        limit = {
            part: response.headers.get(f"X-RateLimit-{part}", "?") for part in ("Limit", "Period", "Reset", "Name")
        }
        return ProviderUnavailable(
            f"{problem}; the limit {limit['Name']} is {limit['Limit']} requests in {limit['Period']} s, the next are "
            f"allowed in {limit['Reset']} s (watch.interval_seconds, watch.windows)"
        )


def api_address(address: str) -> str:
    """Return where the API is: of a site, such as https://us3.datadoghq.com, or its web pages, the API's host."""
    parts = urlsplit(address)
    match = _SITE.fullmatch(parts.hostname or "")
    return f"https://api.{match[1]}" if match and parts.scheme == "https" and parts.port is None else address


def _step(window: Window) -> int:
    return _SHORT_STEP if window.end - window.start < _SHORT_SPAN else choose_step(window, _STEPS)


def _joined(own: str, scope: str) -> str:
    return ",".join(filter(None, (own.strip(), scope))) or "*"
