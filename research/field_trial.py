"""Study of the field trial (``extender.mode = trial``): errors, power, dilution and stops, in replays.

Each replay of a synthetic world alternates two policies by the schedule of a trial, and the trial's own code measures
the blocks and judges them. The script prints three tables:

A/A         both policies are the default scheduler: trials that find an effect, trials that stop, and trials that find
            a planted effect, for which an outcome of the active blocks is lowered by a percentage
dilution    difference that the trial measures, as a share of the difference between always acting and never acting
harm        policies that fill nodes up or choose at random: blocks until the trial stops

Trials of the first table differ in the world, and in the trial's name and thus in the order of the blocks.

    python research/field_trial.py [--worlds N] [--hours N] [--names N] [--jobs N]
"""

import argparse
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

import joblib
import numpy as np

from runtime.kubernetes.objects import Pod
from scoring.arrays import Int64s
from trimaran.extender.trial.effects import effect
from trimaran.extender.trial.harm import harm
from trimaran.extender.trial.outcomes import HOT, BlockRecord, BlockSampler, BoundPod, LoadThresholds
from trimaran.extender.trial.schedule import TrialSchedule
from trimaran.extender.trial.state import TrialPlan
from trimaran.simulator.cluster import Cluster
from trimaran.simulator.policies.catalogue import DEFAULT, policies
from trimaran.simulator.policy import Chooser, Policy
from trimaran.simulator.replay import Replay, ReplayOptions, ReplayOutcome
from trimaran.simulator.simulated_watcher import SimulatedWatcher
from trimaran.simulator.windows import Windows, unix_seconds
from trimaran.traces.synthetic import Synthetic
from trimaran.traces.trace import Trace

ACTIVE, HARMFUL = "load-variation-risk-balancing", ("hottest-node", "most-allocated", "random")
MARGIN = TrialPlan().harm_points
FACTORS = (0.9, 0.8, 0.5)
BLOCK_MINUTES = (30, 60, 120)
#: Share of the use that is due to jobs, which live for minutes; services live for days.
JOBS_SHARES = (0.2, 0.5, 0.9)
_WINDOWS = Windows()
_WARM_UP_MINUTES = 360


@dataclass(frozen=True)
class Alternating:
    """Policy that places pods by one of two policies, according to the schedule of a trial.

    Attributes:
        schedule: the trial's schedule.
        active: policy of the active blocks.
        shadow: policy of the other blocks.
        name: the policy's name in reports.
        move_policy: None: running pods are not moved.
    """

    schedule: TrialSchedule
    active: Policy
    shadow: Policy
    name: str = "field-trial"
    move_policy: None = None

    def begin(self, cluster: Cluster, watcher: SimulatedWatcher, rng: np.random.Generator) -> "AlternatingChooser":
        """Return a chooser for one replay."""
        return AlternatingChooser(self, cluster, watcher, rng)


@dataclass(frozen=True)
class HottestNode:
    """Policy that places each pod on the feasible node with the highest load, as a planted harm.

    Attributes:
        name: the policy's name in reports.
        move_policy: None: running pods are not moved.
    """

    name: str = "hottest-node"
    move_policy: None = None

    def begin(self, cluster: Cluster, watcher: SimulatedWatcher, rng: np.random.Generator) -> "HottestNodeChooser":
        """Return a chooser for one replay."""
        return HottestNodeChooser(cluster, watcher, rng)


class HottestNodeChooser:
    """Choices of :class:`HottestNode` in one replay."""

    def __init__(self, cluster: Cluster, watcher: SimulatedWatcher, _rng: np.random.Generator) -> None:
        self._cluster, self._watcher = cluster, watcher

    def admit(self, number: int) -> Pod:
        """Return a new pod as it enters the queue."""
        return self._cluster.pod(number)

    def choose(self, _number: int, _pod: Pod, candidates: Int64s) -> int:
        """Return the row of the hottest candidate."""
        loads, names = self._watcher.loads(), self._cluster.nodes.names
        return int(max(candidates.tolist(), key=lambda row: loads.get(names[row], 0.0)))


