"""Loads of all nodes as arrays, now and over the last day, for the Cluster page. Computed once per snapshot."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trimaran.dashboard.data import DashboardData, aligned_values
from watcher.history import History, Steps
from watcher.model import WatcherMetrics

Values = NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class ResourceLoads:
    """Loads of all nodes for one resource, percent of capacity; NaN if a load is unknown.

    Attributes:
        names: node names, in the order of the rows of all arrays.
        now: time of the present loads, Unix seconds.
        mean, deviation: mean and standard deviation of the present loads, shape (nodes,).
        steps: time steps of the history; empty if the watcher keeps no history.
        means, deviations: means and standard deviations over the last day, shape (nodes, steps).
        top: upper end of the plot's deviation axis, percent; the same for all steps, so that the axis does not move.
    """

    names: tuple[str, ...]
    now: float
    mean: Values
    deviation: Values
    steps: Steps
    means: Values
    deviations: Values
    top: float

    def at(self, step: int | None) -> tuple[Values, Values, float]:
        """Return means and standard deviations, both of shape (nodes,), and their Unix time.

        Args:
            step: step of the history; None for the present.
        """
        if step is None or not self.steps.count:
            return self.mean, self.deviation, self.now
        step = min(step, self.steps.count - 1)
        return self.means[:, step], self.deviations[:, step], self.steps.start + self.steps.seconds * step


def resource_loads(data: DashboardData, type_: str) -> ResourceLoads:
    """Return the loads of all nodes for one resource; memoized until new data arrives."""
    snapshot, means, deviations = data.snapshot(), data.history(type_, "AVG"), data.history(type_, "STD")
    return data.memoize(
        ("loads", type_), (snapshot, means, deviations), lambda: _loads(snapshot, means, deviations, type_)
    )


def _loads(snapshot: WatcherMetrics, means: History, deviations: History, type_: str) -> ResourceLoads:
    names = tuple(snapshot.data)
    loads = [snapshot.data[name].load(type_) for name in names]
    mean = np.array([np.nan if load.avg is None else load.avg for load in loads], np.float32)
    deviation = np.array([np.nan if load.std is None else load.std for load in loads], np.float32)
    # The axis ends a tenth above the highest deviation of the whole day.
    arrays = [deviation, *(series.values for series in deviations.series)]
    highest = max((float(np.nanmax(array)) for array in arrays if np.isfinite(array).any()), default=None)
    steps = means.steps if means.nodes else Steps(means.steps.start, means.steps.seconds, 0)
    return ResourceLoads(
        names, snapshot.timestamp, mean, np.where(np.isnan(deviation) & ~np.isnan(mean), 0, deviation), steps,
        aligned_values(names, means, type_, "AVG"),
        _align_steps(steps, deviations, aligned_values(names, deviations, type_, "STD")),
        50.0 if highest is None else max(5.0, 1.1 * highest),
    )  # fmt: skip


def _align_steps(steps: Steps, other: History, values: Values) -> Values:
    """Align the values of a history to other time steps, shape (nodes, steps); 0 at steps that the history lacks."""
    times = steps.start + steps.seconds * np.arange(steps.count)
    columns = (times - other.steps.start) // other.steps.seconds
    known = (columns >= 0) & (columns < other.steps.count) & bool(other.series)
    aligned = np.zeros((len(values), steps.count), np.float32)
    aligned[:, known] = values[:, columns[known]]
    return aligned
