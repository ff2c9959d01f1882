"""Machines that share a node's name, such as those of two clusters behind one Thanos.

The mean over such machines is no machine's load. So the ranges of a name's series over 5 minutes are compared before
the series are aggregated. Replicas of one target, as from two Prometheus servers, have the same range, although they
scrape at different moments. If one series ends before the other begins, the node was created again. If the machines
have the same labels, their samples alternate in one series: its counter falls again and again.
"""

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from runtime.http.gather import Deadline
from watcher.providers.node_names import NodeLabels, Resolved
from watcher.providers.prometheus.queries import Expression, ResourceQuery, value_of
from watcher.windows.shared_names import LEAST_PERCENT, SharedName

_INTERVAL_SECONDS = 3600.0
_SPAN = "5m"
_MOST_PERCENT = 150.0  # largest possible sample
_MOST_RESETS = 2  # one machine's counter is not reset more often in the span
_NO_LABEL = "no label tells them apart: let each Prometheus add a label of its cluster, and set prometheus.matchers"
_CLUSTERS = ("cluster", "cluster_name", "cluster_id", "k8s_cluster", "kubernetes_cluster", "environment", "region")

Run = Callable[[str, int | None, Deadline], list[dict[str, Any]]]
Resolve = Callable[[Iterable[NodeLabels]], Mapping[NodeLabels, Resolved]]


class SharedNames:
    """Names of nodes that several machines share, queried once an hour. Thread-safe.

    Args:
        run: runs a PromQL expression at a time, in Unix seconds or now, and returns its series.
        matchers: label matchers for all series.
        labels_of: returns the node labels of a series.
    """

    def __init__(self, run: Run, matchers: str, labels_of: Callable[[dict[str, Any]], NodeLabels]) -> None:
        self._run, self._matchers, self._labels_of = run, matchers, labels_of
        self._found: dict[str, SharedName] = {}
        self._until = 0.0
        self._lock = threading.Lock()

    def names(
        self, asked: Iterable[tuple[ResourceQuery, Expression]], resolve: Resolve, at: int, deadline: Deadline
    ) -> Mapping[str, SharedName]:
        """Return the names that several machines have; queries are sent at the first call, and then once an hour.

        Args:
            asked: metrics with the expression that has series.
            resolve: returns the node of each series.
            at: end of the compared 5 minutes, Unix seconds.
            deadline: time at which everything must have been read.

        Raises:
            Exception: a query failed.
        """
        with self._lock:
            if time.monotonic() >= self._until:
                found: dict[str, str] = {}
                for query, expression in asked:
                    found |= self._read(query, expression, resolve, at, deadline)
                    found |= self._alternating(query, expression, resolve, at, deadline)
                self._found = {node: self._found.get(node, SharedName(text, at)) for node, text in found.items()}
                self._until = time.monotonic() + _INTERVAL_SECONDS
            return self._found

    def _read(
        self, query: ResourceQuery, expression: Expression, resolve: Resolve, at: int, deadline: Deadline
    ) -> dict[str, str]:
        """Return each name that several machines have, with a message."""
        inner = expression.apart(self._matchers)
        if not inner:
            return {}
        ranges: dict[tuple[tuple[str, str], ...], list[float]] = {}
        for function in ("min_over_time", "max_over_time"):
            # Only series that cover the whole time: those that follow each other are a node that was created again.
            before = f"last_over_time(({inner})[1m:1m] offset {_SPAN})"
            promql = f"{function}(({inner})[{_SPAN}:1m]) and ({inner}) and {before}"
            for item in self._run(promql, at, deadline):
                ranges.setdefault(tuple(sorted(item["metric"].items())), []).append(value_of(item) * query.scale)
        # A range with an impossible sample says nothing about the machine.
        whole = [
            (dict(labels), bounds[0], bounds[1])
            for labels, bounds in ranges.items()
            if len(bounds) == 2 and bounds[0] > -LEAST_PERCENT and bounds[1] <= _MOST_PERCENT
        ]
        node_labels = [self._labels_of({"metric": labels}) for labels, *_ in whole]
        resolved = resolve(node_labels)
        by_node: dict[str, list[tuple[dict[str, str], float, float]]] = {}
        for names, (labels, low, high) in zip(node_labels, whole, strict=True):
            if resolved[names].name:
                by_node.setdefault(resolved[names].name, []).append((labels, low, high))
        found = {}
        for node, machines in by_node.items():
            hot, cool = max(machines, key=lambda each: each[1]), min(machines, key=lambda each: each[2])
            if hot[1] - cool[2] > LEAST_PERCENT:
                found[node] = (
                    f"several machines have this name: {query.type} is {hot[1]:.0f} and {cool[2]:.0f} percent; "
                    f"{_difference(hot[0], cool[0])}"
                )
        return found

    def _alternating(
        self, query: ResourceQuery, expression: Expression, resolve: Resolve, at: int, deadline: Deadline
    ) -> dict[str, str]:
        """Return each name whose series has samples of several machines in turn, with a message."""
        if not expression.counter:
            return {}
        promql = f"resets({expression.counter.replace('$matchers', self._matchers)}[{_SPAN}]) > {_MOST_RESETS}"
        series = self._run(promql, at, deadline)
        node_labels = [self._labels_of(item) for item in series]
        resolved = resolve(node_labels)
        return {
            resolved[labels].name: (
                f"several machines have this name, and the same labels: the counter of {query.type} fell "
                f"{value_of(item):.0f} times in {_SPAN}; {_NO_LABEL}"
            )
            for labels, item in zip(node_labels, series, strict=True)
            if resolved[labels].name
        }


def _difference(first: Mapping[str, str], second: Mapping[str, str]) -> str:
    """Return a text that names the label in which two machines differ, and the setting to change."""
    names = [name for name in {**first, **second} if first.get(name, "") != second.get(name, "")]
    if not names:
        return _NO_LABEL
    name = min(names, key=lambda name: (name not in _CLUSTERS, name in {"instance", "id"}, name))
    own, other = first.get(name, ""), second.get(name, "")
    return (
        f'they differ in {name}, "{own}" and "{other}": set prometheus.matchers to one, such as {name}="{own or other}"'
    )
