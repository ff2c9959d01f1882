"""What is asked of InfluxDB, as data, in the words of InfluxQL (1.x) and of Flux (2.x).

A statistic is asked of the field itself and made a percent afterwards: the highest CPU use is the lowest idle time.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from watcher.model import QUANTILES, MetricType, Operator, Window
from watcher.settings import InfluxDbQuery, InfluxDbSettings

#: Columns that are no operators of ours: how many samples there are, the lowest one, the newest one, and its time.
COUNT, LOWEST, NEWEST, TIME = "COUNT", "LOWEST", "NEWEST", "time"

_OPERATORS = {str(operator): operator for operator in Operator}
_LARGEST = 1e15  # beyond this, sums of squares overflow and InfluxDB 1.x can write no answer at all
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
class Statistics:
    """What is known of one or more series of a node over a window.

    Attributes:
        count: how many samples.
        values: operator to value; STD is the population deviation.
    """

    count: int
    values: Mapping[Operator, float]


def queries(settings: InfluxDbSettings) -> dict[str, tuple[InfluxDbQuery, ...]]:
    """Return what to ask by published name, alternatives in order: the user's instead of ours of the same type."""
    replaced = {query.type for query in settings.queries}
    found: dict[str, tuple[InfluxDbQuery, ...]] = {}
    for query in (*settings.queries, *(query for query in _TELEGRAF if query.type not in replaced)):
        found[query.name] = (*found.get(query.name, ()), query)
    return found


def influxql(
    query: InfluxDbQuery,
    operators: Iterable[Operator],
    window: Window,
    retention_policy: str = "",
    *,
    bounded: bool,
) -> str:
    """Return the InfluxQL statement, with a column for each statistic and a row for each series.

    Args:
        query: what to ask.
        operators: which statistics.
        window: over which samples: after its start, up to its end.
        retention_policy: where, when not in the database's default one.
        bounded: leave out samples so large that their sum is infinite.
    """
    source, value, where = _influxql_source(query, window, retention_policy)
    if query.rate:
        rise = f'SELECT NON_NEGATIVE_DERIVATIVE({value}, 1s) AS "rise" FROM {source}'  # noqa: S608  quoted below
        source, value, where = f"({rise} WHERE {' AND '.join(where)} GROUP BY *)", '"rise"', where[-1:]
    bounds = [f"{value} > -{_LARGEST:.1f}", f"{value} < {_LARGEST:.1f}"] if bounded else []
    columns = ", ".join(f'{call} AS "{column}"' for column, call in _influxql_calls(query, operators, value).items())
    return f"SELECT {columns} FROM {source} WHERE {' AND '.join([*bounds, *where])} GROUP BY *"  # noqa: S608


def influxql_newest(query: InfluxDbQuery, window: Window, retention_policy: str = "") -> str:
    """Return the InfluxQL statement for each series' newest sample and its time; aggregates have no time."""
    source, value, where = _influxql_source(query, window, retention_policy)
    return f'SELECT LAST({value}) AS "{NEWEST}" FROM {source} WHERE {" AND ".join(where)} GROUP BY *'  # noqa: S608


def flux(query: InfluxDbQuery, operators: Iterable[Operator], window: Window, bucket: str) -> str:
    """Return the Flux script, with a result for each statistic, each with a row for each series."""
    rate = ["|> derivative(unit: 1s, nonNegative: true)"] if query.rate else []
    tail = "|> drop(fn: (column) => column =~ /^_(start|stop|time|field|measurement)$/)"
    results = [
        f'data |> {call} {tail} |> yield(name: "{column}")' for column, call in _flux_calls(query, operators).items()
    ]
    return "\n".join(["\n  ".join([*_flux_source(query, window, bucket), *rate]), *results])


def flux_newest(query: InfluxDbQuery, window: Window, bucket: str) -> str:
    """Return the Flux script for each series' newest sample and its time."""
    tail = "|> drop(fn: (column) => column =~ /^_(start|stop|field|measurement)$/)"
    result = f'data |> last() {tail} |> yield(name: "{NEWEST}")'
    return "\n".join(["\n  ".join(_flux_source(query, window, bucket)), result])


def percent(query: InfluxDbQuery, columns: Mapping[str, float], *, sample_deviation: bool) -> Statistics | None:
    """Turn the statistics of a field into those of a percent.

    Args:
        query: its scale and offset.
        columns: the answer's columns by name, those without a value left out.
        sample_deviation: whether STD is that of a sample (divided by n - 1), as InfluxQL's is.

    Returns:
        None when there are no samples. Statistics that were not asked for may be among those of few samples.
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
        values[Operator.STD] = 0.0  # InfluxQL says nothing: it would divide by 0
    if LOWEST in columns:
        # A low rank of few samples is before the first one: InfluxQL then says nothing, and means the first.
        for operator in QUANTILES:
            values.setdefault(operator, query.offset + query.scale * columns[LOWEST])
    return Statistics(count, values)


def combined(query: InfluxDbQuery, parts: Sequence[Statistics]) -> Statistics:
    """Return the statistics of a node with several series: of all samples together, or of the busiest series.

    Mean and deviation are exact; the percentiles of all samples are not known, the highest stands for them.
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
            # hypot, as a square may overflow
            spreads = [math.hypot(deviation, distance) * math.sqrt(n / count) for n, deviation, distance in distances]
            values[Operator.STD] = math.hypot(*spreads)
    return Statistics(count, values)


def _influxql_source(query: InfluxDbQuery, window: Window, retention_policy: str) -> tuple[str, str, list[str]]:
    """Return measurement, field, and conditions, of which the last one is about the time; all quoted."""
    where = [f"{_identifier(tag)} = {_influxql_string(word)}" for tag, word in query.where.items()]
    source = ".".join(_identifier(each) for each in (retention_policy, query.measurement) if each)
    return source, _identifier(query.field), [*where, f"time > {window.start}s AND time <= {window.end}s"]


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
    return {**calls, COUNT: f"COUNT({value})"}


def _flux_source(query: InfluxDbQuery, window: Window, bucket: str) -> list[str]:
    tags = {"_measurement": query.measurement, "_field": query.field, **query.where}
    conditions = " and ".join(f"r[{_flux_string(tag)}] == {_flux_string(word)}" for tag, word in tags.items())
    return [
        f"data = from(bucket: {_flux_string(bucket)})",
        # Flux takes the start in and leaves the end out; we do the opposite, to the nanosecond.
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
    return {**calls, COUNT: "count()"}


def _rank(query: InfluxDbQuery, operator: Operator) -> float:
    quantile = QUANTILES[operator]
    return quantile if query.scale > 0 else round(1 - quantile, 6)


def _moment(seconds: int) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.000000001Z"


def _identifier(word: str) -> str:
    return '"' + re.sub(r'(["\\])', r"\\\1", word).replace("\n", r"\n") + '"'


def _influxql_string(word: str) -> str:
    return "'" + re.sub(r"(['\\])", r"\\\1", word).replace("\n", r"\n") + "'"


def _flux_string(word: str) -> str:
    escaped = re.sub(r'(["\\]|\$(?={))', r"\\\1", word)
    return '"' + escaped.replace("\n", r"\n").replace("\r", r"\r").replace("\t", r"\t") + '"'
