"""Steps of ``trimaran doctor`` for Prometheus: each query, its series and their nodes."""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runtime.http.gather import Deadline
from watcher.model import Window
from watcher.providers.base import Check
from watcher.providers.node_names import NodeLabels, Resolved
from watcher.providers.prometheus.answers import LabelNames
from watcher.providers.prometheus.connection import PrometheusConnection
from watcher.providers.prometheus.node_name_cache import NodeNameCache
from watcher.providers.prometheus.node_queries import NodeQueries
from watcher.providers.prometheus.queries import Expression, ResourceQuery
from watcher.windows.shared_names import SharedName


@dataclass(frozen=True, slots=True)
class Checks:
    """Steps that check a Prometheus.

    Attributes:
        connection: the connection to the Prometheus.
        queries: the queries for metrics.
        names: the names of the nodes.
        shared_names: returns the names that several machines have, at a time in Unix seconds.
        matchers: label matchers for all series.
        labels: the labels that name a node.
    """

    connection: PrometheusConnection
    queries: NodeQueries
    names: NodeNameCache
    shared_names: Callable[[int, Deadline], Mapping[str, SharedName]]
    matchers: str
    labels: LabelNames

    def steps(self, deadline: Deadline) -> Iterator[Check]:
        """Yield steps for the connection, each query, and the matching of its series to nodes."""
        try:
            self.connection.run("vector(1)", None, deadline)
            self.names.read(None, deadline)
        except Exception as error:  # noqa: BLE001  translated
            message = str(self.connection.translated(error))
            yield Check("query API", ok=False, message=message, setting="provider.address")
            return
        yield Check("query API", ok=True, message=f"{self.connection.shown} answers queries")
        missing: list[ResourceQuery] = []
        for query in self.queries.queries:
            step = f"query {query.type}"
            try:
                expression, series = self.queries.now(query, self.matchers, deadline)
            except Exception as error:  # noqa: BLE001  translated
                message = str(self.connection.translated(error))
                yield Check(step, ok=False, message=message, setting="prometheus.queries")
                return
            if series:
                self.queries.chosen.setdefault(query, expression)
                unchecked = _UNCHECKED if query.required and not expression.has_times() else ""
                message = f"{len(series)} series of {self._printable(expression)}{unchecked}"
                yield Check(step, ok=True, message=message)
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

    def _check_names(
        self, query: ResourceQuery, expression: Expression, series: list[dict[str, Any]], deadline: Deadline
    ) -> Check:
        """Check that each series belongs to a node and, for a required metric, that each listed node has a series."""
        resolved = self._resolve(series, deadline)
        unseen = self.names.listed - {node.name for node in resolved.values()} if query.required else frozenset()
        for further in query.expressions:
            if unseen and further != expression:
                also: list[dict[str, Any]] = []
                with contextlib.suppress(Exception):  # the step names the nodes that remain
                    also = self.connection.run(further.now(self.matchers, self.labels.by), None, deadline)
                more = self._resolve(also, deadline)
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
            shared = self.shared_names(int(time.time()), deadline)
        except Exception as error:  # noqa: BLE001  translated
            return Check(step, ok=False, message=str(self.connection.translated(error)), setting=setting)
        if not shared:
            return Check(step, ok=True, message="no name has series of several machines")
        node, name = min(shared.items())
        more = f" (and {len(shared) - 1} more nodes)" if len(shared) > 1 else ""
        return Check(step, ok=False, message=f"{node}: {name.message}{more}", setting=setting)

    def _resolve(self, series: list[dict[str, Any]], deadline: Deadline) -> Mapping[NodeLabels, Resolved]:
        labels = frozenset(map(self.labels.of, series))
        now = int(time.time())
        return self.names.resolve_fetched(labels, Window("now", now, now), deadline, just_read=True)

    def _diagnose(self, missing: Sequence[ResourceQuery], deadline: Deadline) -> Check:
        """Return one failed step for all queries without series; check if ``prometheus.matchers`` excludes them."""
        step = f"query {' and '.join(dict.fromkeys(query.type for query in missing))}"
        tried = " | ".join(self._printable(expression) for query in missing for expression in query.expressions)
        if self.matchers:
            with contextlib.suppress(Exception):  # this query only serves the diagnosis
                if any(self.queries.now(query, "", deadline)[1] for query in missing):
                    message = f"no series with {self.matchers}, but there are series without these matchers: {tried}"
                    return Check(step, ok=False, message=message, setting="prometheus.matchers")
        message = f"no series of {tried}. Has node_exporter been scraped for half a minute?"
        return Check(step, ok=False, message=message, setting="prometheus.queries")

    def _printable(self, expression: Expression) -> str:
        """Return an expression in a form that can be pasted into Prometheus."""
        return expression.now(self.matchers, self.labels.by)


_UNCHECKED = (
    "; the expression contains no selector whose samples can be checked, so gaps and stopped nodes are not detected: "
    "grade unchecked (prometheus.queries)"
)


def _joined(labels: NodeLabels) -> str:
    return " ".join(filter(None, labels)) or "a series without labels"
