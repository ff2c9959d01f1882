"""Moves next to an autoscaler that consolidates nodes: moves undone, and nodes used, for docs/rebalancer.md.

Consolidation empties nodes that are little requested; moves empty nodes that are much used. A move counts as undone if
the pod loses its new node to consolidation within two hours. The same worlds are replayed with moves and without, with
the simulated autoscaler in both, and the rebalancer's rule with a start-up of 30 seconds.

    python research/consolidation.py 2 worlds/tune-1 worlds/tune-3 ...    # seeds, worlds
"""

import sys
from collections import defaultdict
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from statistics import fmean

from trimaran.simulator.autoscaling import Autoscaling
from trimaran.simulator.cluster import PodRun
from trimaran.simulator.measures import measures
from trimaran.simulator.moving.by_cost import CostMovePolicy
from trimaran.simulator.policies.catalogue import CONGESTION_MORE_MOVES, CONGESTION_MOVES, policies
from trimaran.simulator.policies.profiles import ProfilePolicy
from trimaran.simulator.replay import Replay, ReplayOptions, ReplayOutcome
from trimaran.traces.reading import read_trace
from trimaran.traces.trace import Trace

_STARTUP_SECONDS = 30.0
_UNDONE_MINUTES = 120
_ROWS = (("none", CONGESTION_MOVES), ("0.1 %", CONGESTION_MOVES), ("1 %", CONGESTION_MORE_MOVES))


@dataclass(frozen=True)
class Result:
    """Measures of one replay."""

    moves: int
    undone: int
    node_hours: float
    hot_minutes: float


def replay(trace: Trace, name: str, seed: int, *, moving: bool) -> Result:
    """Replay a world with the simulated autoscaler, with or without moves."""
    policy = policies(trace)[name]
    assert isinstance(policy, ProfilePolicy)
    assert isinstance(policy.move_policy, CostMovePolicy)
    rules = replace(policy.move_policy.rules, startup=_STARTUP_SECONDS)
    policy = replace(policy, move_policy=replace(policy.move_policy, rules=rules) if moving else None)
    options = ReplayOptions(seed=seed, autoscaling=Autoscaling(), startup_seconds=_STARTUP_SECONDS)
    outcome = Replay(trace, policy, options).run()
    measured = measures(outcome)
    return Result(outcome.moves, undone_moves(outcome), measured["node_minutes"] / 60, measured["hot_minutes_80"])


def undone_moves(outcome: ReplayOutcome) -> int:
    """Return how many moved pods lost their new node to the autoscaler within two hours."""
    by_pod: dict[int, list[PodRun]] = defaultdict(list)
    for run in outcome.cluster.pod_runs:
        by_pod[run.pod].append(run)

    def lost_node(run: PodRun) -> bool:
        gone = int(outcome.cluster.ledger.until[run.node])
        return run.end == gone < outcome.cluster.trace.minutes

    return sum(
        lost_node(after) and after.end - after.start <= _UNDONE_MINUTES
        for runs in by_pod.values()
        for before, after in pairwise(runs)
        if not lost_node(before)  # its node was still there, so the pod was moved
    )


def main(seeds: int, folders: list[Path]) -> None:
    """Print the table."""
    traces = [read_trace(folder) for folder in folders]
    print("| moves per hour | moves | undone, % | node-hours | hot minutes |\n|---|---:|---:|---:|---:|")
    for title, name in _ROWS:
        results = [replay(trace, name, seed, moving=title != _ROWS[0][0]) for trace in traces for seed in range(seeds)]
        moves, undone = (sum(getattr(result, key) for result in results) for key in ("moves", "undone"))
        hours, hot = (fmean(getattr(result, key) for result in results) for key in ("node_hours", "hot_minutes"))
        share = f"{100 * undone / moves:.1f}" if moves else ""
        print(f"| {title} | {moves} | {share} | {hours:.0f} | {hot:.0f} |", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), list(map(Path, sys.argv[2:])))
