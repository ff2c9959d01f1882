"""How many decisions does a replay make a second? Synthetic worlds of 60 and of 1,000 nodes, some policies.

A decision is a pod that arrives and gets a node; its share of all else is in it: metrics, ends of pods, what is learnt.
Each turn is a replay in a process of its own, in processor time, without the reading of the trace; the figures are of
the best turn. Last a million node-minutes are replayed once, with the first policy, to see what memory that takes: the
peak is the process's, with the trace in it.

    python benchmarks/replaying.py [--turns 3] [--before PATH] [POLICY ...]

``--before`` is the folder of another version of this project, which is the baseline: it takes its turns too, and must
place every pod where this one does, or the benchmark stops.
"""

import argparse
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

from simulator.synthetic import Synthetic
from simulator.trace import write_trace

POLICIES = ("default", "target-load-packing+load-variation-risk-balancing", "congestion-cost")
# Nodes, minutes, the part that jobs use, and turns if not all.
WORLDS = ((60, 1_200, 0.2, 0), (1_000, 150, 0.03, 0), (1_000, 1_000, 0.03, 1))
HERE = Path(__file__).parent.parent
# What any version of this project can do: replay a trace's folder, and say what came of it.
TURN = """
import hashlib, resource, sys, time
from pathlib import Path
from simulator.policies.catalogue import policies
from simulator.replay import Replay
from simulator.trace import read_trace
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
    parser.add_argument("policies", nargs="*", default=list(POLICIES), metavar="POLICY")
    options = parser.parse_args()
    main(options.turns, options.before, options.policies)
