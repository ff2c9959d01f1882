"""InfluxDB queries in InfluxQL (1.x) and Flux (2.x).

Statistics are computed over the stored field and converted to percent afterwards. The conversion may reverse the order:
the highest CPU use is the lowest idle time.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from watcher.model import LOWEST_PERCENT, MOST_PERCENT, QUANTILES, MetricType, Operator, Window
from watcher.settings import InfluxDbQuery, InfluxDbSettings
from watcher.windows.shared_names import LEAST_PERCENT

#: Additional columns: the number of samples, the lowest sample, the newest sample, and its time.
COUNT, LOWEST, NEWEST, TIME = "COUNT", "LOWEST", "NEWEST", "time"

SMALLEST, LARGEST = "SMALLEST", "LARGEST"  # columns with the extreme samples, which are checked

_ENDED_SECONDS = 120  # a series has ended if another series of the node has samples newer by this
_MOST_NAMED = 100  # a query lists at most so many hosts; for more hosts it selects all
_OPERATORS = {str(operator): operator for operator in Operator}
_LARGEST = 1e15  # beyond this, sums of squares overflow and InfluxDB 1.x cannot encode its response
_TELEGRAF = (
    InfluxDbQuery(
        name="telegraf:cpu:percent", type=MetricType.CPU, measurement="cpu", field="usage_idle",
        where={"cpu": "cpu-total"}, scale=-1, offset=100,
    ),
    InfluxDbQuery(
        name="telegraf:memory:percent", type=MetricType.MEMORY, measurement="mem", field="available_percent",
        scale=-1, offset=100,
    ),
    InfluxDbQuery(
        name="telegraf:memory:percent", type=MetricType.MEMORY, measurement="mem", field="used_percent",
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Bounds:
    """Range of the samples to use, and the hosts to query.

    Attributes:
        lowest: the lowest sample, in the field's unit.
        highest: the highest sample, in the field's unit.
        tag: tag with the host.
        hosts: the only hosts to ask for; empty for all.
    """

    lowest: float = -_LARGEST
    highest: float = _LARGEST
    tag: str = ""
    hosts: tuple[str, ...] = ()

    @classmethod
    def of(cls, query: InfluxDbQuery) -> "Bounds":
        """Return the range of a query's possible samples."""
        lowest, highest = sorted((each - query.offset) / query.scale for each in (LOWEST_PERCENT, MOST_PERCENT))
        return cls(max(lowest, -_LARGEST), min(highest, _LARGEST))

    def only(self, tag: str, hosts: Iterable[str]) -> "Bounds":
        """Return the bounds for the given hosts only, or for all hosts if more than 100 are given."""
        named = tuple(sorted(set(hosts)))
        return Bounds(self.lowest, self.highest, tag, named if len(named) <= _MOST_NAMED else ())

    def refuse(self, columns: Mapping[str, float]) -> bool:
        """Return whether a series has samples outside of the bounds."""
        return columns.get(SMALLEST, self.lowest) < self.lowest or columns.get(LARGEST, self.highest) > self.highest


@dataclass(frozen=True, slots=True)
class Statistics:
    """Statistics of one or more series of a node over a window.

    Attributes:
        count: the number of samples.
        values: operator to value; STD is the population deviation.
        lowest: the lowest sample, percent.
        highest: the highest sample, percent.
        tags: the tags of the series, if it is a single one.
        newest: time of the newest sample, Unix seconds; 0 if unknown.
    """

    count: int
    values: Mapping[Operator, float]
    lowest: float = math.nan
    highest: float = math.nan
    tags: Mapping[str, str] = field(default_factory=dict)
    newest: float = 0.0


def queries(settings: InfluxDbSettings) -> dict[str, tuple[InfluxDbQuery, ...]]:
    """Return the alternative queries for each metric, in the order to try them.

    The user's queries replace the built-in queries of the same resource.
    """
    replaced = {query.type for query in settings.queries}
    result: dict[str, tuple[InfluxDbQuery, ...]] = {}
    for query in (*settings.queries, *(query for query in _TELEGRAF if query.type not in replaced)):
        result[query.name] = (*result.get(query.name, ()), query)
    return result


def influxql(
    query: InfluxDbQuery,
    operators: Iterable[Operator],
    window: Window,
    retention_policy: str = "",
    bounds: Bounds | None = None,
) -> str:
    """Return the InfluxQL statement; its response has a column for each statistic, and a row for each series.

    Args:
        query: the query.
        operators: the statistics.
        window: the time span of the samples: after its start, up to and including its end.
        retention_policy: the retention policy; empty for the database's default.
        bounds: range of the samples to use; None to use all.
    """
    source, field_name, conditions = _influxql_source(query, window, retention_policy)
    if query.rate:
        derivative = f'SELECT NON_NEGATIVE_DERIVATIVE({field_name}, 1s) AS "rise" FROM {source}'  # noqa: S608  quoted below
        source = f"({derivative} WHERE {' AND '.join(conditions)} GROUP BY *)"
        field_name, conditions = '"rise"', conditions[-1:]
    limits = []
    if bounds is not None:
        limits = [f"{field_name} >= {bounds.lowest:.9f}", f"{field_name} <= {bounds.highest:.9f}"]
        hosts = [f"{_identifier(bounds.tag)} = {_influxql_string(host)}" for host in bounds.hosts]
        limits += [f"({' OR '.join(hosts)})"] if hosts else []
    calls = _influxql_calls(query, operators, field_name)
    columns = ", ".join(f'{call} AS "{column}"' for column, call in calls.items())
    return f"SELECT {columns} FROM {source} WHERE {' AND '.join([*limits, *conditions])} GROUP BY *"  # noqa: S608