class AlternatingChooser:
    """Choices of an :class:`Alternating` policy in one replay."""

    def __init__(
        self, policy: Alternating, cluster: Cluster, watcher: SimulatedWatcher, rng: np.random.Generator
    ) -> None:
        self._schedule, self._cluster = policy.schedule, cluster
        self._active: Chooser = policy.active.begin(cluster, watcher, rng)
        self._shadow: Chooser = policy.shadow.begin(cluster, watcher, rng)

    def admit(self, number: int) -> Pod:
        """Return a new pod as it enters the queue."""
        return self._shadow.admit(number)

    def choose(self, number: int, pod: Pod, candidates: Int64s) -> int:
        """Return the row of the node to place a pod on."""
        is_active = self._schedule.block_at(self._cluster.now).active
        return (self._active if is_active else self._shadow).choose(number, pod, candidates)


def block_records(outcome: ReplayOutcome, schedule: TrialSchedule) -> list[BlockRecord]:
    """Return the blocks of a replay after its warm-up, as the extender would measure them."""
    cluster, trace = outcome.cluster, outcome.cluster.trace
    numbers = np.arange(len(trace.nodes))
    bound: dict[int, list[BoundPod]] = defaultdict(list)
    for run in cluster.pod_runs:
        created_at, bound_at = unix_seconds(int(trace.arrival_minute[run.pod])), unix_seconds(run.start)
        bound[run.start].append(BoundPod(trace.nodes[run.node], created_at, bound_at))
    records: list[BlockRecord] = []
    sampler: BlockSampler | None = None
    for minute in range(trace.warm_up_minutes, trace.minutes):
        if sampler is not None:
            sampler.add_snapshot(_WINDOWS.snapshot(trace.nodes, cluster.ledger, numbers, minute))
        block = schedule.block_at(unix_seconds(minute))
        if sampler is None or sampler.block != block:
            record = None if sampler is None else sampler.record()
            records += [] if record is None else [record]
            sampler = BlockSampler(block, LoadThresholds())
        for pod in bound[minute]:
            sampler.add_bound(pod)
    return records


def renamed(records: Sequence[BlockRecord], schedule: TrialSchedule) -> list[BlockRecord]:
    """Return the blocks of an A/A trial as a trial with another schedule would have recorded them."""
    return [replace(record, active=schedule.block(record.number).active) for record in records]


def planted(records: Sequence[BlockRecord], outcome: str, factor: float) -> list[BlockRecord]:
    """Return blocks with an outcome of the active blocks multiplied by a factor."""
    return [
        replace(record, outcomes={**record.outcomes, outcome: factor * record.outcomes[outcome]})
        if record.active and outcome in record.outcomes
        else record
        for record in records
    ]


def is_found(records: Sequence[BlockRecord], outcome: str) -> bool:
    """Return whether the interval of an outcome's effect does not contain 0."""
    found = effect(records, outcome)
    return found is not None and found.low is not None and found.high is not None and not found.low <= 0 <= found.high


def blocks_until_stop(records: Sequence[BlockRecord], margin: float) -> int | None:
    """Return the number of blocks after which a trial stops; None if it does not stop."""
    whole = [record for record in records if any(each.number == record.number ^ 1 for each in records)]
    for count in range(2, len(whole) + 1, 2):
        if harm(whole[:count], margin):
            return count
    return None


def world(seed: int, jobs_share: float, hours: int, nodes: int = 60) -> Trace:
    """Return a synthetic world that is hot under the default scheduler."""
    return Synthetic(
        seed=seed, nodes=nodes, minutes=_WARM_UP_MINUTES + 60 * hours, warm_up_minutes=_WARM_UP_MINUTES,
        mean_use=0.65, jobs_share=jobs_share, requested=0.8,
    ).trace()  # fmt: skip


def trial_of(trace: Trace, schedule: TrialSchedule, active: str) -> list[BlockRecord]:
    """Return the blocks of a trial that alternates a policy with the default scheduler."""
    known = {**policies(trace), HottestNode.name: HottestNode()}
    policy = Alternating(schedule, known[active], known[DEFAULT])
    return block_records(Replay(trace, policy, ReplayOptions()).run(), schedule)


def always(trace: Trace, policy: str) -> dict[int, list[BlockRecord]]:
    """Return the blocks of a replay under one policy, by the length of the blocks in minutes."""
    outcome = Replay(trace, policies(trace)[policy], ReplayOptions()).run()
    return {minutes: block_records(outcome, TrialSchedule("always", 60 * minutes)) for minutes in BLOCK_MINUTES}


