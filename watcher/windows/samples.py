"""Samples of a source that only reports the present load.

A provider returns the samples of all nodes by node name (:class:`Samples`); the watcher stores them as a
:class:`SampleRound`.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, Self

from watcher.findings import Finding

MIN_SAMPLES = 2  # minimum for a node to have metrics of a window


@dataclass(frozen=True, slots=True)
class Reading:
    """One current value of a node.

    Attributes:
        name: the metric's name.
        type: the resource, see :class:`~watcher.MetricType`.
        value: percent of the node's capacity.
    """

    name: str
    type: str
    value: float


@dataclass(frozen=True, slots=True)
class Sample:
    """Current values of one node.

    Attributes:
        timestamp: Unix seconds by the source's clock. If a source returns the same time again, its values have not been
            updated, and the repeated sample is not counted.
        readings: the values.
        since: time at which the node was created, Unix seconds; 0 if it is unknown. Earlier samples of its name are of
            another machine.
    """

    timestamp: float
    readings: tuple[Reading, ...]
    since: float = 0.0


class Samples(dict[str, Sample]):
    """Mapping of node name to sample, with findings.

    A provider's ``sample`` method may return a plain dict, or this class to report problems.

    Attributes:
        findings: problems that leave the other samples usable; they are reported until the provider is sampled again.
    """

    def __init__(self, samples: Mapping[str, Sample], findings: Iterable[Finding] = ()) -> None:
        super().__init__(samples)
        self.findings = tuple(findings)


@dataclass(frozen=True, slots=True)
class SampleRound:
    """Samples of all nodes that one call of a provider returned.

    Attributes:
        taken_at: time of the call, Unix seconds by the local clock.
        timestamps: node name to the time of the node's sample by the source's clock, Unix seconds.
        values: (metric name, metric type) to node name to percent of capacity.
    """

    taken_at: float
    timestamps: Mapping[str, float]
    values: Mapping[tuple[str, str], Mapping[str, float]]

    @classmethod
    def of(cls, taken_at: float, samples: Mapping[str, Sample]) -> Self:
        """Build a round from node name to sample; values that are not finite are left out.

        Args:
            taken_at: time of the call of the provider, Unix seconds by the local clock.
            samples: node name to its sample.
        """
        values: dict[tuple[str, str], dict[str, float]] = {}
        for node, sample in samples.items():
            for reading in sample.readings:
                value = float(reading.value)
                if math.isfinite(value):  # other values count as a gap; JSON cannot store them
                    values.setdefault((reading.name, reading.type), {})[node] = value
        return cls(taken_at, {node: float(sample.timestamp) for node, sample in samples.items()}, values)

    def without_earlier(self, since: Mapping[str, float]) -> Self:
        """Return the round without samples that are older than their node.

        Args:
            since: node name to the time of the node's creation, Unix seconds; other nodes keep their samples.
        """
        gone = {node for node in since if self.timestamps.get(node, math.inf) < since[node]}
        if not gone:
            return self
        timestamps, *values = (
            {node: each for node, each in mapping.items() if node not in gone}
            for mapping in (self.timestamps, *self.values.values())
        )
        return type(self)(self.taken_at, timestamps, dict(zip(self.values, values, strict=True)))


class SampleStore(Protocol):
    """Storage that keeps samples across restarts of the watcher, separately for each source."""

    @property
    def times_opened(self) -> int:
        """Number of times the storage was opened. Each time it rises, there may be further samples to load."""
        ...

    def save_samples(self, source: str, taken: SampleRound, keep_since: float) -> None:
        """Save a round of samples, and delete a few of the rounds before ``keep_since``, Unix seconds."""
        ...

    def load_samples(self, source: str, since: float) -> Sequence[SampleRound]:
        """Return the rounds of samples of a source from ``since`` on, Unix seconds, oldest first."""
        ...

    def forget_samples(self, source: str, since: float) -> None:
        """Delete the rounds of samples of a source from ``since`` on, Unix seconds."""
        ...
