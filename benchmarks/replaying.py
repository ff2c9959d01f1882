"""Decisions per second of the simulator: replays of synthetic worlds (generated traces) of 60 and of 1,000 nodes.

A decision is a pod that arrives and gets a node. Its time includes a share of all other work of the replay: metrics,
pods that end, and learning the use of pods. Each turn is a replay in a separate process, in processor time without the
time to read the trace; the best turn counts. A trace of a million node-minutes is replayed once, with the first policy,
to measure the peak memory of the process. The baseline is another version of this project, if ``--before`` names its
folder; that version must place every pod on the same node, or the benchmark stops.

    python benchmarks/replaying.py [--turns 3] [--before PATH]
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from common import ROOT, Table, options

from trimaran.traces.synthetic import Synthetic
from trimaran.traces.trace import write_trace

POLICIES = ("default", "target-load-packing+load-variation-risk-balancing", "congestion-cost")
# Nodes, minutes, the part of the use that is jobs', and turns if fewer than asked for.
WORLDS = ((60, 1_200, 0.2, 0), (1_000, 150, 0.03, 0), (1_000, 1_000, 0.03, 1))
# Works with earlier versions of this project, too: replays the trace of a folder, and prints the result.
REPLAY = """
import hashlib, resource, sys, time
from pathlib import Path
try:
    from trimaran.simulator.policies.catalogue import policies
    from trimaran.simulator.replay import Replay
    from trimaran.traces.reading import read_trace
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
    """Result of a replay.

    Attributes:
        speed: decisions per second of processor time.
        decisions: number of decisions.
        peak: peak memory of the process, MiB.
        digest: hash of all placements.
    """

    speed: float
    decisions: int
    peak: float
    digest: str


def replay(version: Path, folder: Path, policy: str) -> Turn:
    """Replay a trace by a version of this project, in a separate process.

    Args:
        version: folder of the version.
        folder: folder of the trace.
        policy: name of the policy.
    """
    done = subprocess.run(
        [sys.executable, "-c", REPLAY, str(folder), policy], cwd=version,
        env={**os.environ, "PYTHONPATH": str(version)}, stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    decisions, seconds, peak, digest = done.stdout.split()
    return Turn(int(decisions) / float(seconds), int(decisions), float(peak), digest)


def main() -> None:
    """Run the benchmark and print its table."""
    chosen = options(__doc__, turns=3, before=None)
    columns = (
        "nodes",
        "minutes",
        "policy",
        "decisions",
        "before, decisions/s",
        "decisions/s",
        "now/before",
        "peak, MiB",
    )
    table = Table(f"best of {chosen.turns} turns", columns, text_columns=0)
    versions = [ROOT, *([chosen.before.resolve()] if chosen.before else [])]
    for nodes, minutes, jobs_share, turns_at_most in WORLDS:
        with tempfile.TemporaryDirectory() as folder:
            world = Path(folder)
            trace = Synthetic(1, nodes, minutes, warm_up_minutes=minutes // 5, jobs_share=jobs_share).trace()
            write_trace(trace, world)
            for policy in POLICIES[: turns_at_most or None]:
                turns = range(turns_at_most or chosen.turns)
                results = [[replay(version, world, policy) for version in versions] for _ in turns]
                if len({result.digest for in_turn in results for result in in_turn}) > 1:
                    sys.exit(f"{policy}: the versions do not place pods alike")
                this, *others = (max(column) for column in zip(*results, strict=True))
                before = f"{others[0].speed:,.0f}" if others else ""
                ratio = f"{this.speed / others[0].speed:.2f}" if others else ""
                table.row(f"{nodes:,}", f"{minutes:,}", policy, f"{this.decisions:,}", before, f"{this.speed:,.0f}",
                          ratio, f"{this.peak:,.0f}")  # fmt: skip


if __name__ == "__main__":
    main()
