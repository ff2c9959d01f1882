"""Verdicts of ``trimaran doctor --worth-it`` in replays, next to what load-aware placement changed in them.

Each world is replayed twice: by kube-scheduler's default plugins, where the cluster is judged at intervals as the
command judges it, and by CongestionCost with use estimated from requests. The verdict is that of the moment with the
highest CPU use. Prints CSV, the data of docs/adopt.md:

    python research/benefit_verdicts.py worlds/a worlds/b [--overcommit 1.0]
    python research/benefit_verdicts.py --synthetic 1,0.2,0.69 --synthetic 2       seed, mean use, requested, CPU level
"""

import argparse
import csv
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from scoring import Pod
from scoring.arrays import Int64s
from trimaran.planning.benefit import PlacementBenefit, placement_benefit
from trimaran.simulator.cluster import Cluster
from trimaran.simulator.measures import hot_minutes
from trimaran.simulator.policies.catalogue import DEFAULT, policies
from trimaran.simulator.policy import Chooser, Policy
from trimaran.simulator.replay import Replay, ReplayOptions
from trimaran.simulator.simulated_watcher import SimulatedWatcher
from trimaran.traces.reading import read_trace
from trimaran.traces.synthetic import Synthetic
from trimaran.traces.trace import Trace

LOAD_AWARE = "congestion-cost-by-requests"
COLUMNS = ("world", "overcommit", "verdict", "default_hot_minutes", "load_aware_hot_minutes", "node_minutes")
_HOT_PERCENT = 80
_SYNTHETIC = ("mean_use", "requested", "cpu_level")


class Judging:
    """A policy that judges the cluster at intervals, and chooses like another policy.

    Attributes:
        benefits: the judgments.
    """

    def __init__(self, policy: Policy, minutes: int) -> None:
        self._policy, self._minutes = policy, minutes
        self.name, self.move_policy = policy.name, policy.move_policy
        self.benefits: list[PlacementBenefit] = []

    def begin(self, cluster: Cluster, watcher: SimulatedWatcher, rng: np.random.Generator) -> Chooser:
        """Begin a replay."""
        self._cluster, self._watcher, self._interval = cluster, watcher, -1
        self._chooser = self._policy.begin(cluster, watcher, rng)
        return self

    def admit(self, number: int) -> Pod:
        """Admit a pod as the other policy does."""
        return self._chooser.admit(number)

    def choose(self, number: int, pod: Pod, candidates: Int64s) -> int:
        """Choose as the other policy does; judge the cluster if an interval has begun."""
        minute = self._cluster.minute
        if minute >= self._cluster.trace.warm_up_minutes and minute // self._minutes != self._interval:
            self._interval = minute // self._minutes
            self.benefits.append(placement_benefit(self._cluster.nodes, self._watcher.snapshot()))
        return self._chooser.choose(number, pod, candidates)

    @property
    def at_peak(self) -> PlacementBenefit:
        """The judgment at the moment with the highest CPU use."""
        return max(self.benefits, key=lambda benefit: benefit.figures.cpu.use or 0)


def judged(
    trace: Trace, overcommit: tuple[float, float] | None, minutes: int = 120
) -> tuple[PlacementBenefit, float, float]:
    """Return the judgment of a world, and its hot minutes by default and with load-aware placement.

    Args:
        trace: the world.
        overcommit: divisors of CPU and memory requests; None for the trace's own.
        minutes: interval between two judgments.
    """
    known, options = policies(trace), ReplayOptions(overcommit=overcommit)
    judging = Judging(known[DEFAULT], minutes)
    default = hot_minutes(Replay(trace, judging, options).run(), _HOT_PERCENT)
    load_aware = hot_minutes(Replay(trace, known[LOAD_AWARE], options).run(), _HOT_PERCENT)
    return judging.at_peak, default, load_aware


def worlds(arguments: argparse.Namespace) -> Iterator[Trace]:
    """Yield the worlds that the command line names."""
    yield from map(read_trace, arguments.worlds)
    for text in arguments.synthetic:
        seed, *rest = text.split(",")
        options = dict(zip(_SYNTHETIC, map(float, rest), strict=False))
        yield Synthetic(int(seed), nodes=30, minutes=24 * 60, warm_up_minutes=8 * 60, **options).trace()


def main() -> None:
    """Print a row for each world."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("worlds", nargs="*", type=Path)
    parser.add_argument("--synthetic", action="append", default=[], metavar="SEED[,USE,REQUESTED,LEVEL]")
    parser.add_argument("--overcommit", type=float)
    arguments = parser.parse_args()
    rows = csv.writer(sys.stdout)
    rows.writerow(COLUMNS)
    for trace in worlds(arguments):
        factor = arguments.overcommit
        overcommit = None if factor is None else (factor, min(factor, trace.overcommit[1]))
        benefit, default, load_aware = judged(trace, overcommit)
        minutes = len(trace.nodes) * (trace.minutes - trace.warm_up_minutes)
        rows.writerow([trace.name, factor or trace.overcommit[0], benefit.verdict, default, load_aware, minutes])


if __name__ == "__main__":
    main()
