"""What nodes used over the last hours: equal steps of time, and for each series an array of nodes by steps."""

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Self

from runtime import duration
from watcher.model import notebook_table

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

#: What is kept, and so the shortest step.
RESOLUTION_SECONDS = 60
#: How many steps there may be of one node, and of each node where all are asked for.
MOST_STEPS, MOST_STEPS_OF_ALL = 1500, 300
#: How far back it is read, however much is kept; and without a word about it.
LONGEST_SECONDS, USUAL_SECONDS = 31 * 86400, 86400


class BadHistoryQuery(ValueError):
    """History cannot be asked for so; the message says how it can."""


def moment(since: float | str | None, now: float) -> float:
    """Return when a history begins, unix seconds.

    Args:
        since: unix seconds; or how long ago, such as ``6h``; a day ago when None.
        now: unix seconds.

    Raises:
        BadHistoryQuery: it is neither.
    """
    if since is None:
        return now - USUAL_SECONDS
    if isinstance(since, str) and not (since.isascii() and since.isdigit()):
        try:
            return now - duration.seconds(since)
        except ValueError as error:
            raise BadHistoryQuery(f"since is unix seconds, or how long ago: {error}") from None
    if not math.isfinite(float(since)):
        raise BadHistoryQuery("since is not a finite number")
    return float(since)


def length(step: int | str | None) -> int | None:
    """Return the length of a step in seconds, of seconds or a duration such as ``5m``.

    Raises:
        BadHistoryQuery: it is neither.
    """
    if not isinstance(step, str):
        return step
    try:
        return int(step) if step.isascii() and step.isdigit() else duration.seconds(step)
    except ValueError as error:
        raise BadHistoryQuery(f"step is seconds, or a duration: {error}") from None


@dataclass(frozen=True, slots=True)
class Steps:
    """Equal steps of time.

    Attributes:
        start: when the first begins, unix seconds; a multiple of ``seconds``.
        seconds: how long each is.
        count: how many there are.
    """

    start: int
    seconds: int
    count: int

    @classmethod
    def between(cls, since: float, until: float, seconds: int | None, most: int) -> Self:
        """Return the steps from that which holds ``since`` to that which holds ``until``, both unix seconds.

        Args:
            since: begin here.
            until: end here; the last step may reach beyond it.
            seconds: the length of a step, whole minutes; the shortest that is possible when None.
            most: how many there may be.

        Raises:
            BadHistoryQuery: there would be more, or none, or the length is not whole minutes.
        """
        if since > until:
            raise BadHistoryQuery("since is later than now")
        span = int(until) - int(since)
        shortest = -(-span // ((most - 1) * RESOLUTION_SECONDS)) * RESOLUTION_SECONDS or RESOLUTION_SECONDS
        seconds = shortest if seconds is None else seconds
        if seconds <= 0 or seconds % RESOLUTION_SECONDS:
            raise BadHistoryQuery(f"step is whole minutes, such as 5m, not {seconds} s")
        if seconds < shortest:
            raise BadHistoryQuery(f"step {seconds} s gives more than {most} steps; the shortest here is {shortest} s")
        first, last = int(since) // seconds, int(until) // seconds
        return cls(first * seconds, seconds, last - first + 1)


@dataclass(frozen=True, slots=True, eq=False)
class HistorySeries:
    """One metric of all nodes of a history.

    Attributes:
        name: the metric's name at the provider.
        type: the resource, see :class:`~watcher.MetricType`.
        operator: see :class:`~watcher.Operator`.
        values: float32, nodes x steps, percent of capacity: the mean of what was published in each step, of MAX the
            largest; NaN where there is nothing.
    """

    name: str
    type: str
    operator: str
    values: "NDArray[np.float32]"


@dataclass(frozen=True, slots=True, eq=False)
class History:
    """What nodes used, step by step.

    Attributes:
        nodes: their names, sorted; those that have a value in the time that was asked for.
        steps: when.
        series: each with an array of ``nodes`` x ``steps.count``.
    """

    nodes: tuple[str, ...]
    steps: Steps
    series: tuple[HistorySeries, ...]

    @property
    def times(self) -> "NDArray[np.int64]":
        """When each step begins, unix seconds."""
        import numpy as np  # which a watcher does without until it has answered

        return self.steps.start + self.steps.seconds * np.arange(self.steps.count)

    def of(self, type_: str, operator: str = "AVG") -> "NDArray[np.float32]":
        """Return the values of a metric, nodes x steps.

        Raises:
            KeyError: there is no such metric here; the message names those there are.
        """
        for series in self.series:
            if (series.type, series.operator) == (type_, operator):
                return series.values
        there = ", ".join(f"{series.type} {series.operator}" for series in self.series) or "none"
        raise KeyError(f"no {type_} {operator}; there are: {there}")

    def to_frame(self) -> "pd.DataFrame":
        """Return a data frame: a row for each node and step (UTC), and a column for each metric, such as ``CPU AVG``.

        Raises:
            ImportError: pandas is not installed (``pip install 'trimaran[notebook]'``).
        """
        import pandas as pd  # an extra

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
