"""History of the nodes' load over the last hours: for each metric, an array of shape (nodes, steps of time)."""

import math
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Self

from runtime import duration
from watcher.model import MetricType, Operator, notebook_table

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

#: Resolution of the stored history, and so the shortest step.
RESOLUTION_SECONDS = 60
#: Maximum number of steps of a history of one node, and of a history of all nodes.
MAX_STEPS_ONE_NODE, MAX_STEPS_ALL_NODES = 1500, 300
#: Longest span of a history, however much is stored, and the default span.
MAX_SPAN_SECONDS, DEFAULT_SPAN_SECONDS = 31 * 86400, 86400


class BadHistoryQuery(ValueError):
    """Invalid time, step, type or operator of a history query; the message names the valid values."""


def start_time(since: float | str | None, now: float) -> float:
    """Return the start of a history, Unix seconds.

    Args:
        since: Unix seconds, or a duration before ``now`` such as ``6h``; None means one day before ``now``.
        now: Unix seconds.

    Raises:
        BadHistoryQuery: ``since`` is neither a time nor a duration.
    """
    if since is None:
        return now - DEFAULT_SPAN_SECONDS
    if isinstance(since, str) and not (since.isascii() and since.isdigit()):
        try:
            return now - duration.seconds(since)
        except ValueError as error:
            raise BadHistoryQuery(f"since must be Unix seconds or a duration before now: {error}") from None
    if not math.isfinite(float(since)):
        raise BadHistoryQuery("since must be a finite number of Unix seconds")
    return float(since)


def step_seconds(step: int | str | None) -> int | None:
    """Return the length of a step in seconds.

    Args:
        step: seconds, or a duration such as ``5m``; None is returned unchanged.

    Raises:
        BadHistoryQuery: ``step`` is neither a number of seconds nor a duration.
    """
    if not isinstance(step, str):
        return step
    try:
        return int(step) if step.isascii() and step.isdigit() else duration.seconds(step)
    except ValueError as error:
        raise BadHistoryQuery(f"step must be seconds or a duration: {error}") from None


def check_metric(type_: str | None, operator: str | None, stored: Collection[tuple[str, str]]) -> None:
    """Check that a history can have the requested metric.

    Args:
        type_: the requested resource; None for all resources.
        operator: the requested operator; None for all operators.
        stored: type and operator of each metric in the store; if there are none yet, all types and operators are valid.

    Raises:
        BadHistoryQuery: the store has no such metric; the message lists the stored metrics.
    """
    requested = {"type": (type_, MetricType), "operator": (operator, Operator)}
    if not stored:
        for name, (value, known) in requested.items():
            if value is not None and value not in set(known):
                raise BadHistoryQuery(f"there is no history of {name} {value[:40]!r}; available: {', '.join(known)}")
    elif not any(type_ in (None, each) and operator in (None, other) for each, other in stored):
        words = " and ".join(f"{name} {value[:40]!r}" for name, (value, _) in requested.items() if value is not None)
        available = ", ".join(" ".join(metric) for metric in sorted(stored))
        raise BadHistoryQuery(f"there is no history of {words}; available: {available}")


