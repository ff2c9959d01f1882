"""Quotas in a synthetic world of three teams: who gets accelerators, with CapacityScheduling and without.

A pod has one accelerator, which the trace has as a core; nodes have eight. Three teams are guaranteed a third each.
Each works in turns of some hours, in which it asks for more than its third, and rests in between. A pod is *entitled*
if it arrives while its team has fewer pods that run or wait than its guarantee. *Denied* are the accelerator-hours that
entitled pods wait, *idle* those in which an accelerator is free while any pod waits. A pod that quotas take back
returns to the queue.

    python research/quota_worlds.py [SEEDS]
"""

import sys
from dataclasses import replace
from statistics import fmean
from typing import Any

import numpy as np
from gang_worlds import world as training_world

from trimaran.simulator.policies.standalone import StandalonePolicy, standalone_policy
from trimaran.simulator.replay import Replay, ReplayOptions, ReplayOutcome
from trimaran.traces.trace import JOB, PodUse, Trace

TEAMS, NODES, ACCELERATORS, MINUTES = ("red", "green", "blue"), 6, 8, 24 * 60
GUARANTEE = NODES * ACCELERATORS // len(TEAMS)
MEDIAN_MINUTES, SPREAD, ASKED, TURN = 60, 0.8, 1.9, 360  # a busy team asks for 1.9 times its guarantee
COLUMNS = ("denied, accelerator-h", "entitled: start, mean min", "p95 min", "start, mean min", "idle, accelerator-h")


def world(seed: int) -> Trace:
    """Return the trace of a seed."""
    rng = np.random.default_rng(seed)
    gap = MEDIAN_MINUTES * np.exp(SPREAD**2 / 2) / (ASKED * GUARANTEE)
    pods = []
    for number, team in enumerate(TEAMS):
        at = rng.exponential(gap, 20_000).cumsum()
        turn = ((at + number * TURN // 2) // TURN).astype(np.int64)
        busy = rng.random(int(turn[-1]) + 1) < 0.5
        arrivals = at[busy[turn] & (at < MINUTES - 60)].astype(np.int64)
        lives = np.maximum(5, MEDIAN_MINUTES * np.exp(rng.normal(0, SPREAD, arrivals.size))).astype(np.int64)
        pods += [(arrival, team, life) for arrival, life in zip(arrivals.tolist(), lives.tolist(), strict=True)]
    pods.sort()
    count = len(pods)
    arrival, life = np.array([each[0] for each in pods]), np.array([each[2] for each in pods])
    offsets = np.concatenate([[0], np.cumsum(life)])
    full = np.ones(int(offsets[-1]), np.float16)
    one_core, one_gib = np.full(count, 1000), np.full(count, 1 << 30)
    return replace(
        training_world(seed),
        name=f"teams-{seed}",
        nodes=tuple(f"node-{number}" for number in range(NODES)),
        cpu_capacity_milli=np.full(NODES, 1000 * ACCELERATORS),
        memory_capacity_bytes=np.full(NODES, 1 << 36),
        pods=tuple(f"pod-{number}" for number in range(count)),
        owner_kinds=(JOB,) * count,
        owners=tuple(f"{team}/job-{number}" for number, (_, team, _) in enumerate(pods)),
        arrival_minute=arrival,
        end_minute=arrival + life,
        cpu_request_milli=one_core,
        memory_request_bytes=one_gib,
        cpu_limit_milli=one_core,
        memory_limit_bytes=one_gib,
        use=PodUse(offsets, full, full),
        minutes=MINUTES,
    )


def policy(title: str, most: int | None) -> StandalonePolicy:
    """Return the policy with quotas of this largest number of accelerators; None is without quotas."""
    plugins: dict[str, Any] = {}
    objects: list[dict[str, Any]] = []
    if most is not None:
        name = [{"name": "CapacityScheduling"}]
        without = {"enabled": name, "disabled": [{"name": "DefaultPreemption"}]}
        plugins = {"preFilter": {"enabled": name}, "postFilter": without}
        least = {"cpu": str(GUARANTEE), "memory": "1Ti"}
        objects = [
            {"kind": "ElasticQuota", "metadata": {"namespace": team, "name": "quota"},
             "spec": {"min": least, "max": {"cpu": str(most)}}}
            for team in TEAMS
        ]  # fmt: skip
    document = {
        "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
        "profiles": [{"schedulerName": "teams", "plugins": plugins}],
    }  # fmt: skip
    return standalone_policy(title, document, objects)


def measures(outcome: ReplayOutcome) -> tuple[float, ...]:
    """Return the measures of a replay, in the order of ``COLUMNS``."""
    trace, unplaced = outcome.cluster.trace, set(outcome.unplaced)
    runs: dict[int, list[tuple[int, int]]] = {}
    for run in outcome.cluster.pod_runs:
        runs.setdefault(run.pod, []).append((run.start, run.end))
    teams = [owner.partition("/")[0] for owner in trace.owners]
    present = np.zeros((len(TEAMS), trace.minutes + 1), np.int64)
    running = np.zeros(trace.minutes + 1, np.int64)
    entitled, waits = [], []
    for number, at in enumerate(trace.arrival_minute.tolist()):
        of_pod = sorted(runs.get(number, []))
        end = trace.minutes if number in unplaced else of_pod[-1][1]
        team = TEAMS.index(teams[number])
        entitled.append(bool(present[team, at] < GUARANTEE))
        waits.append((of_pod[0][0] if of_pod else trace.minutes) - at)
        present[team, at:end] += 1
        for first, last in of_pod:
            running[first:last] += 1
    waiting = present.sum(axis=0) - running
    free = NODES * ACCELERATORS - running
    idle = float(np.minimum(waiting, free).clip(0).sum())
    of_entitled = [wait for wait, is_entitled in zip(waits, entitled, strict=True) if is_entitled]
    p95 = float(np.percentile(of_entitled, 95))
    return sum(of_entitled) / 60, fmean(of_entitled), p95, fmean(waits), idle / 60


def main(seeds: int) -> None:
    """Print the table."""
    print("| quotas | " + " | ".join(COLUMNS) + " | preempted |\n|---|" + "---:|" * (len(COLUMNS) + 1))
    for title, most in (("none", None), ("max equals min", GUARANTEE), ("lent", NODES * ACCELERATORS)):
        found = []
        for seed in range(seeds):
            outcome = Replay(world(seed), policy(title, most), ReplayOptions(seed=seed)).run()
            found.append((*measures(outcome), outcome.displaced))
        means = (fmean(column) for column in zip(*found, strict=True))
        print(f"| {title} | " + " | ".join(f"{mean:.0f}" for mean in means) + " |", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 4)