def influxql_newest(query: InfluxDbQuery, window: Window, retention_policy: str = "") -> str:
    """Return the InfluxQL statement for each series' newest sample and its time, which aggregates do not have."""
    source, field_name, conditions = _influxql_source(query, window, retention_policy)
    return f'SELECT LAST({field_name}) AS "{NEWEST}" FROM {source} WHERE {" AND ".join(conditions)} GROUP BY *'  # noqa: S608


def flux(
    query: InfluxDbQuery, operators: Iterable[Operator], window: Window, bucket: str, bounds: Bounds | None = None
) -> str:
    """Return the Flux script; its response has a result for each statistic, with a row for each series.

    Args:
        query: the query.
        operators: the statistics.
        window: the time span of the samples.
        bucket: the bucket.
        bounds: range of the samples to use; None to use all.
    """
    rate = ["|> derivative(unit: 1s, nonNegative: true)"] if query.rate else []
    tail = "|> drop(fn: (column) => column =~ /^_(start|stop|time|field|measurement)$/)"
    results = [
        f'data |> {call} {tail} |> yield(name: "{column}")' for column, call in _flux_calls(query, operators).items()
    ]
    limits = []
    if bounds is not None:
        limits = [f"|> filter(fn: (r) => r._value >= {bounds.lowest:.9f} and r._value <= {bounds.highest:.9f})"]
        hosts = [f"r[{_flux_string(bounds.tag)}] == {_flux_string(host)}" for host in bounds.hosts]
        limits += [f"|> filter(fn: (r) => {' or '.join(hosts)})"] if hosts else []
    return "\n".join(["\n  ".join([*_flux_source(query, window, bucket), *rate, *limits]), *results])


def flux_newest(query: InfluxDbQuery, window: Window, bucket: str) -> str:
    """Return the Flux script for each series' newest sample and its time."""
    tail = "|> drop(fn: (column) => column =~ /^_(start|stop|field|measurement)$/)"
    result = f'data |> last() {tail} |> yield(name: "{NEWEST}")'
    return "\n".join(["\n  ".join(_flux_source(query, window, bucket)), result])


def percent(query: InfluxDbQuery, columns: Mapping[str, float], *, sample_deviation: bool) -> Statistics | None:
    """Convert the statistics of a field to percent.

    Args:
        query: the query, with scale and offset.
        columns: the response's columns by name, without columns that have no value.
        sample_deviation: whether STD is a sample deviation (divided by n - 1), as in InfluxQL.

    Returns:
        The statistics in percent, or None if there are no samples. Percentiles that were not requested may be included.
    """
    samples = columns.get(COUNT, 0.0)
    if not 1 <= samples <= _LARGEST:
        return None
    count = int(samples)
    deviation = abs(query.scale) * (math.sqrt((count - 1) / count) if sample_deviation else 1.0)
    values: dict[Operator, float] = {}
    for column, value in columns.items():
        operator = _OPERATORS.get(column)
        if operator is Operator.STD:
            values[operator] = deviation * value
        elif operator is not None:
            values[operator] = query.offset + query.scale * value
    if count == 1:
        values[Operator.STD] = 0.0  # InfluxQL returns null, as it would divide by 0
    if LOWEST in columns:
        # With few samples, a low rank is before the first sample: InfluxQL returns null instead of that sample.
        for operator in QUANTILES:
            values.setdefault(operator, query.offset + query.scale * columns[LOWEST])
    low, high = sorted(query.offset + query.scale * columns.get(column, math.nan) for column in (SMALLEST, LARGEST))
    return Statistics(count, values, low, high)


def separated(parts: Sequence[Statistics]) -> tuple[list[Statistics], str]:
    """Return a node's series without those that ended, and a message if the others are of several machines.

    Args:
        parts: the statistics of each series, at least one.

    Returns:
        The remaining series, and the text of a finding; "" if all series seem to be of one machine.
    """
    newest = max(part.newest for part in parts)
    parts = [part for part in parts if part.newest >= newest - _ENDED_SECONDS]
    hot, cool = max(parts, key=lambda part: part.lowest), min(parts, key=lambda part: part.highest)
    if not hot.lowest > cool.highest + LEAST_PERCENT:
        return parts, ""
    tags = sorted(tag for tag in {**hot.tags, **cool.tags} if hot.tags.get(tag) != cool.tags.get(tag))
    shown = ", ".join(f'{tag} "{hot.tags.get(tag, "")}" and "{cool.tags.get(tag, "")}"' for tag in tags[:3])
    difference = f"they are {hot.lowest:.0f} and {cool.highest:.0f} percent, and differ in {shown}"
    return parts, f"several machines have this name: {difference} (influxdb.queries, where)"