@dataclass(frozen=True, slots=True)
class Steps:
    """Division of a span of time into steps of equal length.

    Attributes:
        start: start of the first step, Unix seconds; a multiple of ``seconds``.
        seconds: length of a step in seconds.
        count: number of steps.
    """

    start: int
    seconds: int
    count: int

    @classmethod
    def between(cls, since: float, until: float, seconds: int | None, max_steps: int) -> Self:
        """Return the steps from the one that contains ``since`` to the one that contains ``until``.

        Args:
            since: start, Unix seconds.
            until: end, Unix seconds; the last step may reach beyond it.
            seconds: length of a step in seconds, a multiple of 60; None selects the shortest length that needs at most
                ``max_steps`` steps.
            max_steps: maximum number of steps.

        Raises:
            BadHistoryQuery: ``since`` is later than ``until``, there would be more than ``max_steps`` steps, or
                ``seconds`` is not a positive multiple of 60.
        """
        if since > until:
            raise BadHistoryQuery("the parameter since is in the future")
        span = int(until) - int(since)
        shortest = -(-span // ((max_steps - 1) * RESOLUTION_SECONDS)) * RESOLUTION_SECONDS or RESOLUTION_SECONDS
        seconds = shortest if seconds is None else seconds
        if seconds <= 0 or seconds % RESOLUTION_SECONDS:
            raise BadHistoryQuery(f"step must be whole minutes, such as 5m, not {seconds} s")
        if seconds < shortest:
            raise BadHistoryQuery(f"step {seconds} s gives more than {max_steps} steps; use at least {shortest} s")
        first, last = int(since) // seconds, int(until) // seconds
        return cls(first * seconds, seconds, last - first + 1)


@dataclass(frozen=True, slots=True, eq=False)
class HistorySeries:
    """One metric of a :class:`History`, for all nodes and steps.

    Attributes:
        name: the metric's name at the provider.
        type: the resource, see :class:`~watcher.MetricType`.
        operator: see :class:`~watcher.Operator`.
        values: percent of capacity, float32, shape (nodes, steps): the mean of the values published in a step, or for
            the operator MAX the largest of these values; NaN if a step has no value.
    """

    name: str
    type: str
    operator: str
    values: "NDArray[np.float32]"


@dataclass(frozen=True, slots=True, eq=False)
class History:
    """Load of nodes over time, in steps of equal length.

    Attributes:
        nodes: sorted names of the nodes that have a value in the requested time.
        steps: the steps of time.
        series: one entry per metric, with an array of shape (nodes, steps).
    """

    nodes: tuple[str, ...]
    steps: Steps
    series: tuple[HistorySeries, ...]

    @property
    def times(self) -> "NDArray[np.int64]":
        """Start of each step, Unix seconds."""
        import numpy as np  # slow to import: a watcher answers its first request without it

        return self.steps.start + self.steps.seconds * np.arange(self.steps.count)

    def of(self, type_: str, operator: str = "AVG") -> "NDArray[np.float32]":
        """Return the values of a metric in percent of capacity, shape (nodes, steps); NaN if a step has no value.

        Args:
            type_: the resource, see :class:`~watcher.MetricType`.
            operator: see :class:`~watcher.Operator`.

        Raises:
            KeyError: the history does not have the metric; the message lists the metrics of the history.
        """
        for series in self.series:
            if (series.type, series.operator) == (type_, operator):
                return series.values
        available = ", ".join(f"{series.type} {series.operator}" for series in self.series) or "none"
        raise KeyError(f"the history has no {type_} {operator}; available: {available}")

    def to_frame(self) -> "pd.DataFrame":
        """Return a data frame with one row per node and step (UTC) and one column per metric, such as ``CPU AVG``.

        Raises:
            ImportError: pandas is not installed (``pip install pandas``).
        """
        import pandas as pd  # optional dependency

        times = pd.to_datetime(self.times, unit="s", utc=True)
        index = pd.MultiIndex.from_product([self.nodes, times], names=["node", "time"])
        columns = {f"{each.type} {each.operator}": each.values.ravel() for each in self.series}
        return pd.DataFrame(columns, index=index)

    def __repr__(self) -> str:
        start = datetime.fromtimestamp(self.steps.start, UTC)
        series = ", ".join(f"{each.type} {each.operator}" for each in self.series) or "nothing"
        count = "1 node" if len(self.nodes) == 1 else f"{len(self.nodes)} nodes"
        return f"History({series} of {count}, {self.steps.count} x {self.steps.seconds} s from {start:%Y-%m-%d %H:%M}Z)"

    def _repr_html_(self) -> str | None:
        return notebook_table(self)
