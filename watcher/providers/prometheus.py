"""Prometheus, and what speaks its query API.

The recording rules of kube-prometheus are used where they exist. Where they do not, the same expressions run on the raw
series of node_exporter, so that average and deviation mean the same.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from prometheus_api_client import PrometheusConnect
from urllib3.util.retry import Retry

from watcher.errors import ProviderAnswerError, ProviderError
from watcher.findings import Finding, Kind
from watcher.gather import Deadline, gather
from watcher.http import ProviderSession, bearer, provider_error
from watcher.model import Metric, MetricType, NodeMetrics, Operator, Window
from watcher.node_names import node_name
from watcher.providers.base import Check, Fetched
from watcher.settings import Settings, without_credentials

DEFAULT_ADDRESS = "http://prometheus-k8s:9090"
_FUNCTIONS = {Operator.AVG: "avg_over_time", Operator.STD: "stddev_over_time"}
_RAW_STEP = "30s"  # how often kube-prometheus evaluates the rules that the raw expressions stand in for


@dataclass(frozen=True, slots=True)
class Query:
    """One metric and how to ask for it; both expressions are ratios of 0 to 1.

    Attributes:
        name: the recording rule, and the name that is published.
        type: the resource.
        raw: the rule's definition over node_exporter's series; ``{label}`` is the label that holds the node.
    """

    name: str
    type: MetricType
    raw: str

    def over(self, window: str, operator: Operator, raw_label: str = "") -> str:
        """Return the expression for a window, of the rule, or of its definition when a label is given."""
        inner = f"({self.raw.format(label=raw_label)})[{window}:{_RAW_STEP}]" if raw_label else f"{self.name}[{window}]"
        return f"{_FUNCTIONS[operator]}({inner})"


QUERIES = (
    Query(
        "instance:node_cpu:ratio",
        MetricType.CPU,
        'sum by ({label}) (rate(node_cpu_seconds_total{{mode!~"idle|iowait|steal"}}[5m]))'
        " / count by ({label}) (count by ({label}, cpu) (node_cpu_seconds_total))",
    ),
    Query(
        "instance:node_memory_utilisation:ratio",
        MetricType.MEMORY,
        "1 - sum by ({label}) (node_memory_MemAvailable_bytes) / sum by ({label}) (node_memory_MemTotal_bytes)",
    ),
)
_TAGS = {"smoothing": "5m"}  # the CPU rule is a rate over five minutes


class PrometheusProvider:
    """Computes windows with ``avg_over_time`` and ``stddev_over_time``, all queries side by side."""

    def __init__(self, settings: Settings) -> None:
        self._address = settings.provider.address or DEFAULT_ADDRESS
        self._shown = without_credentials(self._address)
        self._label = settings.prometheus.node_label
        self._session = ProviderSession(settings.provider, bearer(settings.provider))
        self._connect = PrometheusConnect(self._address, session=self._session, retry=Retry(total=0))
        self._session.use_for(self._address)  # the line above mounted an adapter of its own
        self._raw: set[str] = set()

    def fetch(self, window: Window, deadline: Deadline) -> Fetched:
        """Return every node's metrics over the window; a failed query costs only itself.

        Raises:
            ProviderError: every query failed, or none found any series.
        """
        answers = gather(
            {
                (query, operator): partial(self._ask, query, operator, window, deadline)
                for query in QUERIES
                for operator in _FUNCTIONS
            },
            deadline,
            give_up=self._session.abort,
        )
        nodes: dict[str, dict[tuple[str, str], Metric]] = {}
        findings: list[Finding] = []
        failures: list[ProviderError] = []
        for (query, operator), answer in answers.items():
            if isinstance(answer, Exception):
                failures.append(provider_error("Prometheus", self._address, answer))
                findings.append(
                    Finding(Kind.QUERY_FAILED, f"{operator}: {failures[-1]}", window.duration, metric=query.name)
                )
                continue
            for name, value in answer:
                metrics = nodes.setdefault(name, {})
                if (query.name, operator) in metrics:
                    message = (
                        f"two series of {query.name} are about this node; the first is used (prometheus.node_label)"
                    )
                    findings.append(Finding(Kind.DUPLICATE, message, window.duration, name, query.name, "merged"))
                    continue
                metrics[query.name, operator] = Metric(query.name, query.type, operator, window.duration, value)
        if not nodes and failures:
            raise failures[0]
        if not nodes:
            raise ProviderAnswerError(
                f"Prometheus at {self._shown} has no series of {' or '.join(query.name for query in QUERIES)}, nor "
                "node_exporter's node_cpu_seconds_total and node_memory_MemAvailable_bytes: is node_exporter scraped?"
            )
        return Fetched(
            {name: NodeMetrics(tuple(found.values()), _TAGS) for name, found in nodes.items()}, tuple(findings)
        )

    def check(self) -> Iterator[Check]:
        """Yield the connection and each query."""
        deadline = Deadline.after(10)
        for query in QUERIES:
            try:
                count = len(self._run(f"count by ({self._label}) ({query.name})", None, deadline))
                raw = len(
                    self._run(f"count by ({self._label}) ({query.raw.format(label=self._label)})", None, deadline)
                )
            except Exception as error:  # noqa: BLE001  translated
                problem = provider_error("Prometheus", self._address, error)
                yield Check(f"query {query.name}", ok=False, message=str(problem), setting="provider.address")
                return
            message = f"recording rule: {count} series, node_exporter: {raw} series"
            yield Check(f"query {query.name}", ok=bool(count or raw), message=message, setting="prometheus.node_label")

    def close(self) -> None:
        """End what is under way and close the connections."""
        self._session.abort()
        self._session.close()

    def _ask(self, query: Query, operator: Operator, window: Window, deadline: Deadline) -> list[tuple[str, float]]:
        """Ask for the rule or its definition, whichever had series last time, and for the other if that has none."""
        use_raw = query.name in self._raw
        for raw in (use_raw, not use_raw):
            expression = query.over(window.duration, operator, self._label if raw else "")
            series = self._run(expression, window.end, deadline)
            if series:
                (self._raw.add if raw else self._raw.discard)(query.name)
                return [self._read(item) for item in series]
        return []

    def _run(self, expression: str, at: int | None, deadline: Deadline) -> list[dict[str, Any]]:
        seconds = max(0.1, deadline.remaining_seconds())
        params = {"timeout": f"{seconds:.3f}", **({} if at is None else {"time": str(at)})}
        answer = self._connect.custom_query(expression, params=params, timeout=seconds)
        if not isinstance(answer, list):
            raise ProviderAnswerError(f"Prometheus at {self._shown} answered {expression} with no list of series")
        return answer

    def _read(self, series: dict[str, Any]) -> tuple[str, float]:
        label = series["metric"].get(self._label, "")
        return node_name(label), float(series["value"][1]) * 100
