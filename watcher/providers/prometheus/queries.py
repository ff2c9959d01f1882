"""What is asked of Prometheus, as data: for each resource, expressions to try in order.

``$matchers`` stands for the label matchers of ``prometheus.matchers``, ``$labels`` for the labels that name a node.
The expressions over node_exporter's own series have the same definition as the recording rules before them, so that
average and deviation mean the same, but are right about new nodes, too; they average over processors and over
replicas alike, so that two Prometheus that scrape the same node do not count it twice.
"""

import re
from dataclasses import dataclass

from runtime import duration
from watcher.model import QUANTILES, MetricType, Operator
from watcher.settings import PrometheusSettings

#: The step of subqueries: how often kube-prometheus evaluates the rules that the expressions stand in for.
STEP = "30s"

_FUNCTIONS = {
    Operator.AVG: "avg_over_time(%s)",
    Operator.STD: "stddev_over_time(%s)",
    Operator.MAX: "max_over_time(%s)",
}
_LOOK_BACK_STEP = "150s"  # half of how far back Prometheus looks for a series' last sample
_SELECTOR = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*(\{[^{}]*\})?")


@dataclass(frozen=True, slots=True)
class Expression:
    """One way to ask for a metric.

    Attributes:
        name: the name it is published under.
        promql: an instant expression; its value times the query's scale is a percent of capacity.
        smoothing: the span it averages over by itself, where known.
        source: for an expression that is no plain series, one of those that it is computed from.
    """

    name: str
    promql: str
    smoothing: str = ""
    source: str = ""

    def over(self, window: str, operator: Operator, matchers: str, labels: str) -> str:
        """Return the expression that computes an operator over a window."""
        inner = self.promql.replace("$matchers", matchers).replace("$labels", labels)
        ranged = f"{inner}[{window}]" if self.is_selector() else f"({inner})[{window}:{STEP}]"
        function = _FUNCTIONS.get(operator) or f"quantile_over_time({QUANTILES[operator]}, %s)"
        return function % ranged

    def gaps(self, window: str, matchers: str, labels: str) -> str:
        """Return the expression for the share of a window in which each node was measured, where that is not all of it.

        Empty where no series can tell; so are the next two.
        """
        selector = self._selector(matchers)
        steps = max(1, duration.seconds(window) // duration.seconds(STEP))
        return selector and f"max by ({labels}) (count_over_time({selector}[{window}:{STEP}])) / {steps} < 1"

    def newest_alive(self, _window: str, matchers: str, _labels: str) -> str:
        """Return the expression for the time of each living series' newest sample, unix seconds."""
        selector = self._selector(matchers)
        return selector and f"timestamp({selector})"

    def newest_ended(self, window: str, matchers: str, labels: str) -> str:
        """Return the same that knows series which ended in the window, too: within a step."""
        alive = self.newest_alive(window, matchers, labels)
        return alive and f"max_over_time({alive}[{window}:{_LOOK_BACK_STEP}])"

    def now(self, matchers: str, labels: str) -> str:
        """Return the expression for the present."""
        return self.promql.replace("$matchers", matchers).replace("$labels", labels)

    def is_selector(self) -> bool:
        """Return whether this is a plain series, such as a recording rule's, that needs no subquery."""
        return _SELECTOR.fullmatch(self.promql) is not None

    def _selector(self, matchers: str) -> str:
        return (self.promql if self.is_selector() else self.source).replace("$matchers", matchers)


@dataclass(frozen=True, slots=True)
class ResourceQuery:
    """One metric of a node.

    Attributes:
        type: the resource.
        expressions: the first that has series is used.
        scale: what makes a percent of it: 100 for ratios.
        required: whether it is worth a finding when no expression has series.
    """

    type: str
    expressions: tuple[Expression, ...]
    scale: float = 100.0
    required: bool = False

    @property
    def name(self) -> str:
        """The name of the first expression, for messages."""
        return self.expressions[0].name


_CPU = Expression("instance:node_cpu:ratio", "instance:node_cpu:ratio{$matchers}", "5m")
_CPU_5M = Expression("instance:node_cpu_utilisation:rate5m", "instance:node_cpu_utilisation:rate5m{$matchers}", "5m")
_CPU_1M = Expression("instance:node_cpu_utilisation:rate1m", "instance:node_cpu_utilisation:rate1m{$matchers}", "1m")
_RAW_CPU = Expression(
    "instance:node_cpu:ratio",
    # A rate is over five minutes also when a series is younger, and then too low. All that processor 0 did takes one
    # second a second: its rate is too low by the same share.
    'avg by ($labels) (sum without (mode) (rate(node_cpu_seconds_total{mode!~"idle|iowait|steal",$matchers}[5m])))'
    ' / avg by ($labels) (sum without (mode) (rate(node_cpu_seconds_total{cpu="0",$matchers}[5m])))',
    "5m",
)
_MEMORY = Expression("instance:node_memory_utilisation:ratio", "instance:node_memory_utilisation:ratio{$matchers}")
_RAW_MEMORY = Expression(
    "instance:node_memory_utilisation:ratio",
    "1 - avg by ($labels) (node_memory_MemAvailable_bytes{$matchers} / node_memory_MemTotal_bytes{$matchers})",
    source="node_memory_MemAvailable_bytes{$matchers}",
)
_DISK = Expression(
    "instance_device:node_disk_io_time_seconds:rate5m",
    "max by ($labels) (instance_device:node_disk_io_time_seconds:rate5m{$matchers})",
    "5m",
)
_RAW_DISK = Expression(
    "instance_device:node_disk_io_time_seconds:rate5m",
    "max by ($labels) (rate(node_disk_io_time_seconds_total{$matchers}[5m]))",
    "5m",
)


def _link(direction: str) -> Expression:
    # Percent of the link's speed, the busiest link; a link that does not tell its speed has a negative one.
    rate = f'rate(node_network_{direction}_bytes_total{{device!="lo",$matchers}}[5m])'
    speed = "(node_network_speed_bytes{$matchers} > 0)"
    name = f"instance:node_network_{direction}_bytes:rate:sum"
    return Expression(name, f"max by ($labels) ({rate} / {speed})", "5m")


_CPU_RULES = {
    "auto": (_CPU, _CPU_5M, _CPU_1M, _RAW_CPU),
    "kube-prometheus": (_CPU, _CPU_5M),
    "openshift": (_CPU_1M, _CPU, _RAW_CPU),
    "node-exporter": (_RAW_CPU,),
}
_MEMORY_RULES = {
    "auto": (_MEMORY, _RAW_MEMORY),
    "kube-prometheus": (_MEMORY,),
    "openshift": (_MEMORY, _RAW_MEMORY),
    "node-exporter": (_RAW_MEMORY,),
}
_GPU = Expression("DCGM_FI_DEV_GPU_UTIL", "avg by ($labels) (DCGM_FI_DEV_GPU_UTIL{$matchers})")


def _energy(watts: float) -> tuple[Expression, ...]:
    kepler = "sum by ($labels) (rate(kepler_node_platform_joules_total{$matchers}[5m]))"
    kepler_cpu = "sum by ($labels) (rate(kepler_node_cpu_joules_total{$matchers}[5m]))"
    scaphandre = "max by ($labels) (scaph_host_power_microwatts{$matchers}) / 1e6"
    return (
        Expression("kepler_node_platform_joules_total", f"{kepler} / {watts:g}", "5m"),
        Expression("kepler_node_cpu_joules_total", f"{kepler_cpu} / {watts:g}", "5m"),
        Expression("scaph_host_power_microwatts", f"{scaphandre} / {watts:g}"),
    )


def queries(settings: PrometheusSettings) -> tuple[ResourceQuery, ...]:
    """Return what to ask: the built-in set, with the user's own queries instead of all of the same type."""
    builtin = [
        ResourceQuery(MetricType.CPU, _CPU_RULES[settings.query_set], required=True),
        ResourceQuery(MetricType.MEMORY, _MEMORY_RULES[settings.query_set], required=True),
        ResourceQuery(MetricType.STORAGE, (_DISK, _RAW_DISK)),
        ResourceQuery(MetricType.BANDWIDTH, (_link("transmit"),)),
        ResourceQuery(MetricType.BANDWIDTH, (_link("receive"),)),
        ResourceQuery(MetricType.GPU, (_GPU,), scale=1.0),
    ]
    if settings.node_power_watts:
        builtin.append(ResourceQuery(MetricType.ENERGY, _energy(settings.node_power_watts)))
    own = tuple(
        ResourceQuery(each.type, (Expression(each.name, each.query, each.smoothing),), each.scale, required=True)
        for each in settings.queries
    )
    replaced = {query.type for query in own}
    return (*own, *(query for query in builtin if query.type not in replaced))
