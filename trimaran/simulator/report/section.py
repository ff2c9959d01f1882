"""A comparison with what a report tells beside it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from trimaran.simulator.comparison import Comparison
from trimaran.simulator.heat_map import HeatMap


@dataclass(frozen=True)
class ReportSection:
    """A comparison, at one overcommit.

    Attributes:
        label: what tells it from others: the factor, or "" where every world has its own.
        overcommit: what CPU requests are divided by in each world.
        comparison: the measures.
        heat: node-time heat maps of :attr:`heat_world`, by policy.
        heat_world: its name.
        heat_hours: how long it is after the warm-up.
        whole: nothing is missing; else it was stopped.
    """

    label: str
    overcommit: Mapping[str, float]
    comparison: Comparison = field(default_factory=dict)
    heat: dict[str, HeatMap] = field(default_factory=dict)
    heat_world: str = ""
    heat_hours: float = 0.0
    whole: bool = True
