"""Samples of a source without history: by node as a provider returns them, and by round as the watcher stores them."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, Self

from watcher.findings import Finding

MIN_SAMPLES = 2  # minimum for a node to have metrics of a window


@dataclass(frozen=True, slots=True)
class Reading:
    """One current value of a node, in percent of capacity."""

    name: str
    type: str
    value: float


@dataclass(frozen=True, slots=True)
class Sample:
    """All readings of one node, with the source's Unix time: a sample repeated with the same time counts once."""

    timestamp: float
    readings: tuple[Reading, ...]


class Samples(dict[str, Sample]):
    """Node name to sample, with findings. :meth:`SampleProvider.sample` returns it to report problems.

    Attributes:
        findings: problems that leave the rest of the sample usable; they are reported until the next sample.
    """

    def __init__(self, samples: Mapping[str, Sample], findings: Iterable[Finding] = ()) -> None:
        super().__init__(samples)
        self.findings = tuple(findings)


@dataclass(frozen=True, slots=True)
class SampleRound:
    """One sample of every node.

    Attributes:
        taken_at: time of the request, Unix seconds by the local clock.
        timestamps: node name to the source's own time, Unix seconds.
        values: (metric name, metric type) to node name to percent of capacity.
    """

    taken_at: float
    timestamps: Mapping[str, float]
    values: Mapping[tuple[str, str], Mapping[str, float]]

    @classmethod
    def of(cls, taken_at: float, samples: Mapping[str, Sample]) -> Self:
        """Build a round from the samples that a provider returned, without values that are not finite."""
        values: dict[tuple[str, str], dict[str, float]] = {}
        for node, sample in samples.items():
            for reading in sample.readings:
                value = float(reading.value)
                if math.isfinite(value):  # other values count as a gap; JSON cannot store them
                    values.setdefault((reading.name, reading.type), {})[node] = value
        return cls(taken_at, {node: float(sample.timestamp) for node, sample in samples.items()}, values)


class SampleStore(Protocol):
    """Storage of samples across restarts, by source."""

    @property
    def times_opened(self) -> int:
        """The number of times that the store was opened. After it rises there may be more samples to load."""
        ...

    def save_samples(self, source: str, taken: SampleRound, keep_since: float) -> None:
        """Save a round; rounds taken before ``keep_since``, Unix seconds, are deleted in small batches."""
        ...

    def load_samples(self, source: str, since: float) -> Sequence[SampleRound]:
        """Return the rounds taken since then, Unix seconds, oldest first."""
        ...

    def forget_samples(self, source: str, since: float) -> None:
        """Delete the rounds taken since then, Unix seconds."""
        ...
