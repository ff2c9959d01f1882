"""Gangs in a synthetic world of training jobs: start times and idle accelerators, with Coscheduling and without.

A pod stands for one worker with one accelerator, which the trace has as a core; nodes have eight. Jobs of 1 to 32
workers arrive at random and run for a log-normal time; they ask for about as much as there is. A worker that has a node
waits for the last worker of its job: *idle* are accelerator-hours of that. A job that never has all workers at once is
*never whole*. ``trimaran scheduler`` places them, in the simulator; the default order of the queue against gangs.

    python research/gang_worlds.py [SEEDS]
"""

import sys
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np

from trimaran.simulator.policies.standalone import standalone_policy
from trimaran.simulator.replay import Replay, ReplayOptions, ReplayOutcome
from trimaran.traces.trace import JOB, PodUse, Trace

NODES, ACCELERATORS, MINUTES = 16, 8, 36 * 60
SIZES, SHARES = (1, 2, 4, 8, 16, 32), (0.35, 0.2, 0.15, 0.15, 0.1, 0.05)
MEDIAN_MINUTES, SPREAD = 90, 0.8
ASKED = 0.95  # of all accelerators, on average
COLUMNS = ("jobs whole", "never whole", "start, mean min", "start, p95 min", "idle, accelerator-h", "used, %")


def world(seed: int) -> Trace:
    """Return the trace of a seed."""
    rng = np.random.default_rng(seed)
    mean_work = float(np.dot(SIZES, SHARES)) * MEDIAN_MINUTES * np.exp(SPREAD**2 / 2)
    arrivals = np.cumsum(rng.exponential(mean_work / (ASKED * NODES * ACCELERATORS), 20_000)).astype(np.int64)
    jobs = [
        (number, arrival, int(rng.choice(SIZES, p=SHARES)), max(5, int(MEDIAN_MINUTES * np.exp(rng.normal(0, SPREAD)))))
        for number, arrival in enumerate(arrivals[arrivals < MINUTES - 60].tolist())
    ]
    owners = [f"job-{number}" for number, _, size, _ in jobs for _ in range(size)]
    arrival = np.array([at for _, at, size, _ in jobs for _ in range(size)], np.int64)
    life = np.array([minutes for _, _, size, minutes in jobs for _ in range(size)], np.int64)
    count = len(owners)
    offsets = np.concatenate([[0], np.cumsum(life)])
    full = np.ones(int(offsets[-1]), np.float16)
    return Trace(
        name=f"training-{seed}",
        nodes=tuple(f"node-{number}" for number in range(NODES)),
        cpu_capacity_milli=np.full(NODES, 1000 * ACCELERATORS),
        memory_capacity_bytes=np.full(NODES, 1 << 36),
        pods=tuple(f"pod-{number}" for number in range(count)),
        owner_kinds=(JOB,) * count,
        owners=tuple(owners),
        arrival_minute=arrival,
        end_minute=arrival + life,
        cpu_request_milli=np.full(count, 1000),
        memory_request_bytes=np.full(count, 1 << 30),
        cpu_limit_milli=np.full(count, 1000),
        memory_limit_bytes=np.full(count, 1 << 30),
        use=PodUse(offsets, full, full),
        overcommit=(1.0, 1.0),
        warm_up_minutes=0,
        minutes=MINUTES,
    )


def configuration(*, gangs: bool) -> Mapping[str, Any]:
    """Return the KubeSchedulerConfiguration, with Coscheduling or without."""
    queue = {"enabled": [{"name": "Coscheduling"}], "disabled": [{"name": "*"}]}
    plugins = {"multiPoint": {"enabled": [{"name": "Coscheduling"}]}, "queueSort": queue} if gangs else {}
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
        "profiles": [{"schedulerName": "training", "plugins": plugins}],
    }  # fmt: skip


@dataclass(frozen=True)
class Measures:
    """Measures of one replay, in the order of ``COLUMNS``."""

    values: tuple[float, ...]

    @classmethod
    def of(cls, outcome: ReplayOutcome) -> "Measures":
        """Return the measures of a replay."""
        trace = outcome.cluster.trace
        runs = {run.pod: run for run in outcome.cluster.pod_runs}
        jobs = defaultdict(list)
        for number, owner in enumerate(trace.owners):
            jobs[owner].append(number)
        waits, never, idle, used = [], 0, 0, 0
        for numbers in jobs.values():
            placed = [runs[number] for number in numbers if number in runs]
            used += sum(run.end - run.start for run in placed)
            last = max((run.start for run in placed), default=0)
            if len(placed) < len(numbers) or last >= min(run.end for run in placed):
                never += 1
                idle += sum(run.end - run.start for run in placed)
                continue
            waits.append(last - int(trace.arrival_minute[numbers[0]]))
            idle += sum(last - run.start for run in placed)
        share = 100 * used / (NODES * ACCELERATORS * trace.minutes)
        return cls((len(waits), never, fmean(waits), float(np.percentile(waits, 95)), idle / 60, share))


def main(seeds: int) -> None:
    """Print the table."""
    print("| placed | " + " | ".join(COLUMNS) + " |\n|---|" + "---:|" * len(COLUMNS))
    for title, gangs in (("one pod at a time", False), ("gangs", True)):
        policy = standalone_policy(title, configuration(gangs=gangs))
        found = [Measures.of(Replay(world(seed), policy, ReplayOptions(seed=seed)).run()) for seed in range(seeds)]
        means = (fmean(column) for column in zip(*(each.values for each in found), strict=True))
        print(f"| {title} | " + " | ".join(f"{mean:.0f}" for mean in means) + " |", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 4)
