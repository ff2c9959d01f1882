"""Replays of other projects' policies with their default settings, as input of ``evidence_tables.py``.

Prints JSON like ``trimaran simulate compare -o json``; the default scheduler is among the policies.

    python research/rival_replays.py WORLD ... [--seeds 4] [--jobs 2] > rivals.json
"""

import argparse
import json
import sys
from itertools import product
from pathlib import Path

import joblib
from tuning_settings import TUNED_POLICIES

from trimaran.simulator.measures import measures
from trimaran.simulator.policies.catalogue import DEFAULT, policies
from trimaran.simulator.replay import Replay, ReplayOptions
from trimaran.simulator.report.statistics import over_seeds
from trimaran.traces.reading import read_trace

RIVALS = ("koordinator", "crane", "volcano")


def replay(folder: Path, name: str, seed: int) -> dict[str, float]:
    """Return the measures of a replay of a policy with its default settings."""
    trace = read_trace(folder)
    policy = policies(trace)[DEFAULT] if name == DEFAULT else TUNED_POLICIES[name].build(trace, {})
    return measures(Replay(trace, policy, ReplayOptions(seed=seed)).run())


def main() -> None:
    """Print the measures by world and policy, means over the seeds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("worlds", nargs="+", type=Path)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--jobs", type=int, default=1)
    arguments = parser.parse_args()
    tasks = list(product(arguments.worlds, (DEFAULT, *RIVALS)))
    runs = [(*task, seed) for task in tasks for seed in range(arguments.seeds)]
    results = iter(joblib.Parallel(arguments.jobs, verbose=5)(joblib.delayed(replay)(*run) for run in runs))
    compared: dict[str, dict[str, dict[str, float]]] = {}
    for folder, name in tasks:
        compared.setdefault(folder.name, {})[name] = over_seeds([next(results) for _ in range(arguments.seeds)])
    json.dump(compared, sys.stdout)


if __name__ == "__main__":
    main()
