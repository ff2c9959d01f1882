"""Outcome of live runs, compared with the simulator's replays of the same trace under the same policy."""

import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from movers import LOW_NODE_UTILIZATION, MOVES_PERCENT
from scipy import stats

from trimaran.rebalancer.moves import MoveState
from trimaran.simulator.measures import hot_minutes
from trimaran.simulator.moving.by_cost import CostMovePolicy
from trimaran.simulator.moving.low_node_utilization import LowNodeUtilization
from trimaran.simulator.policies.catalogue import DEFAULT, policies
from trimaran.simulator.policies.profiles import ProfilePolicy
from trimaran.simulator.policy import Policy
from trimaran.simulator.replay import Replay, ReplayOptions, ReplayOutcome
from trimaran.traces.reading import read_trace
from trimaran.traces.trace import Trace

HOT_PERCENT = 80
MEASURE = f"hot_minutes_{HOT_PERCENT}"
LEAST_RATIO, MOST_RATIO = 0.85, 1.15
_UNLIMITED_PERCENT = 10_000.0  # per hour: the descheduler has limits by node and run only


@dataclass(frozen=True)
class LiveOutcome:
    """Outcome of a live run.

    Attributes:
        world: name of the trace.
        policy: the policy.
        live: hot minutes of the live run.
        simulated: hot minutes of the simulator's replays, one for each seed.
        moves: moved pods of the live run.
        simulated_moves: moved pods of the replays, one number for each seed.
        on_target: replacements that landed on the node that the rebalancer planned, and all replacements.
    """

    world: str
    policy: str
    live: float
    simulated: tuple[float, ...]
    moves: float = 0.0
    simulated_moves: tuple[int, ...] = (0,)
    on_target: tuple[int, int] = (0, 0)

    @property
    def ratio(self) -> float:
        """Live hot minutes over the mean of the simulated ones, which must not be 0."""
        return self.live / float(np.mean(self.simulated))


def read_outcomes(folders: Iterable[Path], seeds: int = 8) -> list[LiveOutcome]:
    """Return the outcomes of live runs in folders, without those that were not in time.

    A trace is replayed once for each policy.

    Args:
        folders: folders of live runs, ``WORLD/POLICY/RUN``.
        seeds: number of the simulator's seeds.
    """
    simulated: dict[tuple[str, str], list[ReplayOutcome]] = {}
    outcomes = []
    for folder in folders:
        document = orjson.loads((folder / "outcome.json").read_bytes())
        if not document["in_time"]:
            print(f"{folder}: left out, since the machine was too slow", file=sys.stderr)
            continue
        policy, world = document["policy"], document["world"]
        if (world, policy) not in simulated:
            trace = read_trace(folder / "world")
            simulated[world, policy] = [
                Replay(trace, simulated_policy(trace, policy), ReplayOptions(seed=seed)).run() for seed in range(seeds)
            ]
        replays, live = simulated[world, policy], document["measures"]
        hot = tuple(hot_minutes(replay, HOT_PERCENT) for replay in replays)
        moves = tuple(replay.moves for replay in replays)
        outcomes.append(LiveOutcome(world, policy, live[MEASURE], hot, live["moves"], moves, on_target(folder)))
    return outcomes


def on_target(folder: Path) -> tuple[int, int]:
    """Return how many replacements of a live run landed on the planned node, and how many there are."""
    file = folder / "rebalancer.json"
    moves = orjson.loads(file.read_bytes())["status"]["moves"] if file.exists() else []
    landed = [move for move in moves if move["state"] == MoveState.LANDED]
    return sum(move["landed_on"] == move["target"] for move in landed), len(landed)


def simulated_policy(trace: Trace, name: str) -> Policy:
    """Return the simulator's policy for one of a live run, with moves from the first minute with enough past use."""
    placement, _, mover = name.partition("+")
    policy = policies(trace)[placement]
    if not mover:
        return policy
    assert isinstance(policy, ProfilePolicy)
    if mover == LOW_NODE_UTILIZATION:
        return replace(policy, move_policy=LowNodeUtilization(_UNLIMITED_PERCENT, after_minutes=0))
    return replace(policy, move_policy=CostMovePolicy(MOVES_PERCENT[mover], after_minutes=0))


def summary(outcomes: Sequence[LiveOutcome]) -> dict[str, Any]:
    """Return the ratios of each policy with their means and 95 % intervals, and the differences from ``default``."""
    by_policy: dict[str, list[LiveOutcome]] = defaultdict(list)
    for outcome in outcomes:
        by_policy[outcome.policy].append(outcome)
    result: dict[str, Any] = {}
    default = _by_world(by_policy.get(DEFAULT, ()))
    for policy, those in by_policy.items():
        ratio = interval([outcome.ratio for outcome in those])
        rows = [
            {
                "world": each.world,
                "live": each.live,
                "simulated": round(float(np.mean(each.simulated)), 1),
                "seed_deviation": round(float(np.std(each.simulated)), 1),
                "ratio": round(each.ratio, 3),
                **moves_of(each),
            }
            for each in those
        ]
        passes = all(LEAST_RATIO <= each <= MOST_RATIO for each in ratio if each is not None)
        result[policy] = {"ratio": ratio, "passes": passes, "runs": rows}
        if policy != DEFAULT and default:
            # Runs of a world are interchangeable: the mean of the default scheduler's stands against each.
            differences = [
                100 * (each.live / float(np.mean(default[each.world])) - 1) for each in those if each.world in default
            ]
            difference = result[policy]["percent_from_default"] = interval(differences)
            result[policy]["better_than_default"] = difference[2] is not None and difference[2] < 0
    return result


def moves_of(outcome: LiveOutcome) -> dict[str, Any]:
    """Return the moves of a run as a JSON object; empty if no policy moved pods."""
    if not outcome.moves and not any(outcome.simulated_moves):
        return {}
    simulated = round(float(np.mean(outcome.simulated_moves)), 1)
    return {"moves": outcome.moves, "simulated_moves": simulated, "on_target": outcome.on_target}


def interval(values: Sequence[float]) -> tuple[float, float | None, float | None]:
    """Return the mean of some runs and its 95 % interval by Student's t; a single run has no interval."""
    mean = float(np.mean(values))
    if len(values) < 2:
        return mean, None, None
    half = float(stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values)))
    return mean, mean - half, mean + half


def _by_world(outcomes: Iterable[LiveOutcome]) -> Mapping[str, list[float]]:
    result: dict[str, list[float]] = defaultdict(list)
    for outcome in outcomes:
        result[outcome.world].append(outcome.live)
    return result
