"""How many decisions does a replay make a second? Synthetic worlds of 60 and of 1,000 nodes, some policies.

A decision is a pod that arrives and gets a node; its share of all else is in it: metrics, ends of pods, what is learnt.
Each turn is a replay in a process of its own, in processor time, without the reading of the trace; the figures are of
the best turn. Then a million node-minutes are replayed once, with the first policy, to see what memory that takes: the
peak is the process's, with the trace in it.

Last, the same few replays in one process and side by side (``trimaran simulate compare --jobs``), turn about: how much
sooner are they done? All that a user waits for is in the time, the start of processes too; the ratio is the median over
turns. Every measure of every replay must be the same, or the benchmark stops. What others had of the processors
meanwhile is told, too: with more than a little the ratio says nothing.

    python benchmarks/replaying.py [--turns 3] [--before PATH] [--jobs PROCESSORS] [POLICY ...]

``--before`` is the folder of another version of this project, which is the baseline: it takes its turns too, and must
place every pod where this one does, or the benchmark stops.
"""

import argparse
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import psutil

from trimaran.traces.synthetic import Synthetic
from trimaran.traces.trace import write_trace

POLICIES = ("default", "target-load-packing+load-variation-risk-balancing", "congestion-cost")
# Nodes, minutes, the part that jobs use, and turns if not all.
WORLDS = ((60, 1_200, 0.2, 0), (1_000, 150, 0.03, 0), (1_000, 1_000, 0.03, 1))
# Seeds of the worlds of 60 nodes that are replayed side by side, each with the first two policies: of like length,
# and several for each processor, as in any comparison.
SIDE_BY_SIDE = (1, 2, 3, 4)
BUSY = ("user", "nice", "system", "irq", "softirq", "steal")  # what processors do, where it is told
HERE = Path(__file__).parent.parent
# What any version of this project can do: replay a trace's folder, and say what came of it.
TURN = """
import hashlib, resource, sys, time
from pathlib import Path
from trimaran.simulator.policies.catalogue import policies
from trimaran.simulator.replay import Replay
from trimaran.traces.trace import read_trace
trace = read_trace(Path(sys.argv[1]))
policy = policies(trace)[sys.argv[2]]
began = time.process_time()
outcome = Replay(trace, policy).run()
took = time.process_time() - began
placements = [(stay.pod, stay.node, stay.start, stay.end) for stay in outcome.cluster.stays]
digest = hashlib.sha256(repr(placements).encode()).hexdigest()
print(outcome.decisions, took, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, digest)
"""


def turn(version: Path, folder: Path, policy: str) -> tuple[float, int, float, str]:
    """Return decisions a second, their number, the peak in MiB, and what tells placements apart."""
    done = subprocess.run(
        [sys.executable, "-c", TURN, str(folder), policy], cwd=version, env={**os.environ, "PYTHONPATH": str(version)},
        stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    decisions, seconds, peak, digest = done.stdout.split()
    return int(decisions) / float(seconds), int(decisions), float(peak), digest


@dataclass(frozen=True)
class Comparison:
    """What a comparison took, in seconds: until it was done, of processors, and of processors for others meanwhile."""

    wait: float
    spent: float
    others: float
    printed: str


def compare(folders: list[Path], policies: list[str], jobs: int) -> Comparison:
    """Replay policies in worlds, as a user does."""
    asked = [word for policy in policies for word in ("--policy", policy)]
    own, busy, began = spent_by_children(), busy_seconds(), time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "trimaran", "simulate", "compare", "--trace", *map(str, folders), *asked, "--json",
         "--jobs", str(jobs)],
        cwd=HERE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True,
    )  # fmt: skip
    spent = spent_by_children() - own
    return Comparison(time.monotonic() - began, spent, max(busy_seconds() - busy - spent, 0.0), done.stdout)


def spent_by_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def busy_seconds() -> float:
    times = psutil.cpu_times()
    return float(sum(getattr(times, part) for part in BUSY if hasattr(times, part)))


def side_by_side(turns: int, policies: list[str], jobs: int) -> None:
    """Print how much sooner replays are done side by side than in one process."""
    nodes, minutes, share, _ = WORLDS[0]
    with tempfile.TemporaryDirectory() as folder:
        folders = [Path(folder) / f"seed-{seed}" for seed in SIDE_BY_SIDE]
        for seed, world in zip(SIDE_BY_SIDE, folders, strict=True):
            drawn = Synthetic(seed, nodes, minutes, warm_up_minutes=minutes // 5, jobs_share=share)
            write_trace(drawn.trace(), world)
        taken = [(compare(folders, policies, 1), compare(folders, policies, jobs)) for _ in range(turns)]
    if len({each.printed for pair in taken for each in pair}) > 1:
        sys.exit(f"--jobs {jobs} does not measure what --jobs 1 does")
    replays = len(folders) * len(policies)
    print(f"\n{replays} replays, {nodes} nodes, {minutes:,} minutes; every measure is the same\n")
    print("| --jobs | until done, s: median (least to most) | of processors, s | of processors for others, s |")
    print("|---:|---:|---:|---:|")
    for number, runs in zip((1, jobs), zip(*taken, strict=True), strict=True):
        waits = [each.wait for each in runs]
        spent, others = (median(getattr(each, part) for each in runs) for part in ("spent", "others"))
        print(f"| {number} | {median(waits):.1f} ({min(waits):.1f} to {max(waits):.1f}) | {spent:.1f} | {others:.1f} |")
    ratios = [alone.wait / beside.wait for alone, beside in taken]
    spread = f"({min(ratios):.2f} to {max(ratios):.2f})"
    print(f"\nSooner by a factor of {median(ratios):.2f} {spread} with {jobs} processes on {os.cpu_count()} processors")


def main(turns: int, before: Path | None, chosen: list[str]) -> None:
    versions = {"this": HERE, **({"before": before.resolve()} if before else {})}
    machine = f"Python {platform.python_version()}, {os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}"
    print(f"\n{machine}; best of {turns} turns\n")
    print("| nodes | minutes | policy | version | decisions | decisions/s | peak, MiB |")
    print("|---:|---:|---|---|---:|---:|---:|")
    for nodes, minutes, jobs, once in WORLDS:
        with tempfile.TemporaryDirectory() as folder:
            world = Path(folder)
            drawn = Synthetic(seed=1, nodes=nodes, minutes=minutes, warm_up_minutes=minutes // 5, jobs_share=jobs)
            write_trace(drawn.trace(), world)
            for policy in chosen[: once or None]:
                rounds = range(once or turns)
                taken = [(name, turn(each, world, policy)) for _ in rounds for name, each in versions.items()]
                if len({digest for _, (*_, digest) in taken}) > 1:
                    sys.exit(f"{policy}: the versions do not place pods alike")
                for name in versions:
                    speed, decisions, peak, _ = max(each for of, each in taken if of == name)
                    print(
                        f"| {nodes:,} | {minutes:,} | {policy} | {name} | {decisions:,} | {speed:,.0f} | {peak:,.0f} |",
                        flush=True,
                    )
    print(f"\nLoad at the end: {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--before", type=Path)
    parser.add_argument("--jobs", type=int, default=max(2, os.cpu_count() or 2), help="of those side by side")
    parser.add_argument("policies", nargs="*", default=list(POLICIES), metavar="POLICY")
    options = parser.parse_args()
    main(options.turns, options.before, options.policies)
    side_by_side(options.turns, options.policies[:2], options.jobs)
