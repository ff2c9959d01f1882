"""One resource of all nodes as arrays, now and over a day: what the plane is drawn from, made once for each fetch."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trimaran.dashboard.data import Data, aligned
from watcher.history import History, Steps
from watcher.model import WatcherMetrics

Values = NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class Loads:
    """Percent of capacity; NaN where nothing is known.

    Attributes:
        names: the nodes, in the order of all rows.
        now: unix seconds of the present.
        mean, deviation: of the present, by node.
        steps: when the past was; none where the watcher keeps no history.
        means, deviations: of the past, nodes x steps.
        top: how high the plane is: the same at all times, so that it stands still.
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
        """Return means and deviations by node, and when that was.

        Args:
            step: of the past; the present when None.
        """
        if step is None or not self.steps.count:
            return self.mean, self.deviation, self.now
        step = min(step, self.steps.count - 1)
        return self.means[:, step], self.deviations[:, step], self.steps.start + self.steps.seconds * step


def loads_of(data: Data, type_: str) -> Loads:
    """Return what a reader sees of one resource."""
    snapshot, means, deviations = data.snapshot(), data.history(type_, "AVG"), data.history(type_, "STD")
    return data.made(
        ("loads", type_), (snapshot, means, deviations), lambda: _loads(snapshot, means, deviations, type_)
    )


def _loads(snapshot: WatcherMetrics, means: History, deviations: History, type_: str) -> Loads:
    names = tuple(snapshot.data)
    loads = [snapshot.data[name].load(type_) for name in names]
    mean = np.array([np.nan if load.avg is None else load.avg for load in loads], np.float32)
    deviation = np.array([np.nan if load.std is None else load.std for load in loads], np.float32)
    known = [deviation, *(each.values for each in deviations.series)]
    highest = max((float(np.nanmax(each)) for each in known if np.isfinite(each).any()), default=None)
    steps = means.steps if means.nodes else Steps(means.steps.start, means.steps.seconds, 0)
    return Loads(
        names, snapshot.timestamp, mean, np.where(np.isnan(deviation) & ~np.isnan(mean), 0, deviation), steps,
        aligned(names, means, type_, "AVG"), _at_the_same(steps, deviations, aligned(names, deviations, type_, "STD")),
        50.0 if highest is None else max(5.0, 1.1 * highest),
    )  # fmt: skip


def _at_the_same(steps: Steps, other: History, values: Values) -> Values:
    """Return values of another history, which was read at another moment perhaps, at these steps; 0 beyond them."""
    moments = steps.start + steps.seconds * np.arange(steps.count)
    theirs = (moments - other.steps.start) // other.steps.seconds
    known = (theirs >= 0) & (theirs < other.steps.count) & bool(other.series)
    found = np.zeros((len(values), steps.count), np.float32)
    found[:, known] = values[:, theirs[known]]
    return found
