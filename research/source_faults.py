"""Faults of metrics sources, which are put into single samples instead of window averages.

So a window that slides over the start of a fault passes through all states from correct to faulty.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

Samples = dict[str, np.ndarray]
#: Function that puts a fault into samples, in place. Its arguments are the samples, the number of the node, the number
#: of another node, the slice of samples with the fault, and the seconds from one sample to the next.
Inject = Callable[[Samples, int, int, slice, int], None]
HOUR = 3600


@dataclass(frozen=True)
class Fault:
    """Fault of a metrics source.

    Attributes:
        inject: function that puts the fault into the samples of a node.
        seconds: duration of the fault.
        everywhere: whether the fault affects all nodes of the source at the same time.
        pairs: whether the fault affects a second node, too, such as if two nodes are swapped.
    """

    inject: Inject
    seconds: int
    everywhere: bool = False
    pairs: bool = False


def _scaled(factor: float) -> Inject:
    def inject(samples: Samples, node: int, _: int, span: slice, __: int) -> None:
        samples["CPU"][node, span] *= factor

    return inject


def _drift(samples: Samples, node: int, _: int, span: slice, step: int) -> None:
    hours = np.arange(span.stop - span.start) * step / HOUR
    samples["CPU"][node, span] *= 1 - 0.5 * np.minimum(hours / 3, 1)


def _swap(samples: Samples, node: int, other: int, span: slice, _: int) -> None:
    for values in samples.values():
        values[[node, other], span] = values[[other, node], span]


def _duplicate(samples: Samples, node: int, other: int, span: slice, _: int) -> None:
    for values in samples.values():
        values[node, span] = values[other, span]


def _mean_since_boot(samples: Samples, node: int, _: int, span: slice, __: int) -> None:
    values = samples["CPU"][node, : span.stop]
    present = ~np.isnan(values)
    means = np.cumsum(np.where(present, values, 0)) / np.maximum(np.cumsum(present), 1)
    samples["CPU"][node, span] = np.where(present, means, np.nan)[span]


def _freeze(samples: Samples, node: int, _: int, span: slice, __: int) -> None:
    for values in samples.values():
        values[node, span] = values[node, span.start]


def _remove(samples: Samples, node: int, _: int, span: slice, __: int) -> None:
    samples["CPU"][node, span] = np.nan


FAULTS: dict[str, Fault] = {
    "drift to half in 3 h": Fault(_drift, 8 * HOUR),
    "CPU exactly 0 for an hour": Fault(_scaled(0), HOUR),
    "cores for percent, 4 cores": Fault(_scaled(4 / 100), 8 * HOUR),
    "cores for percent, 32 cores": Fault(_scaled(32 / 100), 8 * HOUR),
    "a fraction on one node": Fault(_scaled(1 / 100), 8 * HOUR),
    "two nodes swapped": Fault(_swap, 8 * HOUR, pairs=True),
    "another node's values": Fault(_duplicate, 8 * HOUR, pairs=True),
    "mean since boot": Fault(_mean_since_boot, 8 * HOUR),
    "source times 0.8": Fault(_scaled(0.8), 8 * HOUR, everywhere=True),
    "one node times 0.8": Fault(_scaled(0.8), 8 * HOUR),
    "frozen for 3 hours": Fault(_freeze, 3 * HOUR),
    "no CPU for half an hour": Fault(_remove, HOUR // 2),
}
