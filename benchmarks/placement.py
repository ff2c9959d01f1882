"""Time of each batch placement method, and the gap of its plan: the distance of its cost from the lower bound.

    python benchmarks/placement.py [--size NODES PODS ...] [--seed 0]

Without ``--size`` the cluster has 31 nodes and 1,800 pods. ``--size 2000 20000`` takes some ten minutes.
"""

import argparse
import time
from functools import partial

import numpy as np

from research.tbesk.generated import generated_cluster
from research.tbesk.methods import METHODS
from trimaran.planning.bound import lower_bound
from trimaran.planning.local_search import SearchSettings, local_search
from trimaran.planning.methods import LOCAL_SEARCH
from trimaran.planning.planner import default_seconds
from trimaran.planning.problem import measure

RULES = ("lra", "bra", "cwt", "fitness")
FEW_PODS = 2_000  # metaheuristics take too long for more


def timed(work):
    """Return the result of a call, and a text with its processor seconds and wall-clock seconds."""
    cpu, wall = time.process_time(), time.monotonic()
    result = work()
    return result, f"{time.process_time() - cpu:.1f} | {time.monotonic() - wall:.1f}"


def compare(nodes, pods, seed):
    problem = generated_cluster(nodes, pods, seed)
    size = f"| {nodes:,} | {pods:,}"
    bound, seconds = timed(lambda: lower_bound(problem, seconds=120))
    unproven = "" if bound.exact else ", time ran out"
    print(f"{size} | lower bound{unproven} | {bound.cost:.4f} | | | | {seconds} |", flush=True)
    methods = {name: method for name, method in METHODS.items() if name in RULES or pods <= FEW_PODS}
    methods[LOCAL_SEARCH] = partial(local_search, settings=SearchSettings(seconds=default_seconds(pods)))
    for name, method in methods.items():
        plan, seconds = timed(lambda method=method: method(problem, np.random.default_rng(seed)))
        found = measure(problem, plan)
        columns = f"{found.cost():.4f} | {bound.gap(found.cost()):.1%} | {found.overloaded} | {found.unplaced}"
        print(f"{size} | {name} | {columns} | {seconds} |", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", type=int, nargs=2, action="append", metavar=("NODES", "PODS"))
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    print("| nodes | pods | method | cost | gap | overloaded | unplaced | processor, s | s |")
    print("|---:|---:|---|---:|---:|---:|---:|---:|---:|")
    for nodes, pods in arguments.size or [(31, 1_800)]:
        compare(nodes, pods, arguments.seed)


if __name__ == "__main__":
    main()
