"""Provider for Prometheus and servers with its query API: Thanos, Mimir, VictoriaMetrics, OpenShift's monitoring.

The module ``queries`` has the PromQL expressions, and ``node_queries`` sends them; ``node_name_cache`` finds the node
of each series in the responses, and ``answers`` makes metrics of them. All queries for a window run concurrently; if
some fail, the results of the others are used.
"""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from runtime import duration
from runtime.http.gather import Deadline, gather
from watcher.errors import ProviderAnswerError
from watcher.findings import Finding, Kind
from watcher.model import NodeMetrics, Window
from watcher.providers.base import Check, Fetched
from watcher.providers.node_names import NodeLabels, Resolved
from watcher.providers.own_labels import both_forms
from watcher.providers.prometheus.answers import LabelNames, QueryAnswer, labels_of, node_metrics
from watcher.providers.prometheus.checks import Checks
from watcher.providers.prometheus.connection import PrometheusConnection
from watcher.providers.prometheus.node_name_cache import NodeNameCache
from watcher.providers.prometheus.node_queries import NodeQueries
from watcher.providers.prometheus.queries import NO_PRESSURE, queries, value_of
from watcher.providers.prometheus.sample_times import NodesOf, SampleTimes
from watcher.providers.prometheus.shared_names import SharedNames
from watcher.settings import Settings
from watcher.windows.shared_names import SharedName, mark_shared_names

if TYPE_CHECKING:
    from watcher.providers.prometheus.past import PastQueries
    from watcher.providers.prometheus.pod_use import PodUseQueries
    from watcher.windows.container_use import ContainerUse
    from watcher.windows.past_container_use import PastContainerUse
    from watcher.windows.past_metrics import PastMetrics

DEFAULT_ADDRESS = "http://prometheus-k8s:9090"
_NODE_LABELS = ("node", "Hostname", "instance")

#: Queries in addition to the metrics, and their names in findings.
_EXTRA_QUERIES = {"names": "the nodes' names", "gaps": "the coverage of the window"}


