"""SignalFx, which is Splunk Observability Cloud.

Two things are asked, side by side, for each metric. ``/v1/timeserieswindow`` gives the points of a window by the ids of
their series, averaged over one of the steps that SignalFx keeps (1 s, 1 m, 5 m, 1 h: the finest that stays small);
average and deviation of these points are computed here. ``/v2/metrictimeseries``, through the signalfx package, tells
which node each id is about; it is slow, and kept until its time is over or a series comes that it does not have.

``sf_metric:"cpu.utilization"``: CPU, the busy share of all processors in percent.
``sf_metric:"memory.utilization"``: Memory, the used share in percent.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import requests

from runtime.http.gather import Deadline, Value, gather, within
from watcher.errors import ProviderAnswerError, ProviderError, ProviderRefused, SettingsError
from watcher.findings import Action, Finding, Kind
from watcher.model import MetricType, Window
from watcher.providers.base import Check, Fetched
from watcher.providers.node_names import without_port
from watcher.providers.session import ProviderSession, provider_error, read_token
from watcher.providers.signalfx.metadata import MOST_SERIES, MetadataCache, SeriesHosts
from watcher.settings import Settings, without_credentials
from watcher.windows.point_table import PointTable, choose_step, combine, newest, step_tags, to_floats

DEFAULT_ADDRESS = "https://api.signalfx.com"
METRICS = {"cpu.utilization": MetricType.CPU, "memory.utilization": MetricType.MEMORY}
_STEPS = (1, 60, 300, 3600)
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class _Points:
    """The points of a metric: series id to (unix milliseconds, value) pairs, and what the service says went wrong."""

    series: Mapping[str, Any]
    errors: str


class SignalFxProvider:
    """Computes windows from SignalFx' points."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings.provider
        if settings.provider.token is None and settings.provider.token_file is None:
            problem = "an access token with the scope API is needed"
            variables = "provider.token (METRICS_PROVIDER_TOKEN) or provider.token_file (TRIMARAN_PROVIDER__TOKEN_FILE)"
            raise SettingsError([f"{variables}: {problem}"])
        self._own = settings.signalfx
        self._operators = settings.watch.operators
        self._address = settings.provider.address or DEFAULT_ADDRESS
        self._shown = without_credentials(self._address)
        self._session = ProviderSession(settings.provider, self._authenticate)
        queries = {metric: self._query(metric) for metric in METRICS}
        self._metadata = MetadataCache(
            self._address, self._session, queries, self._own.node_dimension, self._own.metadata_seconds
        )
        self._unmatched: dict[str, frozenset[str]] = {}

    def fetch(self, window: Window, deadline: Deadline) -> Fetched:
        """Return every node's metrics over the window; a failed query costs only itself.

        Raises:
            ProviderError: every query failed, or nothing they brought is about a node.
        """
        began = time.monotonic()
        points = {("points", metric): partial(self._ask_points, metric, window, deadline) for metric in METRICS}
        names = {("names", metric): partial(self._metadata.names, metric, deadline) for metric in METRICS}
        answers: dict[Any, Any] = gather({**points, **names}, deadline, give_up=self._session.abort)
        new = {
            ("names", metric): partial(self._metadata.names, metric, deadline, newer_than=began)
            for metric in METRICS
            if self._has_new_series(metric, answers, began)
        }
        if new:
            answers |= gather(new, deadline, give_up=self._session.abort)
        findings: list[Finding] = []
        tables = [self._table(metric, answers, window, findings) for metric in METRICS]
        tags = step_tags(choose_step(window, _STEPS))
        hint = "signalfx.cluster_name, signalfx.node_dimension"
        nodes, doubts = combine(tables, window, self._operators, tags, hint)
        if not nodes:
            failures = [answer for answer in answers.values() if isinstance(answer, Exception)]
            raise self._translated(failures[0]) if failures else ProviderAnswerError(self._nothing(answers, window))
        return Fetched(nodes, (*findings, *doubts), newest=newest(tables))

    def check(self) -> Iterator[Check]:
        """Yield for each metric: that its series are there, name nodes, and have points."""
        deadline = Deadline.after(20)
        now = int(time.time())
        for metric in METRICS:
            step = f"metadata of {metric}"
            try:
                names = self._within(deadline, partial(self._metadata.names, metric, deadline, time.monotonic()))
                yield from self._check_names(step, metric, names, deadline)
                if not names.hosts:
                    continue
                step = f"points of {metric}"
                window = Window("15m", now - 900, now)
                points = self._within(deadline, partial(self._ask_points, metric, window, deadline)).series
            except Exception as error:  # noqa: BLE001  translated
                problem = self._translated(error)
                setting = "provider.token" if isinstance(problem, ProviderRefused) else "provider.address"
                yield Check(step, ok=False, message=str(problem), setting=setting)
                return
            matched = len(points.keys() & names.hosts.keys())
            message = f"{matched} of {len(names.hosts)} series have points in the last 15 minutes"
            yield Check(step, ok=bool(matched), message=message, setting="signalfx.cluster_name")

    def close(self) -> None:
        """End what is under way and close the connections."""
        self._session.abort()
        self._session.close()

    def _within(self, deadline: Deadline, call: Callable[[], Value]) -> Value:
        return within(call, deadline, self._session.abort)

    def _check_names(self, step: str, metric: str, names: SeriesHosts, deadline: Deadline) -> Iterator[Check]:
        """Yield whether there are series; where there are none, the filter that leaves them out."""
        if names.hosts:
            hosts = ", ".join(sorted(set(names.hosts.values()))[:_SHOWN])
            yield Check(step, ok=True, message=f"{len(names.hosts)} series, of {hosts}")
            return
        found = self._within(deadline, partial(self._metadata.page, f'sf_metric:"{metric}"', 0, 100, deadline))[0]
        dimensions = [each["dimensions"] for each in found if isinstance(each.get("dimensions"), dict)]
        own = self._own
        if not dimensions:
            message, setting = f"nothing reports {metric} to {self._shown}", "provider.address"
        elif not any(own.node_dimension in each for each in dimensions):
            seen = ", ".join(sorted({str(key) for each in dimensions for key in each})[:20])
            message, setting = f"no series has {own.node_dimension}; they have {seen}", "signalfx.node_dimension"
        elif own.cluster_name and not any(each.get(own.cluster_dimension) == own.cluster_name for each in dimensions):
            seen = ", ".join(sorted({str(each.get(own.cluster_dimension)) for each in dimensions})[:_SHOWN])
            message, setting = f"{own.cluster_dimension} is {seen}, not {own.cluster_name}", "signalfx.cluster_name"
        else:
            seen = ", ".join(sorted({str(each.get(own.node_dimension)) for each in dimensions})[:_SHOWN])
            message, setting = f"no series matches {self._query(metric)}; hosts are {seen}", "signalfx.host_name_suffix"
        yield Check(step, ok=False, message=message, setting=setting)

    def _table(self, metric: str, answers: Mapping[Any, Any], window: Window, findings: list[Finding]) -> PointTable:
        """Put a metric's points under their nodes, and say what could not be."""
        table = PointTable(_published(metric), METRICS[metric], window, choose_step(window, _STEPS))

        def note(kind: Kind, message: str, node: str = "", action: Action = Action.REPORTED) -> None:
            findings.append(Finding(kind, message, window.duration, node, table.name, action))

        points, names = answers["points", metric], answers["names", metric]
        if isinstance(names, Exception):
            note(Kind.QUERY_FAILED, f"metadata: {self._translated(names)}")
            names = self._metadata.last(metric)  # older ones are right for the nodes that they have
        if isinstance(points, Exception):
            note(Kind.QUERY_FAILED, f"points: {self._translated(points)}")
            return table
        if points.errors:
            note(Kind.PARTIAL_ANSWER, f"SignalFx says: {points.errors}")
        if names.missing or len(points.series) >= MOST_SERIES:
            note(Kind.PARTIAL_ANSWER, "more series than one answer has: some nodes may miss (signalfx.cluster_name)")
        unmatched = []
        for key, pairs in points.series.items():
            host = names.hosts.get(key, "")
            node = without_port(host).removesuffix(self._own.host_name_suffix)
            if not node:
                unmatched.append(host or key)
                continue
            times, values = to_floats(pairs, columns=2).T
            times = times / 1000
            values[times <= window.start] = float("nan")
            table.add(node, times, values)
        self._unmatched[metric] = frozenset(points.series.keys() - names.hosts.keys())
        if unmatched:
            shown = ", ".join(sorted(unmatched)[:_SHOWN])
            message = f"{len(unmatched)} series are of no known node: {shown} (signalfx.node_dimension)"
            note(Kind.UNMATCHED_NODE, message, action=Action.DROPPED)
        return table

    def _has_new_series(self, metric: str, answers: Mapping[Any, Any], began: float) -> bool:
        points, names = answers["points", metric], answers["names", metric]
        if not isinstance(points, _Points) or not isinstance(names, SeriesHosts) or names.began >= began:
            return False
        return bool(points.series.keys() - names.hosts.keys() - self._unmatched.get(metric, frozenset()))

    def _ask_points(self, metric: str, window: Window, deadline: Deadline) -> _Points:
        answer = self._session.get(
            f"{self._address}/v1/timeserieswindow",
            params={
                "query": self._query(metric),
                "startMs": str(window.start * 1000),
                "endMs": str(window.end * 1000),
                "resolution": str(choose_step(window, _STEPS) * 1000),
            },
            timeout=max(0.1, deadline.remaining_seconds()),
        ).json()
        series = answer.get("data") if isinstance(answer, dict) else None
        errors = answer.get("errors") if isinstance(answer, dict) else None
        said = ", ".join(map(str, errors)) if isinstance(errors, list) else str(errors or "")
        if not isinstance(series, dict) or (said and not series):
            raise ProviderAnswerError(
                f"SignalFx at {self._shown}: /v1/timeserieswindow answered without data{said and ': '}{said[:300]}"
            )
        return _Points(series, said[:300])

    def _query(self, metric: str) -> str:
        own = self._own
        terms = [f"{own.node_dimension}:*{own.host_name_suffix}", f'sf_metric:"{metric}"']
        if own.cluster_name:
            terms.insert(1, f'{own.cluster_dimension}:"{own.cluster_name}"')
        return " AND ".join(terms)

    def _nothing(self, answers: Mapping[Any, Any], window: Window) -> str:
        """Say what is missing where nothing failed."""
        query = self._query(next(iter(METRICS)))
        listed = sum(len(answers["names", metric].hosts) for metric in METRICS)
        pointed = sum(len(answers["points", metric].series) for metric in METRICS)
        where = f"SignalFx at {self._shown}"
        if listed and not pointed:
            return f"{where}: {listed} series for {query}, but no points in {window.duration}; do the agents report?"
        if pointed:
            return f"{where} has {pointed} series, none of a known node, for {query} (signalfx.node_dimension)"
        settings = "signalfx.cluster_name, signalfx.host_name_suffix, signalfx.node_dimension, provider.address"
        return f"{where} has no series for {query}, nor for {' or '.join(list(METRICS)[1:])} ({settings})"

    def _authenticate(self, request: requests.PreparedRequest) -> None:
        request.headers["X-SF-TOKEN"] = read_token(self._settings)

    def _translated(self, error: Exception) -> ProviderError:
        problem = provider_error("SignalFx", self._address, error)
        if isinstance(problem, ProviderRefused):
            return ProviderRefused(
                f"{problem}; a token is of one realm: https://api.<realm>.signalfx.com (provider.address)"
            )
        return problem


def _published(metric: str) -> str:
    return f'sf_metric:"{metric}"'
