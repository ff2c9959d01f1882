"""Section of a report: a comparison at one overcommit with its heat maps."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from trimaran.simulator.comparison import Comparison
from trimaran.simulator.heat_map import HeatMap


@dataclass(frozen=True)
class ReportSection:
    """Comparison of policies at one overcommit.

    Attributes:
        label: the overcommit factor, or "" if every world has its own.
        overcommit: overcommit of CPU by world.
        comparison: the measures.
        heat: heat maps of :attr:`heat_world`, by policy.
        heat_world: name of the world that the heat maps show.
        heat_hours: hours of that world after the warm-up.
        whole: True if every replay finished, False after an interruption.
    """

    label: str
    overcommit: Mapping[str, float]
    comparison: Comparison = field(default_factory=dict)
    heat: dict[str, HeatMap] = field(default_factory=dict)
    heat_world: str = ""
    heat_hours: float = 0.0
    whole: bool = True