class PrometheusProvider:
    """Provider that lets Prometheus compute each window, with functions such as ``avg_over_time``."""

    def __init__(self, settings: Settings) -> None:
        options = settings.prometheus
        self.address = settings.provider.address or DEFAULT_ADDRESS
        self.pressure_absence = NO_PRESSURE if options.pressure else "prometheus.pressure is false"
        self._operators, self._matchers = settings.watch.operators, options.matchers
        # The longest window contains the others, which are checked for gaps only while the longest has gaps.
        self._longest = max(settings.watch.windows, key=duration.seconds)
        self._has_gaps = True
        self._labels = LabelNames(options.node_label or both_forms(_NODE_LABELS))
        self._connection = PrometheusConnection(settings.provider, self.address)
        run = self._connection.run
        self._queries = NodeQueries(
            self._connection, queries(options), self._operators, self._matchers, self._labels, self._longest
        )
        required = [query for query in self._queries.queries if query.required]
        self._times = SampleTimes(run, self._matchers, self._labels, required, self._queries.chosen)
        self._has_own_label = bool(options.node_label)
        self._names = NodeNameCache(run, self._matchers, has_own_label=self._has_own_label)
        self._shared_names = SharedNames(run, self._matchers, self._labels.of)
        self._pods: PodUseQueries | None = None
        self._past: PastQueries | None = None

    def fetch(self, window: Window, deadline: Deadline) -> Fetched:
        """Return every node's metrics over the window.

        Raises:
            ProviderError: every query failed, or none has series.
        """
        is_longest = window.duration == self._longest
        calls: dict[Any, Any] = {
            (query, operator): partial(self._queries.ask, query, operator, window, deadline)
            for query in self._queries.due()
            for operator in self._operators
        }
        if is_longest or self._has_gaps:
            calls["gaps"] = partial(self._times.gaps, window, deadline)
        if names_due := self._names.are_due():
            calls["names"] = partial(self._names.read, window.end, deadline)
        answers = gather(calls, deadline, give_up=self._connection.abort)
        # Failures of names and gaps are findings only: the metrics are usable without them.
        extra_answers = {key: answers.pop(key, None) for key in _EXTRA_QUERIES}
        gaps = extra_answers["gaps"]
        translated = self._connection.translated
        findings = [
            Finding(Kind.QUERY_FAILED, f"{_EXTRA_QUERIES[key]} cannot be read: {translated(answer)}", window.duration)
            for key, answer in extra_answers.items()
            if isinstance(answer, Exception)
        ]
        failures = {key: translated(answer) for key, answer in answers.items() if isinstance(answer, Exception)}
        succeeded = {key: answer for key, answer in answers.items() if isinstance(answer, QueryAnswer)}
        for (query, operator), problem in failures.items():
            findings.append(Finding(Kind.QUERY_FAILED, f"{operator}: {problem}", window.duration, metric=query.name))
        # Map the series to nodes, and serve the metrics that there are, even if some queries failed.
        found = list(succeeded.items())
        resolved = self._names.resolve_fetched(labels_of(found), window, deadline, just_read=names_due)
        if further := self._queries.ask_further(succeeded, resolved, self._names, window, deadline):
            found += further
            resolved = self._names.resolve(labels_of(found))
        ended: frozenset[NodeLabels] = frozenset()
        with contextlib.suppress(Exception):  # without this step, findings still name nodes with several series
            rows = gaps if isinstance(gaps, list) else []
            if ended := self._times.ended(found, resolved, rows, window, deadline):
                resolved = {**resolved, **dict.fromkeys(ended, Resolved(""))}
                for _, each in found:
                    each.values[:] = [row for row in each.values if row[0] not in ended]
        findings += self._queries.recompute_refused(found, resolved, window, deadline)
        nodes, problems = node_metrics(found, resolved, window.duration)
        findings += problems
        if not nodes:
            raise next(iter(failures.values()), ProviderAnswerError(self._describe_empty_result()))
        nodes_of = NodesOf(resolved, self._names.resolve)
        has_gaps = self._times.mark(nodes, gaps if isinstance(gaps, list) else None, nodes_of)
        self._mark_shared_names(nodes, window, deadline, findings)
        newest = {}
        if is_longest:
            self._has_gaps = has_gaps or bool(ended) or not isinstance(gaps, list)
            # Only windows with gaps can have a stopped node, so the times need no queries in most fetches.
            if has_gaps:
                with contextlib.suppress(Exception):  # the gaps are reported already
                    newest = self._times.newest(nodes_of, window, deadline)
        return Fetched(nodes, tuple(findings), newest=newest)

    def pod_use(self, window: Window, deadline: Deadline) -> "ContainerUse":
        """Return the use of every container, from the series of cAdvisor.

        Raises:
            ProviderError: there are no series, or nothing can be read.
        """
        if self._pods is None:
            from watcher.providers.prometheus.pod_use import PodUseQueries  # imports numpy

            self._pods = PodUseQueries(self._connection.run, self._matchers, self._connection.translated)
        self._connection.forget_warnings()
        use = self._pods.fetch(window, deadline)
        partial_answers = [Finding(Kind.PARTIAL_ANSWER, warning) for warning in self._connection.warnings]
        return replace(use, findings=(*use.findings, *partial_answers))

    def past_pod_use(self, ends: range, timeout_seconds: float) -> "Iterator[tuple[tuple[str, ...], PastContainerUse]]":
        """Yield names of namespaces and the past use of their containers, a part of the namespaces at a time.

        Raises:
            ProviderError: a query failed.
        """
        from watcher.providers.prometheus.past_pod_use import PastPodUseQueries  # imports numpy

        run, run_range = self._connection.run, self._connection.run_range
        try:
            yield from PastPodUseQueries(run, run_range, self._matchers).read(ends, timeout_seconds)
        except Exception as error:
            raise self._connection.translated(error) from error

    def past(self, window: str, ends: range, deadline: Deadline) -> "PastMetrics":
        """Return the metrics of windows that ended in the past, by the expressions that :meth:`fetch` uses.

        Raises:
            ProviderError: a query failed.
        """
        if self._past is None:
            from watcher.providers.prometheus.past import PastQueries  # imports numpy

            names = NodeNameCache(self._connection.run, self._matchers, has_own_label=self._has_own_label)
            self._past = PastQueries(self._connection.run_range, names, self._labels.of)
        try:
            return self._past.read(
                [(query, self._queries.alternatives(query)) for query in self._queries.due()],
                lambda query, expression, operator: expression.over(
                    window, operator, self._matchers, self._labels.by, bounds=query.bounds()
                ),
                self._operators,
                ends,
                deadline,
            )
        except Exception as error:
            raise self._connection.translated(error) from error

    def series(self, promql: str, deadline: Deadline) -> Iterator[tuple[Mapping[str, str], float]]:
        """Yield the labels and the present value of each series of a PromQL expression; NaN for an unreadable value.

        Raises:
            ProviderError: the query failed.
        """
        try:
            answer = self._connection.run(promql, None, deadline)
        except Exception as error:
            raise self._connection.translated(error) from error
        yield from ((item["metric"], value_of(item)) for item in answer)

    def check(self) -> Iterator[Check]:
        """Yield steps for the connection, each query, and the matching of its series to nodes."""
        find = self._find_shared_names
        checks = Checks(self._connection, self._queries, self._names, find, self._matchers, self._labels)
        yield from checks.steps(Deadline.after(10))

    def close(self) -> None:
        """Abort requests in progress and close the connections."""
        self._connection.close()

    def _mark_shared_names(
        self, nodes: dict[str, NodeMetrics], window: Window, deadline: Deadline, findings: list[Finding]
    ) -> None:
        """Mark or remove the nodes whose name several machines share."""
        try:
            shared = self._find_shared_names(window.end, deadline)
        except Exception as error:  # noqa: BLE001  the metrics are usable, and the next fetch tries again
            message = f"machines that share a node name cannot be queried: {self._connection.translated(error)}"
            findings.append(Finding(Kind.QUERY_FAILED, message, window.duration))
            return
        mark_shared_names(nodes, shared, window, findings)

    def _find_shared_names(self, at: int, deadline: Deadline) -> Mapping[str, SharedName]:
        return self._shared_names.names(self._queries.required(), self._names.resolve, at, deadline)

    def _describe_empty_result(self) -> str:
        tried = dict.fromkeys(
            expression.now("$matchers", "$labels")
            for query in self._queries.queries
            if query.required
            for expression in query.expressions
        )
        matchers = f" with {self._matchers}" if self._matchers else ""
        return (
            f"Prometheus at {self._connection.shown} has no series of any of: {'; '.join(tried)}{matchers}. "
            "Has node_exporter been scraped for half a minute? "
            "(prometheus.query_set, prometheus.matchers, prometheus.queries)"
        )
