"""Samples: what a source that only knows the present says, node by node, and round by round as they are kept."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, Self

from watcher.findings import Finding

MIN_SAMPLES = 2  # of a node, without which it has no window


@dataclass(frozen=True, slots=True)
class Reading:
    """One value of one node now, in percent of capacity."""

    name: str
    type: str
    value: float


@dataclass(frozen=True, slots=True)
class Sample:
    """All readings of one node, with the source's own unix time: a sample repeated with the same time counts once."""

    timestamp: float
    readings: tuple[Reading, ...]


class Samples(dict[str, Sample]):
    """Node name to sample, with findings: what :meth:`SampleProvider.sample` returns when something was wrong.

    Attributes:
        findings: what was wrong without making the whole sample worthless; they are reported until the next sample.
    """

    def __init__(self, samples: Mapping[str, Sample], findings: Iterable[Finding] = ()) -> None:
        super().__init__(samples)
        self.findings = tuple(findings)


@dataclass(frozen=True, slots=True)
class SampleRound:
    """One sample of every node.

    Attributes:
        taken_at: when we asked, unix seconds by our clock.
        timestamps: node name to the source's own time.
        values: (metric name, metric type) to node name to percent of capacity.
    """

    taken_at: float
    timestamps: Mapping[str, float]
    values: Mapping[tuple[str, str], Mapping[str, float]]

    @classmethod
    def of(cls, taken_at: float, samples: Mapping[str, Sample]) -> Self:
        """Turn what a provider returned by node into values by metric."""
        values: dict[tuple[str, str], dict[str, float]] = {}
        for node, sample in samples.items():
            for reading in sample.readings:
                value = float(reading.value)
                if math.isfinite(value):  # else it is a gap, which JSON could not hold either
                    values.setdefault((reading.name, reading.type), {})[node] = value
        return cls(taken_at, {node: float(sample.timestamp) for node, sample in samples.items()}, values)


class SampleStore(Protocol):
    """Where samples are kept across restarts, by the source that they came from."""

    @property
    def times_opened(self) -> int:
        """How often the place could be opened: after another time there may be more to load."""
        ...

    def save_samples(self, source: str, taken: SampleRound, keep_since: float) -> None:
        """Keep a round; those taken before ``keep_since``, unix seconds, are forgotten little by little."""
        ...

    def load_samples(self, source: str, since: float) -> Sequence[SampleRound]:
        """Return what was taken from then on, unix seconds, oldest first."""
        ...

    def forget_samples(self, source: str, since: float) -> None:
        """Forget what was taken from then on, unix seconds."""
        ...
