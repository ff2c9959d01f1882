"""SignalFx, now called Splunk Observability Cloud.

Two requests run concurrently for each metric. ``/v1/timeserieswindow`` returns the points of a window by series id,
averaged over one of SignalFx' steps (1 s, 1 m, 5 m, 1 h: the finest that stays small); their average and deviation are
computed here. ``/v2/metrictimeseries``, through the signalfx package, returns the node of each series id; it is slow,
so its result is cached until it expires or an unknown series appears.

``sf_metric:"cpu.utilization"``: CPU, the busy share of all processors in percent.
``sf_metric:"memory.utilization"``: Memory, the used share in percent.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from watcher.windows.point_table import PointTable, averages_text, choose_step, combine, newest, step_tags, to_floats
from watcher.windows.sample_range import are_wrong
from watcher.windows.shared_names import SharedNameMemory

DEFAULT_ADDRESS = "https://api.signalfx.com"
METRICS = {"cpu.utilization": MetricType.CPU, "memory.utilization": MetricType.MEMORY}
_STEPS = (1, 60, 300, 3600)
_SHOWN = 5
_LOOK_SECONDS, _LOOKS_EVERY = 300, 3600.0  # the samples of the last 5 minutes are checked once an hour
_MOST_NAMED = 100  # a query lists at most so many hosts; for more hosts it selects all


@dataclass(frozen=True, slots=True)
class _Points:
    """Data points of a metric.

    The points are pairs of Unix milliseconds and value, by series id. The errors are those that SignalFx reports.
    """

    series: Mapping[str, Any]
    errors: str


class SignalFxProvider:
    """Provider that computes each window's statistics from the data points that SignalFx returns."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings.provider
        if settings.provider.token is None and settings.provider.token_file is None:
            problem = "an access token with the scope API is needed"
            variables = "provider.token (METRICS_PROVIDER_TOKEN) or provider.token_file (TRIMARAN_PROVIDER__TOKEN_FILE)"
            raise SettingsError([f"{variables}: {problem}"])
        self._options = settings.signalfx
        self._operators = settings.watch.operators
        self._address = settings.provider.address or DEFAULT_ADDRESS
        self._shown = without_credentials(self._address)
        self._memory = SharedNameMemory()
        self._session = ProviderSession(settings.provider, self._authenticate)
        queries = {metric: self._query(metric) for metric in METRICS}
        self._metadata = MetadataCache(
            self._address, self._session, queries, self._options.node_dimension, self._options.metadata_seconds
        )
        self._unmatched: dict[str, frozenset[str]] = {}
        self._look_at: dict[str, float] = {}  # window to time of the next check of samples, on the monotonic clock
        self._wrong: dict[tuple[str, str], frozenset[str]] = {}  # metric and window to series with wrong samples

    def fetch(self, window: Window, deadline: Deadline) -> Fetched:
        """Return every node's metrics over the window. If one query fails, the others are used.

        Raises:
            ProviderError: every query failed, or no series belongs to a node.
        """
        began = time.monotonic()
        points = {("points", metric): partial(self._ask_points, metric, window, deadline) for metric in METRICS}
        names = {("names", metric): partial(self._metadata.names, metric, deadline) for metric in METRICS}
        if choose_step(window, _STEPS) > 1 and began >= self._look_at.get(window.duration, 0.0):
            self._look_at[window.duration] = began + _LOOKS_EVERY
            recent = Window(window.duration, window.end - _LOOK_SECONDS, window.end)
            points |= {("look", metric): partial(self._ask_points, metric, recent, deadline, 1) for metric in METRICS}
        answers: dict[Any, Any] = gather({**points, **names}, deadline, give_up=self._session.abort)
        # A series that is newer than the cached metadata belongs to a new node: read the metadata again at once.
        refreshed_names = {
            ("names", metric): partial(self._metadata.names, metric, deadline, newer_than=began)
            for metric in METRICS
            if self._has_new_series(metric, answers, began)
        }
        if refreshed_names:
            answers |= gather(refreshed_names, deadline, give_up=self._session.abort)
        findings: list[Finding] = []
        answers |= self._samples(answers, window, deadline, findings)
        tables = [self._table(metric, answers, window, findings) for metric in METRICS]
        tags = step_tags(choose_step(window, _STEPS))
        hint = "signalfx.cluster_name, signalfx.node_dimension"
        nodes, duplicates = combine(tables, window, self._operators, tags, hint, self._memory)
        if not nodes:
            failures = [answer for answer in answers.values() if isinstance(answer, Exception)]
            if failures:
                raise self._translated(failures[0])
            raise ProviderAnswerError(self._describe_empty_result(answers, window))
        return Fetched(nodes, (*findings, *duplicates), newest=newest(tables))

    def check(self) -> Iterator[Check]:
        """Yield two steps for each metric: whether its series name nodes, and whether the series have points."""
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
            averages = averages_text(choose_step(window, _STEPS))
            message = f"{matched} of {len(names.hosts)} series have points in the last 15 minutes; {averages}"
            yield Check(step, ok=bool(matched), message=message, setting="signalfx.cluster_name")

    def close(self) -> None:
        """Abort requests in progress and close the connections."""
        self._session.abort()
        self._session.close()

    def _samples(
        self, answers: Mapping[Any, Any], window: Window, deadline: Deadline, findings: list[Finding]
    ) -> dict[Any, Any]:
        """Query the samples of series with samples out of range; return them by ``("samples", metric)``.

        SignalFx returns averages without the lowest and the highest sample. So the samples of the last 5 minutes are
        checked once an hour, and the averages in every fetch. Failures are added to ``findings``.
        """
        calls = {}
        for metric in METRICS:
            points, look, names = (answers.get((part, metric)) for part in ("points", "look", "names"))
            if isinstance(look, _Points):
                self._wrong[metric, window.duration] = self._out_of_range(look)
            if isinstance(points, _Points) and isinstance(names, SeriesHosts) and choose_step(window, _STEPS) > 1:
                wrong = self._out_of_range(points) | self._wrong.get((metric, window.duration), frozenset())
                hosts = sorted({names.hosts[key] for key in wrong & points.series.keys() if key in names.hosts})
                if hosts:
                    calls["samples", metric] = partial(self._ask_points, metric, window, deadline, 1, hosts)
        samples = gather(calls, deadline, give_up=self._session.abort) if calls else {}
        for (_, metric), answer in samples.items():
            if isinstance(answer, Exception):
                message = f"samples out of range cannot be left out: {self._translated(answer)}"
                findings.append(Finding(Kind.QUERY_FAILED, message, window.duration, metric=_published(metric)))
        return samples

    def _out_of_range(self, points: _Points) -> frozenset[str]:
        """Return the ids of the series with points out of range."""
        return frozenset(
            key for key, pairs in points.series.items() if are_wrong(to_floats(pairs, columns=2)[:, 1]).any()
        )

    def _within(self, deadline: Deadline, call: Callable[[], Value]) -> Value:
        return within(call, deadline, self._session.abort)

    def _check_names(self, step: str, metric: str, names: SeriesHosts, deadline: Deadline) -> Iterator[Check]:
        """Yield a step that counts a metric's series; without series the step names the filter that excludes them."""
        if names.hosts:
            hosts = ", ".join(sorted(set(names.hosts.values()))[:_SHOWN])
            yield Check(step, ok=True, message=f"{len(names.hosts)} series, of {hosts}")
            return
        results = self._within(deadline, partial(self._metadata.page, f'sf_metric:"{metric}"', 0, 100, deadline))[0]
        dimensions = [entry["dimensions"] for entry in results if isinstance(entry.get("dimensions"), dict)]
        options = self._options
        cluster = options.cluster_name
        if not dimensions:
            message, setting = f"there are no series of {metric} at {self._shown}", "provider.address"
        elif not any(options.node_dimension in entry for entry in dimensions):
            values = ", ".join(sorted({str(key) for entry in dimensions for key in entry})[:20])
            message, setting = f"no series has {options.node_dimension}; they have {values}", "signalfx.node_dimension"
        elif cluster and not any(entry.get(options.cluster_dimension) == cluster for entry in dimensions):
            values = ", ".join(sorted({str(entry.get(options.cluster_dimension)) for entry in dimensions})[:_SHOWN])
            message, setting = f"{options.cluster_dimension} is {values}, not {cluster}", "signalfx.cluster_name"
        else:
            values = ", ".join(sorted({str(entry.get(options.node_dimension)) for entry in dimensions})[:_SHOWN])
            message = f"no series matches {self._query(metric)}; the hosts are {values}"
            setting = "signalfx.host_name_suffix"
        yield Check(step, ok=False, message=message, setting=setting)

    def _table(self, metric: str, answers: Mapping[Any, Any], window: Window, findings: list[Finding]) -> PointTable:
        """Return a table of a metric's points by node; add findings about points that belong to no known node."""
        step = choose_step(window, _STEPS)
        table = PointTable(_published(metric), METRICS[metric], window, step)

        def note(kind: Kind, message: str, node: str = "", action: Action = Action.REPORTED) -> None:
            findings.append(Finding(kind, message, window.duration, node, table.name, action))

        points, names = answers["points", metric], answers["names", metric]
        if isinstance(names, Exception):
            note(Kind.QUERY_FAILED, f"metadata: {self._translated(names)}")
            names = self._metadata.last(metric)  # expired metadata is still right for known series
        if isinstance(points, Exception):
            note(Kind.QUERY_FAILED, f"points: {self._translated(points)}")
            return table
        if points.errors:
            note(Kind.PARTIAL_ANSWER, f"SignalFx reports: {points.errors}")
        if names.missing or len(points.series) >= MOST_SERIES:
            message = "more series match than one response holds: nodes may be missing (signalfx.cluster_name)"
            note(Kind.PARTIAL_ANSWER, message)
        unmatched = []
        samples = answers.get(("samples", metric))
        finer = samples.series if isinstance(samples, _Points) else {}
        for key, pairs in {**points.series, **finer}.items():
            host = names.hosts.get(key, "")
            node = without_port(host).removesuffix(self._options.host_name_suffix)
            if not node:
                unmatched.append(host or key)
                continue
            if not isinstance(pairs, list):
                note(Kind.BAD_VALUE, f"{node}: the points are not a list", node, Action.DROPPED)
                continue
            times, values = to_floats(pairs, columns=2).T
            times = times / 1000
            values[times <= window.start] = float("nan")
            table.add(node, times, values, 1 if key in finer else step)
        self._unmatched[metric] = frozenset(points.series.keys() - names.hosts.keys())
        if unmatched:
            shown = ", ".join(sorted(unmatched)[:_SHOWN])
            message = f"{len(unmatched)} series belong to no known node: {shown} (signalfx.node_dimension)"
            note(Kind.UNMATCHED_NODE, message, action=Action.DROPPED)
        return table

    def _has_new_series(self, metric: str, answers: Mapping[Any, Any], began: float) -> bool:
        points, names = answers["points", metric], answers["names", metric]
        if not isinstance(points, _Points) or not isinstance(names, SeriesHosts) or names.began >= began:
            return False
        return bool(points.series.keys() - names.hosts.keys() - self._unmatched.get(metric, frozenset()))

    def _ask_points(
        self, metric: str, window: Window, deadline: Deadline, step: int | None = None, hosts: Sequence[str] = ()
    ) -> _Points:
        """Return the points of a metric over a window.

        Args:
            metric: the metric.
            window: the window.
            deadline: time at which everything must have been read.
            step: length of a step in seconds; None for the step that fits the window.
            hosts: the hosts to query; none or more than 100 for all hosts.
        """
        answer = self._session.get(
            f"{self._address}/v1/timeserieswindow",
            params={
                "query": self._query(metric, hosts),
                "startMs": str(window.start * 1000),
                "endMs": str(window.end * 1000),
                "resolution": str((step or choose_step(window, _STEPS)) * 1000),
            },
            timeout=max(0.1, deadline.remaining_seconds()),
        ).json()
        series = answer.get("data") if isinstance(answer, dict) else None
        errors = answer.get("errors") if isinstance(answer, dict) else None
        error_text = ", ".join(map(str, errors)) if isinstance(errors, list) else str(errors or "")
        if not isinstance(series, dict) or (error_text and not series):
            problem = f"/v1/timeserieswindow answered without data{error_text and ': '}{error_text[:300]}"
            raise ProviderAnswerError(f"SignalFx at {self._shown}: {problem}")
        return _Points(series, error_text[:300])

    def _query(self, metric: str, hosts: Sequence[str] = ()) -> str:
        options = self._options
        terms = [f"{options.node_dimension}:*{options.host_name_suffix}", f'sf_metric:"{metric}"']
        if options.cluster_name:
            terms.insert(1, f'{options.cluster_dimension}:"{options.cluster_name}"')
        if 0 < len(hosts) <= _MOST_NAMED:
            named = " OR ".join(f'{options.node_dimension}:"{host}"' for host in hosts)
            terms.append(f"({named})")
        return " AND ".join(terms)

    def _describe_empty_result(self, answers: Mapping[Any, Any], window: Window) -> str:
        """Return the error message for a fetch without nodes in which no request failed."""
        query = self._query(next(iter(METRICS)))
        series_count = sum(len(answers["names", metric].hosts) for metric in METRICS)
        points_count = sum(len(answers["points", metric].series) for metric in METRICS)
        source = f"SignalFx at {self._shown}"
        if series_count and not points_count:
            points = f"no points in {window.duration}; do the agents report?"
            return f"{source}: {series_count} series for {query}, but {points}"
        if points_count:
            return f"{source} has {points_count} series for {query}, but no known node (signalfx.node_dimension)"
        settings = "signalfx.cluster_name, signalfx.host_name_suffix, signalfx.node_dimension, provider.address"
        return f"{source} has no series for {query}, nor for {' or '.join(list(METRICS)[1:])} ({settings})"

    def _authenticate(self, request: requests.PreparedRequest) -> None:
        request.headers["X-SF-TOKEN"] = read_token(self._settings)

    def _translated(self, error: Exception) -> ProviderError:
        problem = provider_error("SignalFx", self._address, error)
        if isinstance(problem, ProviderRefused):
            return ProviderRefused(
                f"{problem}; a token is valid in one realm: https://api.<realm>.signalfx.com (provider.address)"
            )
        return problem


def _published(metric: str) -> str:
    return f'sf_metric:"{metric}"'
