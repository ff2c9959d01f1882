"""Statistics over worlds, the replayed traces: means with bootstrap intervals, gaps closed, and losing cases.

The gap closed tells how far a policy gets from the default scheduler, 0 percent, to a better policy, 100 percent.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from trimaran.simulator.comparison import Comparison
from trimaran.simulator.measures import BY_KIND
from trimaran.simulator.policies.catalogue import CLAIRVOYANT, DEFAULT, ORACLE

#: Reference policies with knowledge of the future; the gap from the default scheduler to each is reported.
GOALS = (CLAIRVOYANT, ORACLE)
#: Measures for which the gap closed is reported.
GAP_MEASURES = ("hot_minutes_70", "hot_minutes_80", "hot_minutes_90", "throttled_core_seconds")
#: Measures of which less is better. The other measures are neither good nor bad on their own.
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
    "starting_pod_minutes",
    "cpu_short_percent",
    "memory_short_percent",
)
#: Measure whose deviation over seeds is reported, and the name of this deviation.
HOT_MINUTES = "hot_minutes_80"
SEED_DEVIATION = "hot_minutes_80_seed_deviation"
#: Smallest number of worlds for which an interval is computed.
MIN_WORLDS = 5
_RESAMPLES = 10_000
_SEED = 20_110_501


@dataclass(frozen=True, slots=True)
class Interval:
    """Mean over worlds with its 95 percent confidence interval.

    Attributes:
        mean: mean over the worlds.
        low: lower end of the interval; None with fewer than :data:`MIN_WORLDS` worlds.
        high: upper end of the interval; None if there is no lower end.
        worlds: number of worlds.
    """

    mean: float
    low: float | None
    high: float | None
    worlds: int


@dataclass(frozen=True, slots=True)
class LostCase:
    """Case in which a policy is worse than the default scheduler.

    Attributes:
        world: name of the world.
        policy: name of the policy.
        measure: name of the measure.
        value: the policy's value.
        default: the default scheduler's value.
    """

    world: str
    policy: str
    measure: str
    value: float
    default: float


def interval(values: Sequence[float]) -> Interval:
    """Return the mean of one or more worlds' values with its bootstrap interval: 2.5th to 97.5th percentile.

    Resamples of a few values hardly differ, so their interval would be too narrow: fewer than :data:`MIN_WORLDS` worlds
    have no interval. The seed is fixed, so every policy has the same resamples of the same worlds.
    Source: Efron and Tibshirani, An Introduction to the Bootstrap (1993), section 13.3.
    """
    array = np.asarray(values, np.float64)
    if len(array) < MIN_WORLDS:
        return Interval(float(array.mean()), None, None, len(array))
    resamples = np.random.default_rng(_SEED).integers(len(array), size=(_RESAMPLES, len(array)))
    low, high = np.percentile(array[resamples].mean(axis=1), (2.5, 97.5)).tolist()
    return Interval(float(array.mean()), low, high, len(array))


def over_seeds(replays: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the means of the measures of one policy in one world over replays with different seeds.

    With several replays the result also has :data:`SEED_DEVIATION`: the standard deviation of the hot minutes.
    """
    means = {name: float(np.mean([measures[name] for measures in replays])) for name in replays[0]}
    if len(replays) > 1:
        means[SEED_DEVIATION] = float(np.std([measures[HOT_MINUTES] for measures in replays], ddof=1))
    return means


def by_policy(comparison: Comparison) -> dict[str, dict[str, Interval]]:
    """Return the interval of each policy's measures over the worlds in which all policies were replayed."""
    collected: dict[str, dict[str, list[float]]] = {}
    for policies in shared_worlds(comparison).values():
        for policy, measures in policies.items():
            for measure, value in measures.items():
                collected.setdefault(policy, {}).setdefault(measure, []).append(value)
    return {
        policy: {measure: interval(values) for measure, values in measures.items()}
        for policy, measures in collected.items()
    }


def shared_worlds(comparison: Comparison) -> Comparison:
    """Return the worlds in which all policies were replayed.

    After an interruption the last worlds lack policies. Means over different worlds would compare the worlds.
    """
    names = set(policy_names(comparison))
    return {world: policies for world, policies in comparison.items() if policies.keys() == names}


def gap_closed(comparison: Comparison, policy: str, measure: str, goal: str) -> dict[str, float]:
    """Return the gap closed by world: the share of the way from the default scheduler to a goal, percent.

    A world is left out if one of the three policies is missing, or if the goal is no better than the default.

    Args:
        comparison: the measures.
        policy: name of the policy.
        measure: name of the measure.
        goal: one of :data:`GOALS`.
    """
    closed = {}
    for world, policies in comparison.items():
        if {policy, DEFAULT, goal} <= policies.keys():
            default, best = policies[DEFAULT][measure], policies[goal][measure]
            if best < default:
                closed[world] = 100 * (default - policies[policy][measure]) / (default - best)
    return closed


def gaps(comparison: Comparison) -> dict[str, dict[str, dict[str, Interval]]]:
    """Return the gap closed, in percent with an interval over worlds, by goal, policy and measure.

    The goals are the better policies in :data:`GOALS`, the measures those in :data:`GAP_MEASURES`. The worlds are those
    in which all policies were replayed. Combinations without any world are left out, so a goal that was not replayed is
    missing.
    """
    result: dict[str, dict[str, dict[str, Interval]]] = {}
    shared = shared_worlds(comparison)
    for goal, policy, measure in product(GOALS, policy_names(comparison), GAP_MEASURES):
        if closed := gap_closed(shared, policy, measure, goal):
            result.setdefault(goal, {}).setdefault(policy, {})[measure] = interval(list(closed.values()))
    return result


def benefit(comparison: Comparison, policy: str, measure: str) -> dict[str, float]:
    """Return the default scheduler's value of a measure minus the policy's, for each world (replayed trace).

    Positive values are good, because lower measures are better. Worlds without both values are left out.
    """
    return {
        world: policies[DEFAULT][measure] - policies[policy][measure]
        for world, policies in comparison.items()
        if {policy, DEFAULT} <= policies.keys()
    }


def lost_cases(comparison: Comparison) -> Iterator[LostCase]:
    """Yield every case in which a policy exceeds the default scheduler in one of :data:`LESS_IS_BETTER`."""
    for world, policies in comparison.items():
        default: Mapping[str, float] = policies.get(DEFAULT, {})
        for policy, measures in policies.items():
            for measure in LESS_IS_BETTER:
                if measure in default and measures[measure] > default[measure]:
                    yield LostCase(world, policy, measure, measures[measure], default[measure])


def policy_names(comparison: Comparison) -> list[str]:
    """Return the policies of all worlds, in the order of their first occurrence."""
    return list(dict.fromkeys(policy for policies in comparison.values() for policy in policies))


def pareto(points: Mapping[str, tuple[float, float]]) -> list[str]:
    """Return the names of the points on the Pareto front, in ascending x: lower x and higher y are better."""
    ordered = sorted(points, key=lambda name: (points[name][0], -points[name][1]))
    front: list[str] = []
    for name in ordered:
        if not front or points[name][1] > points[front[-1]][1]:
            front.append(name)
    return front
