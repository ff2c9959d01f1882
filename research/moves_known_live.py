"""Moves with what is known live: gap closed and start-ups, for docs/evidence.md.

Each row replays moves of 0.1 and 1 percent of the pods per hour with one difference: metrics that are five minutes
late, a watcher that lost the past use of pods after 36 hours, placement without levels, or a longer start-up. The gap
closed is the way from the default scheduler (0 percent) to the clairvoyant policy (100 percent) in hot minutes at 80
percent, the mean over worlds. The default and the clairvoyant policy are replayed with the same seeds.

    python research/moves_known_live.py 4 worlds/tune-1 worlds/tune-3 ...    # seeds, worlds
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean

from trimaran.simulator.cluster import Cluster
from trimaran.simulator.measures import measures
from trimaran.simulator.moving.by_cost import CostMovePolicy, CostMover
from trimaran.simulator.moving.past_use import PastUse
from trimaran.simulator.policies.catalogue import (
    CLAIRVOYANT,
    CONGESTION_MORE_MOVES,
    CONGESTION_MOVES,
    DEFAULT,
    policies,
)
from trimaran.simulator.policies.profiles import ProfilePolicy
from trimaran.simulator.policy import Policy
from trimaran.simulator.replay import Replay, ReplayOptions
from trimaran.simulator.simulated_watcher import SimulatedWatcher
from trimaran.simulator.windows import Windows
from trimaran.traces.reading import read_trace
from trimaran.traces.trace import Trace

MEASURE, LOST_AT = "hot_minutes_80", 36 * 60


class ForgetfulMover(CostMover):
    """Mover whose watcher loses the past use of pods once."""

    def __init__(self, policy: CostMovePolicy, cluster: Cluster, watcher: SimulatedWatcher) -> None:
        super().__init__(policy, cluster, watcher)
        self._has_lost = False

    def due(self) -> list[tuple[int, int | None]]:
        """Return the moves to make now."""
        if not self._has_lost and self._cluster.minute >= LOST_AT:
            self._has_lost = True
            self._past = PastUse(self._cluster, self._watcher, since=self._watcher.known_until())
        return super().due()


@dataclass(frozen=True)
class ForgetfulMovePolicy(CostMovePolicy):
    """Moves by congestion cost with a watcher that loses the past use of pods once."""

    def begin(self, cluster: Cluster, watcher: SimulatedWatcher) -> ForgetfulMover:
        """Return a mover for one replay."""
        return ForgetfulMover(self, cluster, watcher)


@dataclass(frozen=True)
class Row:
    """Row of the table: what differs from moves with a start-up of 30 seconds."""

    title: str
    startup_seconds: float = 30.0
    windows: Windows = field(default_factory=Windows)
    change: Callable[[ProfilePolicy], ProfilePolicy] = lambda policy: policy

    def replay(self, trace: Trace, policy: Policy, seed: int) -> dict[str, float]:
        """Return the measures of one replay."""
        options = ReplayOptions(seed=seed, windows=self.windows, startup_seconds=self.startup_seconds)
        if isinstance(policy, ProfilePolicy) and isinstance(policy.move_policy, CostMovePolicy):
            rules = replace(policy.move_policy.rules, startup=self.startup_seconds)
            policy = self.change(replace(policy, move_policy=replace(policy.move_policy, rules=rules)))
        return measures(Replay(trace, policy, options).run())


def forgetful(policy: ProfilePolicy) -> ProfilePolicy:
    """Return the policy with a watcher that loses the past use of pods once."""
    moves = policy.move_policy
    assert isinstance(moves, CostMovePolicy)
    return replace(policy, move_policy=ForgetfulMovePolicy(**vars(moves)))


ROWS = (
    Row("as live"),
    Row("metrics five minutes late", windows=Windows(delay_minutes=5)),
    Row("past use lost after 36 hours", change=forgetful),
    Row("without levels", change=lambda policy: replace(policy, learns=False)),
    Row("start-up of 120 s", startup_seconds=120),
    Row("start-up of 600 s", startup_seconds=600),
)


def main(seeds: int, folders: list[Path]) -> None:
    """Print the table."""
    traces = [read_trace(folder) for folder in folders]

    def mean(row: Row, trace: Trace, name: str, measure: str = MEASURE) -> float:
        return fmean(row.replay(trace, policies(trace)[name], seed)[measure] for seed in range(seeds))

    edges = [(mean(ROWS[0], trace, DEFAULT), mean(ROWS[0], trace, CLAIRVOYANT)) for trace in traces]
    print("| knowledge | moves per hour | gap closed, % | moves | pod-minutes starting |\n|---|---|---:|---:|---:|")
    for row in ROWS:
        for name, rate in ((CONGESTION_MOVES, "0.1 %"), (CONGESTION_MORE_MOVES, "1 %")):
            runs = [[row.replay(trace, policies(trace)[name], seed) for seed in range(seeds)] for trace in traces]
            hot = [fmean(run[MEASURE] for run in of_trace) for of_trace in runs]
            gap = fmean(100 * (high - use) / (high - low) for (high, low), use in zip(edges, hot, strict=True))
            moves, starting = (
                fmean(run[key] for of_trace in runs for run in of_trace) for key in ("moves", "starting_pod_minutes")
            )
            print(f"| {row.title} | {rate} | {gap:.0f} | {moves:.0f} | {starting:.0f} |", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), list(map(Path, sys.argv[2:])))
