"""Decisions a second of a replay: synthetic worlds of 60 and of 1,000 nodes, some policies.

A decision is a pod that arrives and gets a node; its share of all other work is included: metrics, ends of pods,
learning. Each turn is a replay in a process of its own, in processor time without the reading of the trace; the best
turn counts. A million node-minutes are replayed once, with the first policy, for the peak memory of the process with
the trace in it. The baseline of these rows is another version of this project, where ``--before`` names its folder; it
must place every pod like this version, or the benchmark stops.

The last row runs eight replays in one process and side by side (``trimaran simulate compare --jobs``), in turn, from
start to end as a user waits for them. Every measure of every replay must be the same, or the benchmark stops. The
figures mean nothing where other programs used more than a little of the processors meanwhile, which the row shows.

    python benchmarks/replaying.py [--turns 3] [--before PATH] [--jobs PROCESSORS]
"""

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import NamedTuple

import psutil
from common import ROOT, Table, median_ratio, options

from trimaran.traces.synthetic import Synthetic
from trimaran.traces.trace import write_trace

POLICIES = ("default", "target-load-packing+load-variation-risk-balancing", "congestion-cost")
# Nodes, minutes, the part of the use that is jobs', and turns if fewer than asked for.
WORLDS = ((60, 1_200, 0.2, 0), (1_000, 150, 0.03, 0), (1_000, 1_000, 0.03, 1))
# Seeds of the worlds of 60 nodes that are replayed side by side, each with the first two policies: replays of similar
# length, and several for each processor, as in any comparison.
SEEDS = (1, 2, 3, 4)
BUSY = ("user", "nice", "system", "irq", "softirq", "steal")  # the states of a processor at work, where known
# Works with earlier versions of this project, too: replays the trace of a folder, and prints the result.
REPLAY = """
import hashlib, resource, sys, time
from pathlib import Path
try:
    from trimaran.simulator.policies.catalogue import policies
    from trimaran.simulator.replay import Replay
    from trimaran.traces.trace import read_trace
except ModuleNotFoundError:  # an earlier version
    from simulator.policies.catalogue import policies
    from simulator.replay import Replay
    from simulator.trace import read_trace
trace = read_trace(Path(sys.argv[1]))
policy = policies(trace)[sys.argv[2]]
start = time.process_time()
outcome = Replay(trace, policy).run()
took = time.process_time() - start
cluster = outcome.cluster
runs = cluster.pod_runs if hasattr(cluster, "pod_runs") else cluster.stays  # the name in earlier versions
placements = [(run.pod, run.node, run.start, run.end) for run in runs]
digest = hashlib.sha256(repr(placements).encode()).hexdigest()
print(outcome.decisions, took, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, digest)
"""


class Turn(NamedTuple):
    """Result of a replay: decisions a second and in all, the peak memory in MiB, and a digest of the placements."""

    speed: float
    decisions: int
    peak: float
    digest: str


def replay(version: Path, folder: Path, policy: str) -> Turn:
    """Replay a trace with a version of this project."""
    done = subprocess.run(
        [sys.executable, "-c", REPLAY, str(folder), policy], cwd=version,
        env={**os.environ, "PYTHONPATH": str(version)}, stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    decisions, seconds, peak, digest = done.stdout.split()
    return Turn(int(decisions) / float(seconds), int(decisions), float(peak), digest)


class Comparison(NamedTuple):
    """Seconds of a comparison: until done, of processor time, of processor time of other programs; and its output."""

    wait: float
    spent: float
    others: float
    printed: str


def compare(folders: list[Path], jobs: int) -> Comparison:
    """Replay the first two policies in worlds, like a user of the command line."""
    names = [word for policy in POLICIES[:2] for word in ("--policy", policy)]
    spent_before, busy_before, start = children_seconds(), busy_seconds(), time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "trimaran", "simulate", "compare", "--trace", *map(str, folders), *names, "--json",
         "--jobs", str(jobs)],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True,
    )  # fmt: skip
    spent = children_seconds() - spent_before
    others = max(busy_seconds() - busy_before - spent, 0.0)
    return Comparison(time.monotonic() - start, spent, others, done.stdout)


def children_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def busy_seconds() -> float:
    times = psutil.cpu_times()
    return float(sum(getattr(times, state) for state in BUSY if hasattr(times, state)))


def print_replays(table: Table, turns: int, before: Path | None) -> None:
    """Print the decisions a second of each world and policy."""
    versions = [ROOT, *([before.resolve()] if before else [])]
    for nodes, minutes, jobs_share, turns_at_most in WORLDS:
        with tempfile.TemporaryDirectory() as folder:
            world = Path(folder)
            trace = Synthetic(1, nodes, minutes, warm_up_minutes=minutes // 5, jobs_share=jobs_share).trace()
            write_trace(trace, world)
            for policy in POLICIES[: turns_at_most or None]:
                results = [[replay(v, world, policy) for v in versions] for _ in range(turns_at_most or turns)]
                if len({turn.digest for turns_of_round in results for turn in turns_of_round}) > 1:
                    sys.exit(f"{policy}: the versions do not place pods alike")
                this, *others = (max(column) for column in zip(*results, strict=True))
                compared = (f"{others[0].speed:,.0f}", f"{this.speed / others[0].speed:.2f}") if others else ("", "")
                table.row(f"{nodes:,}", f"{minutes:,}", policy, f"{this.decisions:,}", "decisions/s", compared[0],
                          f"{this.speed:,.0f}", compared[1], f"{this.peak:,.0f}")  # fmt: skip


def print_side_by_side(table: Table, turns: int, jobs: int) -> None:
    """Print the time of a comparison with one process and with several."""
    nodes, minutes, jobs_share, _ = WORLDS[0]
    with tempfile.TemporaryDirectory() as folder:
        folders = [Path(folder) / f"seed-{seed}" for seed in SEEDS]
        for seed, world in zip(SEEDS, folders, strict=True):
            trace = Synthetic(seed, nodes, minutes, warm_up_minutes=minutes // 5, jobs_share=jobs_share).trace()
            write_trace(trace, world)
        pairs = [(compare(folders, 1), compare(folders, jobs)) for _ in range(turns)]
    if len({each.printed for pair in pairs for each in pair}) > 1:
        sys.exit(f"--jobs {jobs} does not measure what --jobs 1 does")
    one, several = zip(*pairs, strict=True)
    spent = " and ".join(f"{median(each.spent for each in runs):.1f}" for runs in (one, several))
    others = " and ".join(f"{median(each.others for each in runs):.1f}" for runs in (one, several))
    name = f"{2 * len(folders)} replays, --jobs 1 and {jobs}; processor s: {spent}, of other programs: {others}"
    waits = [[each.wait for each in runs] for runs in (one, several)]
    table.row(nodes, f"{minutes:,}", name, "", "s until done", *(f"{median(each):.1f}" for each in waits),
              f"{median_ratio(*waits):.2f}", "")  # fmt: skip


def main() -> None:
    """Print the table."""
    chosen = options(__doc__, turns=3, before=None, jobs=max(2, os.cpu_count() or 2))
    columns = ("nodes", "minutes", "replay", "decisions", "unit", "baseline", "measured", "ratio", "peak, MiB")
    table = Table(f"best of {chosen.turns} turns", columns, text_columns=0)
    print_replays(table, chosen.turns, chosen.before)
    print_side_by_side(table, chosen.turns, chosen.jobs)


if __name__ == "__main__":
    main()
