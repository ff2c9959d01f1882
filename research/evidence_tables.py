"""The tables of docs/evidence.md, from what ``trimaran simulate compare --json`` printed.

    trimaran simulate compare --trace worlds/* --json > compared.json
    python research/evidence_tables.py compared.json [MORE.json ...]

Of several files the policies of each world are put together. Hot minutes are of all worlds together, in percent more or
fewer (-) than the default's; in parentheses is the 95 percent bootstrap interval over worlds. The gap closed is
the mean over worlds of each one's, and with ``--together`` that of the hot minutes of all worlds.
"""

import argparse
import json
from pathlib import Path

import numpy as np

from scoring.arrays import Float64s
from trimaran.simulator.comparison import Comparison
from trimaran.simulator.policies.catalogue import CLAIRVOYANT, DEFAULT, ORACLE
from trimaran.simulator.report.statistics import gap_closed, interval, policy_names

HOT = ("hot_minutes_70", "hot_minutes_80", "hot_minutes_90")
MEANS = ("throttled_core_seconds", "p99_node_cpu_percent", "memory_overrun_minutes", "unplaced_pods", "moves")
MEASURE = "hot_minutes_80"
RESAMPLES = 10_000


def read(paths: list[Path]) -> Comparison:
    """Return what was compared, in the worlds that every file has."""
    parts: list[Comparison] = [json.loads(path.read_text()) for path in paths]
    worlds = [world for world in parts[0] if all(world in part for part in parts)]
    return {world: {name: made for part in parts for name, made in part[world].items()} for world in worlds}


def of(comparison: Comparison, policy: str, measure: str) -> Float64s:
    """Return a policy's measure in each world."""
    return np.array([policies[policy][measure] for policies in comparison.values()])


def told(mean: float, low: float, high: float) -> str:
    """Return a mean with its interval, in whole numbers."""
    return f"{round(mean)} ({round(low)} to {round(high)})"


def ratio(above: Float64s, below: Float64s) -> str:
    """Return the percent that the sums over worlds have of each other, with its interval over worlds."""
    drawn = np.random.default_rng(0).integers(len(above), size=(RESAMPLES, len(above)))
    low, high = np.percentile(100 * above[drawn].sum(axis=1) / below[drawn].sum(axis=1), (2.5, 97.5))
    return told(100 * above.sum() / below.sum(), low, high)


def closed(comparison: Comparison, policy: str, goal: str, *, together: bool) -> str:
    """Return the part of the way from the default to a goal, percent; empty where the goal was not replayed."""
    if not all(goal in policies for policies in comparison.values()):
        return ""
    if together:
        default = of(comparison, DEFAULT, MEASURE)
        return ratio(default - of(comparison, policy, MEASURE), default - of(comparison, goal, MEASURE))
    found = interval(list(gap_closed(comparison, policy, MEASURE, goal).values()))
    return told(found.mean, found.low, found.high)


def rounded(mean: float) -> str:
    """Return a mean with a decimal where it is small."""
    return f"{mean:,.0f}" if mean >= 100 or not mean else f"{mean:.1f}"


def row(comparison: Comparison, policy: str, *, together: bool) -> str:
    """Return a policy's row."""
    defaults = [of(comparison, DEFAULT, measure) for measure in HOT]
    hot = [of(comparison, policy, measure) for measure in HOT]
    means = [rounded(float(of(comparison, policy, measure).mean())) for measure in MEANS]
    if policy == DEFAULT:
        cells = [*(f"{each.mean():,.0f}" for each in hot), "", *means, "0", "0"]
    else:
        less = [ratio(each - default, default) for each, default in zip(hot, defaults, strict=True)]
        gaps = [closed(comparison, policy, goal, together=together) for goal in (CLAIRVOYANT, ORACLE)]
        cells = [*less, str(np.count_nonzero(hot[1] > defaults[1])), *means, *gaps]
    return f"| `{policy}` | {' | '.join(cells)} |"


def main() -> None:
    """Print the table, the least hot minutes first."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--together", action="store_true")
    arguments = parser.parse_args()
    comparison = read(arguments.files)
    names = sorted(policy_names(comparison), key=lambda name: of(comparison, name, MEASURE).sum())
    print("| policy | hot minutes at 70 % | at 80 % | at 90 % | worse at 80 % in | throttled, core-s "
          "| P99 node use, % | overruns | unplaced | moves | gap closed, % | to the oracle, % |")  # fmt: skip
    print("|---|" + "---:|" * 11)
    for name in names:
        print(row(comparison, name, together=arguments.together))


if __name__ == "__main__":
    main()