def combined(query: InfluxDbQuery, parts: Sequence[Statistics]) -> Statistics:
    """Return the statistics of a node with several series.

    Depending on ``query.combine`` these are the statistics of the series with the highest average, or of the samples of
    all series together. In the latter case mean and deviation are exact; the highest percentile of any series is used,
    because the percentiles of all samples are unknown.

    Args:
        query: the query.
        parts: the statistics of each series, at least one.
    """
    if len(parts) == 1:
        return parts[0]
    if query.combine == "busiest":
        return max(parts, key=lambda part: part.values.get(Operator.AVG, float("-inf")))
    count = sum(part.count for part in parts)
    values = {
        operator: max(part.values[operator] for part in parts if operator in part.values)
        for operator in dict.fromkeys(operator for part in parts for operator in part.values)
    }
    if all(Operator.AVG in part.values for part in parts):
        mean = sum(part.count * part.values[Operator.AVG] for part in parts) / count
        values[Operator.AVG] = mean
        if all(Operator.STD in part.values for part in parts):
            distances = ((part.count, part.values[Operator.STD], part.values[Operator.AVG] - mean) for part in parts)
            # hypot() instead of squares, which may overflow
            spreads = [math.hypot(deviation, distance) * math.sqrt(n / count) for n, deviation, distance in distances]
            values[Operator.STD] = math.hypot(*spreads)
    return Statistics(count, values)


def _influxql_source(query: InfluxDbQuery, window: Window, retention_policy: str) -> tuple[str, str, list[str]]:
    """Return the measurement, the field and the list of conditions for an InfluxQL statement, all quoted.

    The last condition is the time range.
    """
    conditions = [f"{_identifier(tag)} = {_influxql_string(value)}" for tag, value in query.where.items()]
    source = ".".join(_identifier(part) for part in (retention_policy, query.measurement) if part)
    return source, _identifier(query.field), [*conditions, f"time > {window.start}s AND time <= {window.end}s"]


def _influxql_calls(query: InfluxDbQuery, operators: Iterable[Operator], value: str) -> dict[str, str]:
    calls: dict[str, str] = {}
    for operator in operators:
        if operator in QUANTILES and query.scale < 0:
            calls[LOWEST] = f"MIN({value})"
        match operator:
            case Operator.AVG:
                calls[operator] = f"MEAN({value})"
            case Operator.STD:
                calls[operator] = f"STDDEV({value})"
            case Operator.MAX if query.scale > 0:
                calls[operator] = f"MAX({value})"
            case Operator.P90 | Operator.P95 | Operator.P99:
                calls[operator] = f"PERCENTILE({value}, {_rank(query, operator) * 100:g})"
    return {**calls, COUNT: f"COUNT({value})", SMALLEST: f"MIN({value})", LARGEST: f"MAX({value})"}


def _flux_source(query: InfluxDbQuery, window: Window, bucket: str) -> list[str]:
    tags = {"_measurement": query.measurement, "_field": query.field, **query.where}
    conditions = " and ".join(f"r[{_flux_string(tag)}] == {_flux_string(value)}" for tag, value in tags.items())
    return [
        f"data = from(bucket: {_flux_string(bucket)})",
        # Flux includes the start and excludes the end; windows do the opposite: shift both by a nanosecond.
        f"|> range(start: {_moment(window.start)}, stop: {_moment(window.end)})",
        f"|> filter(fn: (r) => {conditions})",
    ]


def _flux_calls(query: InfluxDbQuery, operators: Iterable[Operator]) -> dict[str, str]:
    calls: dict[str, str] = {}
    for operator in operators:
        match operator:
            case Operator.AVG:
                calls[operator] = "mean()"
            case Operator.STD:
                calls[operator] = 'stddev(mode: "population")'
            case Operator.MAX if query.scale < 0:
                calls[LOWEST] = "min()"
            case Operator.MAX:
                calls[operator] = "max()"
            case Operator.P90 | Operator.P95 | Operator.P99:
                calls[operator] = f'quantile(q: {_rank(query, operator):g}, method: "exact_mean")'
    return {**calls, COUNT: "count()", SMALLEST: "min()", LARGEST: "max()"}


def _rank(query: InfluxDbQuery, operator: Operator) -> float:
    quantile = QUANTILES[operator]
    return quantile if query.scale > 0 else round(1 - quantile, 6)


def _moment(seconds: int) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.000000001Z"


def _identifier(name: str) -> str:
    return '"' + re.sub(r'(["\\])', r"\\\1", name).replace("\n", r"\n") + '"'


def _influxql_string(text: str) -> str:
    return "'" + re.sub(r"(['\\])", r"\\\1", text).replace("\n", r"\n") + "'"


def _flux_string(text: str) -> str:
    escaped = re.sub(r'(["\\]|\$(?={))', r"\\\1", text)
    return '"' + escaped.replace("\n", r"\n").replace("\r", r"\r").replace("\t", r"\t") + '"'
