"""Moves off saturated nodes, with and without the rule that use there is a lower bound of demand.

Each world has 16 nodes of 8 cores. Pods with large requests and little use bring each node to about a third of its CPU;
then 24 pods with tiny requests and 2 to 3.4 cores of demand arrive, which kube-scheduler's default gathers on the
nodes with the least requests. These nodes are saturated, and the others are cool. The demand is from the first minute
(``alone``, ``replicas``: four pods of a workload), or begins at the tenth hour (``rise``), when the node becomes full.

A target is above its bound if the demand of its pods at the time of the move is above ``target_percent`` of its CPU,
in the mean of the hour after it.

    python research/saturated_moves.py 8    # worlds of each kind; the table of research/evidence/moves.md
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from scoring.arrays import Float64s
from trimaran.rebalancer import plan
from trimaran.rebalancer.look import HOUR_STEPS
from trimaran.rebalancer.rules import CapLimits, MoveRules, PodRules
from trimaran.simulator.measures import measures
from trimaran.simulator.moving.by_cost import CostMovePolicy
from trimaran.simulator.policies.catalogue import DEFAULT, policies
from trimaran.simulator.policies.profiles import ProfilePolicy
from trimaran.simulator.replay import Replay, ReplayOptions, ReplayOutcome
from trimaran.traces.trace import NO_LIMIT, PodUse, Trace

NODES, CORES, MINUTES, RISE = 16, 8, 36 * 60, 10 * 60
KINDS = ("alone", "replicas", "rise")
LARGE, HUNGRY, GIB = 144, 24, 2**30
RULES = MoveRules(holdout_percent=0, caps=CapLimits(percent_per_hour=100), pods=PodRules(min_replicas=1))


@dataclass
class Result:
    """Sums over replays."""

    moves: int = 0
    above: int = 0
    hot_minutes: float = 0.0


def world(kind: str, seed: int) -> Trace:
    """Return a world of a kind."""
    random = np.random.default_rng([seed, KINDS.index(kind)])
    count = LARGE + HUNGRY
    requests = np.concatenate([random.integers(400, 900, LARGE), np.full(HUNGRY, 50)])
    demand = np.concatenate([random.uniform(0.2, 0.4, LARGE), random.uniform(2.0, 3.4, HUNGRY)])
    arrival = np.concatenate([np.zeros(LARGE, np.int64), np.arange(1, HUNGRY + 1)])
    levels = []
    for number in range(count):
        course = demand[number] * random.uniform(0.95, 1.05, MINUTES - arrival[number])
        if kind == "rise" and number >= LARGE:
            course[: RISE - arrival[number]] *= 0.1
        levels.append(1000 * course / requests[number])
    owners = [f"large-{n // 4}" for n in range(LARGE)]
    owners += [f"hungry-{n // 4 if kind == 'replicas' else n}" for n in range(HUNGRY)]
    lives = [len(each) for each in levels]
    no_limit = np.full(count, NO_LIMIT)
    return Trace(
        name=f"{kind}-{seed}", nodes=tuple(f"node-{n}" for n in range(NODES)),
        cpu_capacity_milli=np.full(NODES, 1000 * CORES), memory_capacity_bytes=np.full(NODES, 64 * GIB),
        pods=tuple(f"pod-{n}" for n in range(count)), owner_kinds=("Deployment",) * count, owners=tuple(owners),
        arrival_minute=arrival, end_minute=np.full(count, MINUTES), cpu_request_milli=requests,
        memory_request_bytes=np.full(count, GIB // 2), cpu_limit_milli=no_limit, memory_limit_bytes=no_limit,
        use=PodUse(np.cumsum([0, *lives]), np.concatenate(levels).astype(np.float16),
                   np.full(sum(lives), 0.5, np.float16)),
        overcommit=(1.0, 1.0), warm_up_minutes=300, minutes=MINUTES,
    )  # fmt: skip


@contextmanager
def bounds_of_demand(*, used: bool) -> Iterator[None]:
    """Let plans take the use of each pod for its demand, as before the rule."""
    before: Callable[..., Float64s] = plan.demand_bounds

    def mean_use(_look: Any, arrays: Any, *_: Any) -> Float64s:
        return np.asarray(arrays.problem.cpu[:, -HOUR_STEPS:].mean(axis=1, dtype=np.float64))

    plan.demand_bounds = mean_use if used else before
    try:
        yield
    finally:
        plan.demand_bounds = before


def replay(trace: Trace, *, moving: bool = True, used: bool = False) -> ReplayOutcome:
    """Replay a world with kube-scheduler's default, and with moves by the rebalancer's rules."""
    policy = policies(trace)[DEFAULT]
    assert isinstance(policy, ProfilePolicy)
    mover = CostMovePolicy(percent_per_hour=100, rules=RULES) if moving else None
    with bounds_of_demand(used=used):
        return Replay(trace, replace(policy, move_policy=mover), ReplayOptions()).run()


def targets_above(outcome: ReplayOutcome, target_percent: float) -> int:
    """Return how many moves brought their target's demand above the bound."""
    cluster, by_pod = outcome.cluster, {}
    for run in cluster.pod_runs:
        by_pod.setdefault(run.pod, []).append(run)
    above = 0
    for runs in by_pod.values():
        for _, run in pairwise(runs):
            there = [each for each in cluster.pod_runs if each.node == run.node and each.start <= run.start < each.end]
            minutes = slice(run.start, min(run.start + 60, MINUTES))
            demand = sum(cpu_demand(cluster.trace, each.pod)[minutes].mean() for each in there)
            above += demand > target_percent / 100 * 1000 * CORES
    return above


def cpu_demand(trace: Trace, number: int) -> Float64s:
    """Return the demand of a pod in each minute of the world, millicores."""
    demand = np.zeros(trace.minutes)
    demand[int(trace.arrival_minute[number]) :] = trace.usage(number)[0]
    return demand


def main(worlds: int) -> None:
    """Print the table."""
    print("| world | rule | moves | targets above the bound | hot minutes |\n|---|---|---:|---:|---:|")
    for kind in KINDS:
        for title, options in (("no moves", {"moving": False}), ("off", {"used": True}), ("on", {})):
            result = Result()
            for seed in range(worlds):
                outcome = replay(world(kind, seed), **options)
                result.moves += outcome.moves
                result.above += targets_above(outcome, RULES.nodes.target_percent)
                result.hot_minutes += measures(outcome)["hot_minutes_80"]
            row = f"{result.moves} | {result.above} | {result.hot_minutes / worlds:.2f}"
            print(f"| {kind} | {title} | {row} |", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
