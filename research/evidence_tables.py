"""Tables of docs/evidence.md and research/evidence/, from the output of ``trimaran simulate compare --json``.

A world is a replayed trace. The policies of several files are combined for each world; if several files have the same
policy in the same world, they are replays with different seeds, and their measures are averaged. Hot minutes are added
up over all worlds, and compared with the default scheduler's, or those of another ``--baseline``, in percent (negative:
fewer); the 95 percent bootstrap interval over worlds is in parentheses. ``±`` is the spread over seeds: the standard
deviation of a world's hot minutes at 80 percent over its replays, in percent of all hot minutes, added up over all
worlds. The closed gap is how far a policy gets from the default scheduler's hot minutes to those of the clairvoyant
policy, in percent. It is the mean over worlds; with ``--together`` it is computed from the hot minutes added up over
all worlds.

    trimaran simulate compare --trace worlds/* --seeds 4 -o json > compared.json
    python research/evidence_tables.py compared.json [MORE.json ...] [--together] [--baseline NAME]
"""

import argparse
import json
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean

import numpy as np

from scoring.arrays import Float64s
from trimaran.simulator.comparison import Comparison
from trimaran.simulator.policies.catalogue import CLAIRVOYANT, DEFAULT, ORACLE
from trimaran.simulator.report.statistics import (
    MIN_WORLDS,
    SEED_DEVIATION,
    gap_closed,
    interval,
    over_seeds,
    policy_names,
)

HOT = ("hot_minutes_70", "hot_minutes_80", "hot_minutes_90")
MEANS = ("throttled_core_seconds", "p99_node_cpu_percent", "memory_overrun_minutes", "unplaced_pods", "moves")
MEASURE = "hot_minutes_80"
RESAMPLES = 10_000

Measures = Mapping[str, float]
"""Measures of one replay by name."""


def read(paths: list[Path]) -> Comparison:
    """Return the combined comparisons of some files, for the worlds (replayed traces) that have all policies."""
    replays: dict[str, dict[str, list[Measures]]] = defaultdict(lambda: defaultdict(list))
    for path in paths:
        for world, by_policy in _worlds(path).items():
            for policy, measures in by_policy.items():
                replays[world][policy].append(measures)
    names = set().union(*replays.values())
    return {
        world: {policy: _mean(measures) for policy, measures in by_policy.items()}
        for world, by_policy in replays.items()
        if by_policy.keys() == names
    }


def _worlds(path: Path) -> dict[str, dict[str, Measures]]:
    try:
        worlds = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise SystemExit(f"{path}: {error}; write it by trimaran simulate compare -o json") from None
    if not (isinstance(worlds, dict) and all(isinstance(each, dict) for each in worlds.values())):
        raise SystemExit(f"{path}: has no worlds; write it by trimaran simulate compare -o json")
    return worlds


def _mean(replays: list[Measures]) -> dict[str, float]:
    if not any(SEED_DEVIATION in measures for measures in replays):
        return over_seeds(replays)
    return {name: fmean(measures[name] for measures in replays) for name in replays[0]}


def by_world(comparison: Comparison, policy: str, measure: str) -> Float64s:
    """Return a measure of a policy in each world (replayed trace), such as its hot minutes, shape (worlds,)."""
    return np.array([policies[policy][measure] for policies in comparison.values()])


NO_VALUE = "-"
"""Cell of a change or share of nothing, such as of the hot minutes of worlds without any."""


def with_interval(mean: float, low: float | None, high: float | None) -> str:
    """Return a text with a mean and its interval, if there is one, rounded to integers, such as "-12 (-15 to -9)"."""
    return f"{round(mean)}" if low is None or high is None else f"{round(mean)} ({round(low)} to {round(high)})"


def ratio(above: Float64s, below: Float64s) -> str:
    """Return the ratio sum(above) / sum(below) in percent, with its bootstrap interval over worlds, as a text.

    Fewer than five worlds have no interval, and neither have worlds of which a resample may have no denominator. The
    result without a denominator is :data:`NO_VALUE`.

    Args:
        above: numerator in each world, shape (worlds,).
        below: denominator in each world, shape (worlds,).
    """
    if not below.sum():
        return NO_VALUE
    mean = 100 * above.sum() / below.sum()
    if len(above) < MIN_WORLDS:
        return with_interval(mean, None, None)
    drawn = np.random.default_rng(0).integers(len(above), size=(RESAMPLES, len(above)))
    drawn_below = below[drawn].sum(axis=1)
    if not drawn_below.all():
        return with_interval(mean, None, None)
    low, high = np.percentile(100 * above[drawn].sum(axis=1) / drawn_below, (2.5, 97.5))
    return with_interval(mean, low, high)