def a_a_row(worlds: Sequence[Sequence[BlockRecord]], names: int) -> tuple[int, list[float]]:
    """Return the number of A/A trials, and the shares that find an effect, stop, and find each planted effect."""
    rows = []
    for records in worlds:
        for number in range(names):
            trial = renamed(records, TrialSchedule(f"trial-{number}"))
            stops = blocks_until_stop(trial, MARGIN) is not None
            found = [is_found(planted(trial, HOT, factor), HOT) for factor in FACTORS]
            rows.append([is_found(trial, HOT), stops, *found])
    return len(rows), np.mean(rows, axis=0).tolist()


def dilution(trace: Trace, minutes: int, never: Sequence[BlockRecord], acting: Sequence[BlockRecord]) -> list[float]:
    """Return the full difference in hot node-minutes, and the difference that a trial measures.

    Blocks are compared with the same blocks of the replay that never acts, which takes out most of their noise.
    """
    known = {record.number: record.outcomes[HOT] for record in never}
    trial = trial_of(trace, TrialSchedule("dilution", 60 * minutes), ACTIVE)
    full, active, shadow = (
        float(np.mean([record.outcomes[HOT] - known[record.number] for record in records]))
        for records in (acting, [each for each in trial if each.active], [each for each in trial if not each.active])
    )
    return [full, active - shadow]


def replay_world(seed: int, jobs_share: float, hours: int) -> dict[int, tuple[list[BlockRecord], list[float]]]:
    """Return the blocks under the default scheduler and the dilution, by the length of the blocks in minutes."""
    trace = world(seed, jobs_share, hours)
    never, acting = always(trace, DEFAULT), always(trace, ACTIVE)
    return {
        minutes: (never[minutes], dilution(trace, minutes, never[minutes], acting[minutes]))
        for minutes in BLOCK_MINUTES
    }


def replay_harm(seed: int, policy: str, minutes: int) -> int | None:
    """Return the number of blocks after which a trial of a harmful policy stops; None if it lasts for 12 hours."""
    trial = trial_of(world(seed, 0.5, 12), TrialSchedule(f"harm-{seed}", 60 * minutes), policy)
    return blocks_until_stop(trial, MARGIN)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worlds", type=int, default=3, help="number of worlds for each share of jobs")
    parser.add_argument("--hours", type=int, default=72)
    parser.add_argument("--names", type=int, default=67, help="number of trials for each world")
    parser.add_argument("--jobs", type=int, default=1)
    arguments = parser.parse_args()
    run, seeds = joblib.Parallel(arguments.jobs, verbose=5), range(1, arguments.worlds + 1)
    kinds = list(product(JOBS_SHARES, seeds))
    results = run(joblib.delayed(replay_world)(seed, share, arguments.hours) for share, seed in kinds)
    replayed = dict(zip(kinds, results, strict=True))
    tried = list(product(HARMFUL, (30, 60)))
    stops = run(joblib.delayed(replay_harm)(seed, *each) for each in tried for seed in seeds)
    columns = " | ".join(f"finds {100 * factor - 100:.0f} %" for factor in FACTORS)
    print(f"| block | trials | pairs | finds an effect | stops | {columns} |\n|---|" + "---:|" * (4 + len(FACTORS)))
    for minutes in BLOCK_MINUTES:
        worlds = [result[minutes][0] for result in results]
        count, shares = a_a_row(worlds, arguments.names)
        cells = " | ".join(f"{100 * share:.1f} %" for share in shares)
        print(f"| {minutes} min | {count} | {len(worlds[0]) // 2} | {cells} |")
    print("\n| use by jobs | block | full difference | measured | share |\n|---|---|---:|---:|---:|")
    for share, minutes in product(JOBS_SHARES, BLOCK_MINUTES):
        full, measured = np.mean([replayed[share, seed][minutes][1] for seed in seeds], axis=0).tolist()
        print(f"| {share:.0%} | {minutes} min | {full:+.2f} | {measured:+.2f} | {measured / full:.0%} |")
    print("\n| harm | block | blocks until the stop |\n|---|---|---|")
    for number, (policy, minutes) in enumerate(tried):
        found = stops[number * len(seeds) : (number + 1) * len(seeds)]
        print(f"| {policy} | {minutes} min | {', '.join(str(each or 'none') for each in found)} |")


if __name__ == "__main__":
    main()
