"""Datadog, through its v2 timeseries API.

A setting holds a query for each resource: metrics with their aggregation over a host's series, and arithmetic. The
provider adds the filter, the grouping by host and the average over steps of a minute to each metric (20 s for windows
below 5 minutes, more for long ones); the arithmetic becomes the request's formula. Average and deviation of the points
are computed here. The queries of all resources run concurrently.

The default queries, ``max:cpu.utilization`` and ``max:memory.utilization``, are percentages that load-watcher's users
report. The Agent does not report these metrics: docs/providers/datadog.md has queries for the Agent's metrics. A metric
is published under the text of its query.
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
from watcher.providers.datadog.answers import Answer, read_answer
from watcher.providers.datadog.queries import AGENT_QUERIES, DatadogQuery, read_queries
from watcher.providers.node_names import without_port
from watcher.providers.session import ProviderSession, provider_error, read_token
from watcher.settings import Settings, without_credentials
from watcher.windows.point_table import PointTable, choose_step, combine, newest, step_tags, to_floats
from watcher.windows.sample_range import hidden_in_averages
from watcher.windows.shared_names import SharedNameMemory

DEFAULT_ADDRESS = "https://api.datadoghq.com"
_STEPS = (60, 300, 3600)
_SHORT_STEP, _SHORT_SPAN = 20, 300
_FINE_STEPS, _MOST_POINTS = (1, 10, 60, 300), 1500  # most points of a series in a response
_MOST_NAMED = 100  # a query lists at most so many hosts; for more hosts it selects all
_SITE = re.compile(r"(?:app\.)?((?:(?:us|ap|uk)\d\.)?(?:datadoghq\.(?:com|eu)|ddog-gov\.com))")
_RATE_LIMIT = ("Name", "Limit", "Period", "Reset")
_SHOWN = 5


class DatadogProvider:
    """Provider that computes each window's statistics from the data points that Datadog returns."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings.provider
        self._options = settings.datadog
        self._queries, problems = read_queries(settings.datadog)
        if settings.provider.token is None and settings.provider.token_file is None:
            variables = "provider.token (METRICS_PROVIDER_TOKEN) or provider.token_file (TRIMARAN_PROVIDER__TOKEN_FILE)"
            problems.append(f"{variables}: an API key is required")
        if settings.provider.app_key is None:
            variable = "provider.app_key (METRICS_PROVIDER_APP_KEY)"
            problems.append(f"{variable}: an application key with the scope timeseries_query is required")
        if problems:
            raise SettingsError(problems)
        self._operators = settings.watch.operators
        self._address = api_address(settings.provider.address or DEFAULT_ADDRESS)
        self._shown = without_credentials(self._address)
        self._memory = SharedNameMemory()
        self._session = ProviderSession(settings.provider, self._authenticate)

    def fetch(self, window: Window, deadline: Deadline) -> Fetched:
        """Return every node's metrics over the window. If one query fails, the others are used.

        Raises:
            ProviderError: every query failed, or no series belongs to a host.
        """
        scope = self._scope()
        answers = gather(
            {query: partial(self._ask, query, window, deadline, scope, has_extremes=True) for query in self._queries},
            deadline,
            give_up=self._session.abort,
        )
        samples = self._samples_of_refused(answers, window, deadline, scope)
        findings: list[Finding] = []
        tables: list[PointTable] = []
        failures: list[ProviderError] = []
        for query, answer in answers.items():
            if isinstance(answer, Exception):
                failures.append(self._translated(answer))
                message = f"{query.type}: {failures[-1]}"
                findings.append(Finding(Kind.QUERY_FAILED, message, window.duration, metric=query.text))
                continue
            table, table_findings = self._table(query, answer, samples.get(query), window)
            tables.append(table)
            findings += table_findings
        tags = step_tags(_step(window))
        nodes, duplicates = combine(
            tables, window, self._operators, tags, "datadog.node_tag, datadog.cluster_name", self._memory
        )
        if not nodes:
            raise failures[0] if failures else ProviderAnswerError(self._describe_empty_result(findings))
        return Fetched(nodes, (*findings, *duplicates), newest=newest(tables))

    def check(self) -> Iterator[Check]:
        """Yield a step for the API key, and one for each query; a query without results is diagnosed further."""
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
                    message = f"{query.text}: {len(hosts)} hosts, such as {hosts[0]}"
                    yield Check(step, ok=True, message=message)
                else:
                    yield self._diagnose(step, query, window, deadline)
            except Exception as error:  # noqa: BLE001  translated
                problem = self._translated(error)
                setting = "provider.app_key" if isinstance(problem, ProviderRefused) else query.setting
                yield Check(step, ok=False, message=str(problem), setting=setting)

    def close(self) -> None:
        """Abort requests in progress and close the connections."""
        self._session.abort()
        self._session.close()

    def _diagnose(self, step: str, query: DatadogQuery, window: Window, deadline: Deadline) -> Check:
        """Return a failed step that explains why a query has no hosts: a filter, the node tag, or the metric."""
        unscoped_hosts = self._hosts(query, window, deadline, "") if self._scope() else []
        if unscoped_hosts:
            shown = ", ".join(unscoped_hosts[:_SHOWN])
            message = f"{query.text}: no host with {self._scope()}; without this filter: {shown}"
            setting = "datadog.cluster_name" if self._options.cluster_name else "datadog.host_name_suffix"
            return Check(step, ok=False, message=message, setting=setting)
        message = f"{query.text} has no series by {self._options.node_tag} in the last 15 minutes"
        if query.type in AGENT_QUERIES:
            agent_query = DatadogQuery.parse(AGENT_QUERIES[query.type], query.type, query.setting)
            hosts = self._hosts(agent_query, window, deadline, self._scope())
            message += f"; the Agent's own metrics ({agent_query.text}) have {len(hosts)} hosts"
        return Check(step, ok=False, message=message, setting=query.setting)

    def _hosts(self, query: DatadogQuery, window: Window, deadline: Deadline, scope: str) -> list[str]:
        ask = partial(self._ask, query, window, deadline, scope)
        attributes = within(ask, deadline, self._session.abort).parts
        hosts = {self._host(series) for series in attributes["series"]}
        return sorted(host for host in hosts if host)

    def _validate(self, deadline: Deadline) -> Any:
        return self._session.get(f"{self._address}/api/v1/validate", timeout=deadline.remaining_seconds()).json()

    def _ask(
        self,
        query: DatadogQuery,
        window: Window,
        deadline: Deadline,
        scope: str,
        step: int | None = None,
        *,
        has_extremes: bool = False,
    ) -> Answer:
        """Run a query over a window in steps of ``step`` seconds; None selects the step that fits the window.

        Raises:
            ProviderAnswerError: the response has no series.
        """
        step = _step(window) if step is None else step
        attributes = {
            # Datadog includes the start and excludes the end; our windows do the opposite.
            "from": (window.start + 1) * 1000,
            "to": (window.end + 1) * 1000,
            "interval": step * 1000,
            **query.request(scope, self._tags(query), step, has_extremes=has_extremes),
        }
        answer = self._session.post(
            f"{self._address}/api/v2/query/timeseries",
            json={"data": {"type": "timeseries_request", "attributes": attributes}},
            timeout=max(0.1, deadline.remaining_seconds()),
        ).json()
        found = read_answer(answer, step, self._host)
        if found is None or (found.errors and not found.parts["series"]):
            problem = f"answered {query.text} without series{f': {found.errors}' if found and found.errors else ''}"
            raise ProviderAnswerError(f"Datadog at {self._shown} {problem} ({query.setting})")
        return found

    def _samples_of_refused(
        self, answers: Mapping[DatadogQuery, Answer | Exception], window: Window, deadline: Deadline, scope: str
    ) -> Mapping[DatadogQuery, Answer | Exception]:
        """Query the hosts with samples out of range again, in the finest step that Datadog returns for the window."""
        span = window.end - window.start
        step = next((each for each in _FINE_STEPS if span <= each * _MOST_POINTS), _FINE_STEPS[-1])
        calls = {}
        for query, answer in answers.items():
            if isinstance(answer, Answer) and answer.refused and step < answer.step:
                hosts = sorted(answer.refused) if len(answer.refused) <= _MOST_NAMED else []
                only = f"{self._options.node_tag} IN ({','.join(hosts)})" if hosts else ""
                calls[query] = partial(self._ask, query, window, deadline, ",".join(filter(None, (scope, only))), step)
        return gather(calls, deadline, give_up=self._session.abort) if calls else {}

    def _table(
        self, query: DatadogQuery, answer: Answer, samples: Answer | Exception | None, window: Window
    ) -> tuple[PointTable, list[Finding]]:
        """Return a table of a query's points by node, and findings about points that belong to no node.

        Args:
            query: the query.
            answer: the averages of each step.
            samples: finer points of the hosts with samples out of range, which replace the averages of these hosts.
            window: the window.
        """
        table = PointTable(query.text, query.type, window, answer.step)
        unmatched: list[str] = []
        unusable = ["without a series"] * abs(len(answer.parts["series"]) - len(answer.parts["values"]))
        finer = samples if isinstance(samples, Answer) else None
        again = answer.refused & {self._host(series) for series in finer.parts["series"]} if finer else set()
        for each in filter(None, (answer, finer)):
            times = to_floats(each.parts["times"]) / 1000
            for series, points in zip(each.parts["series"], each.parts["values"], strict=False):
                host = self._host(series)
                if (host in again) == (each is answer):
                    continue
                node = self._node(host)
                values = to_floats(points)
                if not node:
                    unmatched.append(str(series.get("group_tags") if isinstance(series, dict) else series)[:100])
                elif len(values) != len(times):
                    unusable.append(node)
                else:
                    table.add(node, times, values, each.step)
        findings = self._problems(query, answer, samples, unusable, unmatched, window)
        if (
            finer and finer.step > 1 and len(query.terms) == 1
        ):  # with several terms, the samples may lie inside the bounds
            hidden = again - {finding.node for finding in table.findings()}
            findings += [hidden_in_averages(each, query.text, window.duration, finer.step) for each in sorted(hidden)]
        return table, findings

    def _problems(
        self,
        query: DatadogQuery,
        answer: Answer,
        samples: Answer | Exception | None,
        unusable: list[str],
        unmatched: list[str],
        window: Window,
    ) -> list[Finding]:
        """Return a finding for each kind of problem in the answers to a query."""
        messages = []
        if isinstance(samples, Exception):
            message = f"samples out of range cannot be left out: {self._translated(samples)}"
            messages.append((Kind.QUERY_FAILED, message, Action.REPORTED))
        if answer.errors:
            messages.append((Kind.PARTIAL_ANSWER, f"Datadog reports: {answer.errors}", Action.REPORTED))
        if unusable:
            shown = ", ".join(sorted(unusable)[:_SHOWN])
            message = f"{len(unusable)} series do not have the same number of values as of times: {shown}"
            messages.append((Kind.PARTIAL_ANSWER, message, Action.DROPPED))
        if unmatched:
            shown = ", ".join(sorted(unmatched)[:_SHOWN])
            message = f"{len(unmatched)} series have no tag {self._options.node_tag}: {shown} (datadog.node_tag)"
            messages.append((Kind.UNMATCHED_NODE, message, Action.DROPPED))
        if not answer.parts["series"]:
            messages.append(
                (Kind.QUERY_FAILED, f"there are no series of {query.type} ({query.setting})", Action.REPORTED)
            )
        return [
            Finding(kind, message, window.duration, metric=query.text, action=action)
            for kind, message, action in messages
        ]

    def _host(self, series: Any) -> str:
        """Return the value of a series' node tag, a host name; empty if the series has no such tag."""
        tags = series.get("group_tags") if isinstance(series, dict) else None
        prefix = f"{self._options.node_tag}:"
        tags = tags if isinstance(tags, list) else []
        hosts = [tag.removeprefix(prefix) for tag in tags if isinstance(tag, str) and tag.startswith(prefix)]
        return hosts[0] if hosts and hosts[0] != "N/A" else ""

    def _tags(self, query: DatadogQuery) -> str:
        """Return the tags to group by: the node, and the cluster unless it is set or the query has several metrics."""
        is_apart = len(query.terms) == 1 and not self._options.cluster_name
        return f"{self._options.node_tag},{self._options.cluster_tag}" if is_apart else self._options.node_tag

    def _node(self, host: str) -> str:
        return without_port(host).removesuffix(self._options.host_name_suffix)

    def _scope(self) -> str:
        options = self._options
        parts = [f"{options.node_tag}:*{options.host_name_suffix}"] if options.host_name_suffix else []
        return ",".join([*parts, f"{options.cluster_tag}:{options.cluster_name}"] if options.cluster_name else parts)

    def _describe_empty_result(self, findings: list[Finding]) -> str:
        queries = "; ".join(f"{query.text} ({query.setting})" for query in self._queries)
        scope = f" with {self._scope()} (datadog.cluster_name, datadog.host_name_suffix)" if self._scope() else ""
        unmatched = [finding.message for finding in findings if finding.kind is Kind.UNMATCHED_NODE]
        agent_queries = " and ".join(AGENT_QUERIES.values())
        return (
            f"Datadog at {self._shown} has no points by {self._options.node_tag} (datadog.node_tag) for "
            f"{queries}{scope}. {''.join(unmatched[:1])}{'. ' if unmatched else ''}"
            f"The Agent's own metrics are {agent_queries}"
        )

    def _authenticate(self, request: requests.PreparedRequest) -> None:
        request.headers["DD-API-KEY"] = read_token(self._settings)
        key = self._settings.app_key
        request.headers["DD-APPLICATION-KEY"] = key.get_secret_value() if key else ""

    def _translated(self, error: Exception) -> ProviderError:
        problem = provider_error("Datadog", self._address, error)
        if isinstance(problem, ProviderRefused):
            keys = "the API key (provider.token) and the application key (provider.app_key, scope timeseries_query)"
            return ProviderRefused(f"{problem}; do {keys} both belong to the site {self._shown} (provider.address)?")
        response = error.response if isinstance(error, requests.HTTPError) else None
        if response is None or response.status_code != 429:
            return problem
        limit = {
            part: response.headers.get(f"X-RateLimit-{part}", "?") for part in ("Limit", "Period", "Reset", "Name")
        }
        return ProviderUnavailable(
            f"{problem}; the limit {limit['Name']} is {limit['Limit']} requests in {limit['Period']} s and is reset "
            f"in {limit['Reset']} s (watch.interval_seconds, watch.windows)"
        )


def api_address(address: str) -> str:
    """Return the address of Datadog's API for the address of a Datadog site; any other address is returned unchanged.

    For example, the API of https://us3.datadoghq.com is at https://api.us3.datadoghq.com.
    """
    parts = urlsplit(address)
    match = _SITE.fullmatch(parts.hostname or "")
    return f"https://api.{match[1]}" if match and parts.scheme == "https" and parts.port is None else address


def _step(window: Window) -> int:
    return _SHORT_STEP if window.end - window.start < _SHORT_SPAN else choose_step(window, _STEPS)