def close_gap(comparison: Comparison, policy: str, goal: str, *, together: bool) -> str:
    """Return how far a policy gets from the default scheduler's hot minutes to those of a goal, in percent, as a text.

    Args:
        comparison: measures by world and policy.
        policy: name of the policy.
        goal: name of the policy to compare with, such as the oracle; if it was not replayed, the result is "".
        together: add up the hot minutes of all worlds; otherwise average over worlds.
    """
    if not all({goal, DEFAULT} <= policies.keys() for policies in comparison.values()):
        return ""
    if together:
        default = by_world(comparison, DEFAULT, MEASURE)
        return ratio(default - by_world(comparison, policy, MEASURE), default - by_world(comparison, goal, MEASURE))
    closed = gap_closed(comparison, policy, MEASURE, goal)
    if not closed:  # in no world the goal is better than the default scheduler
        return NO_VALUE
    mean = interval(list(closed.values()))
    return with_interval(mean.mean, mean.low, mean.high)


def rounded(mean: float) -> str:
    """Return a mean as a text, with one decimal if it is below 100."""
    return f"{mean:,.0f}" if mean >= 100 or not mean else f"{mean:.1f}"


def spread(comparison: Comparison, policy: str) -> str:
    """Return the spread of a policy's hot minutes over seeds as a text; "" if there was one seed only."""
    if not all(SEED_DEVIATION in policies[policy] for policies in comparison.values()):
        return ""
    minutes = by_world(comparison, policy, MEASURE).sum()
    return f"{100 * by_world(comparison, policy, SEED_DEVIATION).sum() / minutes:.0f}" if minutes else ""


def row(comparison: Comparison, policy: str, *, together: bool, baseline: str = DEFAULT) -> str:
    """Return the Markdown row of a policy, compared with a baseline; ``together`` as for :func:`close_gap`."""
    defaults = [by_world(comparison, baseline, measure) for measure in HOT]
    hot = [by_world(comparison, policy, measure) for measure in HOT]
    means = [rounded(float(by_world(comparison, policy, measure).mean())) for measure in MEANS]
    if policy == baseline:
        cells = [*(f"{minutes.mean():,.0f}" for minutes in hot), spread(comparison, policy), "", *means, "0", "0"]
    else:
        changes = [ratio(minutes - default, default) for minutes, default in zip(hot, defaults, strict=True)]
        gaps = [close_gap(comparison, policy, goal, together=together) for goal in (CLAIRVOYANT, ORACLE)]
        cells = [*changes, spread(comparison, policy), str(np.count_nonzero(hot[1] > defaults[1])), *means, *gaps]
    return f"| `{policy}` | {' | '.join(cells)} |"


def main() -> None:
    """Print the table; the policy with the fewest hot minutes comes first."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--together", action="store_true")
    parser.add_argument(
        "--baseline", default=DEFAULT, metavar="NAME", help="policy to compare with (default: %(default)s)"
    )
    arguments = parser.parse_args()
    comparison = read(arguments.files)
    if not comparison:
        parser.error("no world has all policies of the files")
    if arguments.baseline not in policy_names(comparison):
        parser.error(f"--baseline {arguments.baseline}: the files have {', '.join(policy_names(comparison))}")
    names = sorted(policy_names(comparison), key=lambda name: by_world(comparison, name, MEASURE).sum())
    print("| policy | hot minutes at 70 % | at 80 % | at 90 % | ± | worse at 80 % in | throttled, core-s "
          "| P99 node use, % | overruns | unplaced | moves | gap closed, % | to the oracle, % |")  # fmt: skip
    print("|---|" + "---:|" * 12)
    for name in names:
        print(row(comparison, name, together=arguments.together, baseline=arguments.baseline))


if __name__ == "__main__":
    main()
