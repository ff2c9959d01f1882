"""Study of the extender's factor: how much should our plugins count next to kube-scheduler's own?

``trimaran extender config`` keeps the weights of kube-scheduler's plugins, and the extender multiplies its scores by
the extender's score factor. This script replays plugins with several factors in worlds (traces that the simulator
replays) with several seeds, and prints how far each closes the gap in hot minutes at 80 percent between the default
scheduler and the clairvoyant policy: the mean over worlds with its 95 percent bootstrap interval. The results of the
seeds of a world are averaged first. CongestionCost scores by requests here, as the extender does.

    python research/score_factor.py [--factor N ...] [--plugin NAME ...] [--seeds N] [--jobs N] WORLD [WORLD ...]
"""

import argparse
from collections.abc import Mapping
from itertools import product
from pathlib import Path

import joblib
import numpy as np

from trimaran.simulator.measures import hot_minutes
from trimaran.simulator.policies.catalogue import CLAIRVOYANT, DEFAULT, configuration_of, policies
from trimaran.simulator.policies.profiles import ProfilePolicy, extender_profile
from trimaran.simulator.replay import Replay, ReplayOptions
from trimaran.simulator.report.statistics import interval
from trimaran.traces.reading import read_trace

PLUGINS = ("CongestionCost", "LoadVariationRiskBalancing", "TargetLoadPacking")
FACTORS = (1, 2, 5, 10, 30)
HOT_PERCENT = 80

Run = tuple[str, int]
"""Name of a plugin and a factor; for the policies to compare with, the policy's name and 0."""


def replay(folder: Path, seed: int, runs: list[Run]) -> Mapping[Run, float]:
    """Return the hot minutes of each run in a world."""
    trace = read_trace(folder)
    known = policies(trace)
    hot = {}
    for name, factor in runs:
        profile = extender_profile(configuration_of(name), factor) if factor else None
        policy = known[name] if profile is None else ProfilePolicy(name, profile)
        outcome = Replay(trace, policy, ReplayOptions(seed=seed)).run()
        hot[name, factor] = float(hot_minutes(outcome, HOT_PERCENT))
    return hot


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("worlds", nargs="+", type=Path)
    parser.add_argument("--factor", type=int, nargs="+", default=FACTORS)
    parser.add_argument("--plugin", nargs="+", default=PLUGINS)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--jobs", type=int, default=1)
    arguments = parser.parse_args()
    tried = list(product(arguments.plugin, arguments.factor))
    runs: list[Run] = [(DEFAULT, 0), (CLAIRVOYANT, 0), *tried]
    tasks = list(product(arguments.worlds, range(arguments.seeds)))
    results = joblib.Parallel(arguments.jobs, verbose=5)(joblib.delayed(replay)(*task, runs) for task in tasks)
    by_world = {
        run: np.array([result[run] for result in results]).reshape(-1, arguments.seeds).mean(axis=1) for run in runs
    }
    way = by_world[DEFAULT, 0] - by_world[CLAIRVOYANT, 0]
    print("| plugin | factor | gap closed, % | worse than the default in |\n|---|---:|---:|---:|")
    for run in tried:
        closed = interval((100 * (by_world[DEFAULT, 0] - by_world[run]) / way).tolist())
        worse = np.count_nonzero(by_world[run] > by_world[DEFAULT, 0])
        print(f"| {run[0]} | {run[1]} | {closed.mean:.0f} ({closed.low:.0f} to {closed.high:.0f}) | {worse} |")


if __name__ == "__main__":
    main()
