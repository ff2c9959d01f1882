"""What many worlds say together: means with bootstrap intervals, the gaps that are closed, and every lost case."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from trimaran.simulator.comparison import Comparison
from trimaran.simulator.measures import BY_KIND
from trimaran.simulator.policies.catalogue import CLAIRVOYANT, DEFAULT, ORACLE

#: What no cluster can have: how much of the way to each of them, from the default scheduler, a policy goes.
GOALS = (CLAIRVOYANT, ORACLE)
#: Of which that way is told.
GAP_MEASURES = ("hot_minutes_70", "hot_minutes_80", "hot_minutes_90", "throttled_core_seconds")
#: Measures of which less is better; what is not here is neither good nor bad by itself.
LESS_IS_BETTER = (
    *GAP_MEASURES[:3],
    "throttled_core_seconds",
    "p99_node_cpu_percent",
    "memory_overrun_minutes",
    "fragmentation_percent",
    "stranded_core_hours",
    "unplaced_pods",
    "waited_pod_minutes",
    *BY_KIND,
    "displaced_pods",
)
_RESAMPLES = 10_000
_SEED = 20_110_501


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean over worlds, and where it lies with 95 percent confidence.

    Attributes:
        mean: over the worlds.
        low: the interval's lower end; the mean itself where there is one world only.
        high: its upper end.
        worlds: how many there are.
    """

    mean: float
    low: float
    high: float
    worlds: int


@dataclass(frozen=True, slots=True)
class LostCase:
    """A case in which a policy was worse than the default scheduler.

    Attributes:
        world: its name.
        policy: its name.
        measure: its name.
        value: the policy's.
        default: the default scheduler's.
    """

    world: str
    policy: str
    measure: str
    value: float
    default: float


def interval(values: Sequence[float]) -> Interval:
    """Return the mean of worlds' values, at least one, with its bootstrap interval: 2.5th to 97.5th percentile.

    The seed is fixed: in the same worlds every policy is resampled alike.
    Source: Efron and Tibshirani, An Introduction to the Bootstrap (1993), section 13.3.
    """
    known = np.asarray(values, np.float64)
    drawn = np.random.default_rng(_SEED).integers(len(known), size=(_RESAMPLES, len(known)))
    low, high = np.percentile(known[drawn].mean(axis=1), (2.5, 97.5)).tolist()
    return Interval(float(known.mean()), low, high, len(known))


def by_policy(comparison: Comparison) -> dict[str, dict[str, Interval]]:
    """Return each policy's measures over the worlds that it was replayed in."""
    found: dict[str, dict[str, list[float]]] = {}
    for policies in comparison.values():
        for policy, measures in policies.items():
            for measure, value in measures.items():
                found.setdefault(policy, {}).setdefault(measure, []).append(value)
    return {
        policy: {measure: interval(values) for measure, values in measures.items()}
        for policy, measures in found.items()
    }


def gap_closed(comparison: Comparison, policy: str, measure: str, goal: str) -> dict[str, float]:
    """Return in each world the part of the way from the default scheduler to one of :data:`GOALS`, percent.

    A world is left out where one of the three is missing, or where the goal is no better than the default.
    """
    closed = {}
    for world, policies in comparison.items():
        if {policy, DEFAULT, goal} <= policies.keys():
            default, best = policies[DEFAULT][measure], policies[goal][measure]
            if best < default:
                closed[world] = 100 * (default - policies[policy][measure]) / (default - best)
    return closed


def gaps(comparison: Comparison) -> dict[str, dict[str, dict[str, Interval]]]:
    """Return for each of :data:`GOALS` the gap to it that each policy closes in each of :data:`GAP_MEASURES`.

    What no world tells is left out, so of a goal that was not replayed there is nothing.
    """
    found: dict[str, dict[str, dict[str, Interval]]] = {}
    for goal, policy, measure in product(GOALS, policy_names(comparison), GAP_MEASURES):
        if closed := gap_closed(comparison, policy, measure, goal):
            found.setdefault(goal, {}).setdefault(policy, {})[measure] = interval(list(closed.values()))
    return found


def benefit(comparison: Comparison, policy: str, measure: str) -> dict[str, float]:
    """Return in each world how much less a policy has of a measure than the default scheduler."""
    return {
        world: policies[DEFAULT][measure] - policies[policy][measure]
        for world, policies in comparison.items()
        if {policy, DEFAULT} <= policies.keys()
    }


def lost_cases(comparison: Comparison) -> Iterator[LostCase]:
    """Yield every world in which a policy had more than the default scheduler of what is better less."""
    for world, policies in comparison.items():
        default: Mapping[str, float] = policies.get(DEFAULT, {})
        for policy, measures in policies.items():
            for measure in LESS_IS_BETTER:
                if measure in default and measures[measure] > default[measure]:
                    yield LostCase(world, policy, measure, measures[measure], default[measure])


def policy_names(comparison: Comparison) -> list[str]:
    """Return the policies of any world, in the order in which they come."""
    return list(dict.fromkeys(policy for policies in comparison.values() for policy in policies))


def pareto(points: Mapping[str, tuple[float, float]]) -> list[str]:
    """Return the names of the points that none is better than in both: x lower and y higher; in ascending x."""
    ordered = sorted(points, key=lambda name: (points[name][0], -points[name][1]))
    front: list[str] = []
    for name in ordered:
        if not front or points[name][1] > points[front[-1]][1]:
            front.append(name)
    return front
