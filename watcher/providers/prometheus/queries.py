"""Prometheus queries: for each resource, expressions to try in order.

``$matchers`` is a placeholder for the label matchers of ``prometheus.matchers``, ``$labels`` for the labels that name a
node, ``$at`` for an offset. First the recording rules are tried, then expressions over node_exporter's own series. The
latter have the same definition as the recording rules, so the deviation has the same meaning; they are also correct for
new nodes. They average over processors and replicas, so a node that two Prometheus servers scrape is not counted twice.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from runtime import duration
from watcher.model import LOWEST_PERCENT, MOST_PERCENT, PRESSURES, QUANTILES, MetricType, Operator
from watcher.providers.prometheus.selectors import source_of
from watcher.settings import PrometheusSettings

#: Step of subqueries: the interval at which kube-prometheus evaluates the corresponding recording rules.
STEP = "30s"

_FUNCTIONS = {
    Operator.AVG: "avg_over_time(%s)",
    Operator.STD: "stddev_over_time(%s)",
    Operator.MAX: "max_over_time(%s)",
}
_LOOK_BACK_STEP = "150s"  # half of Prometheus' lookback delta of 5 minutes
_SELECTOR = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*(\{[^{}]*\})?")
_JOIN = re.compile(r"\b(?:avg|max) by")
_PIECE = "trimaran_piece"  # label that distinguishes the rates of one window


@dataclass(frozen=True, slots=True)
class Expression:
    """PromQL expression for a metric.

    Attributes:
        name: the metric's published name.
        promql: an instant expression; its value times the query's scale is a percentage of capacity. In a rate, ``$at``
            stands for an offset after each series and each range.
        smoothing: the time span that the expression averages over, such as ``5m``; empty if unknown.
        source: selector of one of the series that the expression is computed from; empty if the expression is itself
            a plain series, or if the series are unknown.
        gauge: the expression over a window, with ``$function`` for a function such as ``avg_over_time`` and ``$window``
            for its range; empty for a rate, a plain series, or if unknown.
        falls: whether the value of ``gauge`` falls where its series rises.
        each: PromQL for the value of each series, before series of the same node are aggregated; empty if unknown.
        counter: selector of one counter of each machine; empty if unknown.
        is_quotient: whether this is a quotient of two rates of the same scrapes. Over a longer range, such a quotient
            is the mean over this range.
        is_custom: whether a user has written the expression; the labels of its series are then unknown.
    """

    name: str
    promql: str
    smoothing: str = ""
    source: str = ""
    gauge: str = ""
    falls: bool = False
    each: str = ""
    counter: str = ""
    is_quotient: bool = False
    is_custom: bool = False

    def over(
        self,
        window: str,
        operator: Operator,
        matchers: str,
        labels: str,
        end: int | None = None,
        bounds: tuple[float, float] | None = None,
    ) -> str:
        """Return the expression that computes an operator over a window.

        Args:
            window: the window's duration, such as ``15m``.
            operator: the operator.
            matchers: label matchers for all series.
            labels: the labels that name a node.
            end: end of the window, Unix seconds; None for an expression that is right for any end, and slower.
            bounds: the lowest and the highest possible sample, in the expression's unit. For a node with a sample out
                of these bounds, the result is that sample and not the average. Rates of counters are not checked.
        """
        if operator is Operator.AVG:
            text = self._average(window, end)
            if bounds is not None and (guard := self._guard(window, *bounds)):
                text = f"{guard} or {text}"
        else:
            function = _FUNCTIONS.get(operator) or f"quantile_over_time({QUANTILES[operator]}, %s)"
            text = function % self.samples(window)
        return _filled(text, matchers, labels)

    def samples(self, window: str, step: str = STEP) -> str:
        """Return PromQL with placeholders for the samples in a window; for others, one value per step."""
        return f"{self._at()}[{window}]" if self.is_selector() else f"({self._at()})[{window}:{step}]"

    def separate(self, window: str, step: str) -> str:
        """Return PromQL for the samples of each series in a window, or of the aggregate if ``each`` is unknown."""
        return f"({self.each})[{window}:{step}]" if self.each and not self.is_selector() else self.samples(window, step)

    def rates(self, window: str, end: int) -> str:
        """Return PromQL for rates that together span exactly a window, with placeholders; empty for other expressions.

        The rate over five minutes at 0, 5 and 10 minutes before the end has exactly 15 minutes as its mean, while the
        mean of all such rates in the window looks back 20 minutes. A subquery evaluates at multiples of its step; the
        offset moves these to the end of the window. Separate queries for the offsets would cost three times as much.
        """
        count, step = self._pieces(window)
        if not count:
            return ""
        ahead = end % step
        reach = ahead + (count - 1) * step + step // 2
        return f"({self._at(f' offset -{ahead}s' if ahead else '')})[{reach}s:{step}s]"

    def is_guarded(self) -> bool:
        """Return whether :meth:`over` checks samples against bounds."""
        return bool(self._guard("1m", 0, 1))

    def _average(self, window: str, end: int | None) -> str:
        if self.is_quotient and duration.seconds(window) > duration.seconds(self.smoothing):
            # Exact even if scrapes are missing: the growth of the numerator divided by the growth of the time.
            return self._at().replace(f"[{self.smoothing}]", f"[{window}]")
        count, step = self._pieces(window)
        if count == 1:
            return self._at()
        if count and end is not None:
            return f"avg_over_time({self.rates(window, end)})"
        if count:
            pieces = (self._at(f" offset {each * step}s" if each else "") for each in range(count))
            named = (f'label_replace({piece}, "{_PIECE}", "{each}", "", "")' for each, piece in enumerate(pieces))
            return f"avg without ({_PIECE}) ({' or '.join(named)})"
        return self._gauge("avg_over_time", window) or f"avg_over_time({self.samples(window)})"

    def _pieces(self, window: str) -> tuple[int, int]:
        """Return the number of rates whose spans make up a window, and their distance in seconds; 0 for other queries.

        The spans overlap where the window is not a multiple of them.
        """
        if not self.smoothing or "$at" not in self.promql:
            return 0, 0
        seconds, span = duration.seconds(window), duration.seconds(self.smoothing)
        count = max(1, -(-seconds // span))
        return count, (seconds - span) // (count - 1) if count > 1 else span

    def _guard(self, window: str, lowest: float, highest: float) -> str:
        functions = ("max_over_time", "min_over_time") if self.falls else ("min_over_time", "max_over_time")
        low, high = (self._gauge(function, window) for function in functions)
        if not self.is_custom:  # the average over replicas or devices would hide a wrong sample of one of them
            low, high = (_JOIN.sub(f"{name[:3]} by", text) for name, text in zip(functions, (low, high), strict=True))
        return low and f"{low} < {lowest:g} or {high} > {highest:g}"

    def _gauge(self, function: str, window: str) -> str:
        template = f"$function({self._at()}[$window])" if self.is_selector() else self.gauge
        return template.replace("$function", function).replace("$window", window)

    def _at(self, offset: str = "") -> str:
        return self.promql.replace("$at", offset)

    def apart(self, matchers: str) -> str:
        """Return PromQL for the present value of each series, before any aggregation; empty if unknown."""
        return self.each.replace("$matchers", matchers)

    @property
    def lists_all_shares(self) -> bool:
        """True if :meth:`gaps` returns the share of each node that can be checked, False if only of nodes with gaps."""
        return self.is_custom and not self.is_selector()

    def has_times(self) -> bool:
        """Return whether the times of the expression's samples can be queried."""
        return bool(self._selector(""))

    def gaps(self, window: str, matchers: str, labels: str) -> str:
        """Return PromQL for the share of a window in which a node has samples, from 0 to 1.

        The result is empty if the series that the metric is computed from are unknown.
        """
        selector = self._selector(matchers)
        steps = max(1, duration.seconds(window) // duration.seconds(STEP))
        counts = f"max by ({labels}) (count_over_time({selector}[{window}:{STEP}]))"
        # Compared first: the division then concerns few nodes.
        return selector and f"{counts if self.lists_all_shares else f'({counts} < {steps})'} / {steps}"

    def newest(self, window: str, matchers: str, labels: str) -> str:
        """Return PromQL for the time of each node's newest sample in the window, Unix seconds.

        The time of a series that has ended is accurate to one step of the subquery. The result is empty if the series
        that the metric is computed from are unknown.
        """
        selector = self._selector(matchers)
        ended = f"max_over_time(timestamp({selector})[{window}:{_LOOK_BACK_STEP}])"
        return selector and f"max by ({labels}) (timestamp({selector}) or {ended})"

    def now(self, matchers: str, labels: str) -> str:
        """Return PromQL for the present value, with the placeholders filled in."""
        return _filled(self._at(), matchers, labels)

    def is_selector(self) -> bool:
        """Return whether the expression is a plain series, such as a recording rule, and so needs no subquery."""
        return _SELECTOR.fullmatch(self._at()) is not None

    def _selector(self, matchers: str) -> str:
        return (self._at() if self.is_selector() else self.source).replace("$matchers", matchers)


def _filled(promql: str, matchers: str, labels: str) -> str:
    return promql.replace("$matchers", matchers).replace("$labels", labels)


@dataclass(frozen=True, slots=True)
class ResourceQuery:
    """Query for one metric of a node.

    Attributes:
        type: the resource.
        expressions: alternatives; the first that has series is used.
        scale: the factor from the value to percent: 100 for ratios.
        required: whether missing series are reported as a finding.
    """

    type: str
    expressions: tuple[Expression, ...]
    scale: float = 100.0
    required: bool = False

    @property
    def name(self) -> str:
        """The name of the first expression, for messages."""
        return self.expressions[0].name

    def bounds(self) -> tuple[float, float] | None:
        """Return the lowest and the highest possible sample in the unit of the expressions; None if it is unknown."""
        if not self.scale:
            return None
        lowest, highest = sorted((LOWEST_PERCENT / self.scale, MOST_PERCENT / self.scale))
        return lowest, highest


def _rule(name: str, smoothing: str = "") -> Expression:
    selector = f"{name}{{$matchers}}"
    return Expression(name, f"{selector}$at" if smoothing else selector, smoothing, each=selector)


_CPU = _rule("instance:node_cpu:ratio", "5m")
_CPU_5M = _rule("instance:node_cpu_utilisation:rate5m", "5m")
_CPU_1M = _rule("instance:node_cpu_utilisation:rate1m", "1m")
_RAW_CPU = Expression(
    "instance:node_cpu:ratio",
    # A rate over 5 minutes is too low for a younger series. The time of processor 0 over all modes grows by one second
    # per second, so its rate is too low by the same factor: the quotient is right.
    'avg by ($labels) (sum without (mode) (rate(node_cpu_seconds_total{mode!~"idle|iowait|steal",$matchers}[5m]$at)))'
    ' / avg by ($labels) (sum without (mode) (rate(node_cpu_seconds_total{cpu="0",$matchers}[5m]$at)))',
    "5m",
    is_quotient=True,
    # Processor 0 is enough to tell two machines apart, for a small part of the cost.
    each='1 - sum without (mode) (rate(node_cpu_seconds_total{mode="idle",cpu="0",$matchers}[5m]))',
    counter='node_cpu_seconds_total{mode="idle",cpu="0",$matchers}',
)
_MEMORY = _rule("instance:node_memory_utilisation:ratio")
_RAW_MEMORY = Expression(
    "instance:node_memory_utilisation:ratio",
    "1 - avg by ($labels) (node_memory_MemAvailable_bytes{$matchers} / node_memory_MemTotal_bytes{$matchers})",
    source="node_memory_MemAvailable_bytes{$matchers}",
    gauge="1 - avg by ($labels) ($function(node_memory_MemAvailable_bytes{$matchers}[$window])"
    " / avg_over_time(node_memory_MemTotal_bytes{$matchers}[$window]))",
    falls=True,
    each="1 - node_memory_MemAvailable_bytes{$matchers} / node_memory_MemTotal_bytes{$matchers}",
)
# The kubelets alone, without node_exporter: the root cgroup, and the machine's size.
_MACHINE = "sum without (machine_id, system_uuid, boot_id) ({})"
_KUBELET_CPU = Expression(
    "instance:node_cpu:ratio",
    'max by ($labels) (rate(container_cpu_usage_seconds_total{id="/",$matchers}[5m]$at))'
    " / max by ($labels) (machine_cpu_cores{$matchers}$at)",
    "5m",
    source='container_cpu_usage_seconds_total{id="/",$matchers}',
    each='sum without (id, cpu) (rate(container_cpu_usage_seconds_total{id="/",$matchers}[5m])) / '
    + _MACHINE.format("machine_cpu_cores{$matchers}"),
)
_KUBELET_MEMORY = Expression(
    "instance:node_memory_utilisation:ratio",
    'max by ($labels) (container_memory_working_set_bytes{id="/",$matchers})'
    " / max by ($labels) (machine_memory_bytes{$matchers})",
    source='container_memory_working_set_bytes{id="/",$matchers}',
    gauge='max by ($labels) ($function(container_memory_working_set_bytes{id="/",$matchers}[$window]))'
    " / max by ($labels) (machine_memory_bytes{$matchers})",
    each='sum without (id) (container_memory_working_set_bytes{id="/",$matchers}) / '
    + _MACHINE.format("machine_memory_bytes{$matchers}"),
)
_DISK = Expression(
    "instance_device:node_disk_io_time_seconds:rate5m",
    "max by ($labels) (instance_device:node_disk_io_time_seconds:rate5m{$matchers}$at)",
    "5m",
)
_RAW_DISK = Expression(
    "instance_device:node_disk_io_time_seconds:rate5m",
    "max by ($labels) (rate(node_disk_io_time_seconds_total{$matchers}[5m]$at))",
    "5m",
)


def _link(direction: str) -> Expression:
    # Percent of the link's speed, for the busiest link; a link of unknown speed reports a negative speed.
    rate = f'rate(node_network_{direction}_bytes_total{{device!="lo",$matchers}}[5m]$at)'
    speed = "(node_network_speed_bytes{$matchers}$at > 0)"
    name = f"instance:node_network_{direction}_bytes:rate:sum"
    return Expression(name, f"max by ($labels) ({rate} / {speed})", "5m")


_CPU_RULES = {
    "auto": (_CPU, _CPU_5M, _CPU_1M, _RAW_CPU, _KUBELET_CPU),
    "kube-prometheus": (_CPU, _CPU_5M),
    "openshift": (_CPU_1M, _CPU, _RAW_CPU),
    "node-exporter": (_RAW_CPU,),
}
_MEMORY_RULES = {
    "auto": (_MEMORY, _RAW_MEMORY, _KUBELET_MEMORY),
    "kube-prometheus": (_MEMORY,),
    "openshift": (_MEMORY, _RAW_MEMORY),
    "node-exporter": (_RAW_MEMORY,),
}
_GPU = Expression(
    "DCGM_FI_DEV_GPU_UTIL",
    "avg by ($labels) (DCGM_FI_DEV_GPU_UTIL{$matchers})",
    source="DCGM_FI_DEV_GPU_UTIL{$matchers}",
    gauge="avg by ($labels) ($function(DCGM_FI_DEV_GPU_UTIL{$matchers}[$window]))",
    each="DCGM_FI_DEV_GPU_UTIL{$matchers}",
)


#: Reasons for missing series of pressure.
NO_PRESSURE = (
    "there are no series node_pressure_cpu_waiting_seconds_total of node_exporter's collector pressure, and none of "
    "container_pressure_cpu_waiting_seconds_total of cAdvisor, which needs cgroup v2 and Kubernetes 1.34; both need "
    "Linux 4.20, and on some distributions the boot parameter psi=1"
)


def _pressure(resource: str, kind: str) -> tuple[Expression, ...]:
    """Return the expressions of a pressure, as the share of time in which tasks waited.

    A kubelet on a kernel that does not count pressure reports 0 for all of it. Some task has waited for CPU on every
    node since it was booted, so this 0 shows that the pressure is unknown.
    """
    series = f"pressure_{resource}_{'waiting' if kind == 'some' else 'stalled'}_seconds_total"
    root = '{id="/",$matchers}'
    counted = f"max by ($labels) (container_pressure_cpu_waiting_seconds_total{root}$at) > 0"
    return (
        Expression(f"node_{series}", f"avg by ($labels) (rate(node_{series}{{$matchers}}[5m]$at))", "5m"),
        Expression(
            f"container_{series}", f"max by ($labels) (rate(container_{series}{root}[5m]$at)) and {counted}", "5m"
        ),
    )


def _energy(watts: float) -> tuple[Expression, ...]:
    kepler = "sum by ($labels) (rate(kepler_node_platform_joules_total{$matchers}[5m]$at))"
    kepler_cpu = "sum by ($labels) (rate(kepler_node_cpu_joules_total{$matchers}[5m]$at))"
    scaphandre, scaphandre_gauge = (
        f"max by ($labels) ({series}) / 1e6 / {watts:g}"
        for series in (
            "scaph_host_power_microwatts{$matchers}",
            "$function(scaph_host_power_microwatts{$matchers}[$window])",
        )
    )
    return (
        Expression("kepler_node_platform_joules_total", f"{kepler} / {watts:g}", "5m"),
        Expression("kepler_node_cpu_joules_total", f"{kepler_cpu} / {watts:g}", "5m"),
        Expression("scaph_host_power_microwatts", scaphandre, gauge=scaphandre_gauge),
    )


def _custom(name: str, promql: str, smoothing: str) -> Expression:
    """Return the expression of a user's query; a plain series with ``smoothing`` is averaged like a rate."""
    if not _SELECTOR.fullmatch(promql):
        return Expression(
            name, promql, smoothing, gauge=f"$function(({promql})[$window:{STEP}])", source=source_of(promql),
            is_custom=True, each=f"({promql})",
        )  # fmt: skip
    return Expression(name, f"{promql}$at" if _is_duration(smoothing) else promql, smoothing, each=promql)


def _is_duration(text: str) -> bool:
    try:
        return duration.seconds(text) > 0
    except ValueError:
        return False


def value_of(series: Mapping[str, Any]) -> float:
    """Return the value of a series in a response; an unreadable value becomes NaN, and later a finding."""
    try:
        return float(series["value"][1])
    except (LookupError, TypeError, ValueError):
        return math.nan


def queries(settings: PrometheusSettings) -> tuple[ResourceQuery, ...]:
    """Return the queries: the user's, and the built-in ones for all other types."""
    builtin = [
        ResourceQuery(MetricType.CPU, _CPU_RULES[settings.query_set], required=True),
        ResourceQuery(MetricType.MEMORY, _MEMORY_RULES[settings.query_set], required=True),
        ResourceQuery(MetricType.STORAGE, (_DISK, _RAW_DISK)),
        ResourceQuery(MetricType.BANDWIDTH, (_link("transmit"),)),
        ResourceQuery(MetricType.BANDWIDTH, (_link("receive"),)),
        ResourceQuery(MetricType.GPU, (_GPU,), scale=1.0),
    ]
    if settings.pressure:
        builtin += [ResourceQuery(type_, _pressure(*key)) for key, type_ in PRESSURES.items()]
    if settings.node_power_watts:
        builtin.append(ResourceQuery(MetricType.ENERGY, _energy(settings.node_power_watts)))
    custom = tuple(
        ResourceQuery(
            query_settings.type,
            (_custom(query_settings.name, query_settings.query, query_settings.smoothing),),
            query_settings.scale,
            required=True,
        )
        for query_settings in settings.queries
    )
    replaced = {query.type for query in custom}
    return (*custom, *(query for query in builtin if query.type not in replaced))
