"""Optimizers compared: the paper's second table, and Wilcoxon's test over many seeds."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import wilcoxon

from research.tbesk.functions import FUNCTIONS, Benchmark, shifted
from research.tbesk.swarms import ParticleSwarm, SatinBowerbird, SparrowSearch
from scoring.arrays import Float64s
from trimaran.planning.bald_eagle import BaldEagleSearch, tbesk
from trimaran.planning.objective import Objective, Optimizer

#: TBESK in both readings of its third stage, and the rivals of the paper's second table.
OPTIMIZERS: tuple[Optimizer, ...] = (
    tbesk("paper"),
    tbesk("original"),
    BaldEagleSearch(),
    SparrowSearch(),
    SatinBowerbird(),
    ParticleSwarm(),
)
_SHIFT = 1_000_003  # so that where the lowest point is has nothing to do with where birds start


@dataclass(frozen=True, eq=False)
class Runs:
    """What one optimizer reached on one function, a run for each seed.

    Attributes:
        optimizer: its name.
        function: its name, with ``shifted`` behind it where it is.
        values: the lowest value of each run, shape (seeds,).
        rounds: after how many rounds each had it, shape (seeds,).
        evaluations: how many each asked for, shape (seeds,).
    """

    optimizer: str
    function: str
    values: Float64s
    rounds: Float64s
    evaluations: Float64s


def compare(
    seeds: Sequence[int],
    *,
    evaluations: float = np.inf,
    seconds: float = np.inf,
    dimensions: int = 30,
    optimizers: Sequence[Optimizer] = OPTIMIZERS,
    progress: Callable[[], None] = lambda: None,
) -> list[Runs]:
    """Run every optimizer on every function, plain and shifted, with equal budgets.

    Args:
        seeds: a run for each; it says what is random, and where a shifted function's lowest point is.
        evaluations: the budget of a run.
        seconds: of the processor, the other budget of a run.
        dimensions: of the functions.
        optimizers: which.
        progress: called after each run.
    """
    found = []
    for name, benchmark in FUNCTIONS.items():
        for is_shifted in (False, True):
            for optimizer in optimizers:
                objectives = []
                for seed in seeds:
                    moved = shifted(benchmark, dimensions, seed + _SHIFT) if is_shifted else benchmark
                    objectives.append(_run(optimizer, moved, dimensions, evaluations, seconds, seed))
                    progress()
                found.append(
                    Runs(
                        optimizer.name,
                        f"{name}, shifted" if is_shifted else name,
                        np.array([each.best for each in objectives]),
                        np.array([each.iterations_to_converge for each in objectives], np.float64),
                        np.array([each.asked for each in objectives], np.float64),
                    )
                )
    return found


@dataclass(frozen=True)
class Contest:
    """Wilcoxon's signed-rank test of one optimizer against another, paired by seed.

    Attributes:
        function: on which they met.
        rival: against which.
        wins: seeds in which the first was lower.
        losses: seeds in which it was higher.
        p: how likely so much of a difference is where there is none; 1 where all pairs are equal.
    """

    function: str
    rival: str
    wins: int
    losses: int
    p: float

    @property
    def verdict(self) -> str:
        """``better``, ``worse`` or ``alike``, at the level of 5 %."""
        if self.p >= 0.05:
            return "alike"
        return "better" if self.wins > self.losses else "worse"


def contests(runs: Sequence[Runs], champion: str) -> list[Contest]:
    """Test one optimizer against every other, function by function.

    Raises:
        ValueError: there are no runs of it.
    """
    own = {each.function: each.values for each in runs if each.optimizer == champion}
    if not own:
        raise ValueError(f"there are no runs of {champion!r}")
    found = []
    for rival in runs:
        if rival.optimizer == champion:
            continue
        difference = own[rival.function] - rival.values
        p = float(wilcoxon(difference).pvalue) if difference.any() else 1.0
        wins, losses = int((difference < 0).sum()), int((difference > 0).sum())
        found.append(Contest(rival.function, rival.optimizer, wins, losses, p))
    return found


def _run(
    optimizer: Optimizer, benchmark: Benchmark, dimensions: int, evaluations: float, seconds: float, seed: int
) -> Objective:
    objective = Objective(
        benchmark.function, benchmark.low, benchmark.high, dimensions, evaluations=evaluations, seconds=seconds
    )
    optimizer.minimize(objective, np.random.default_rng(seed))
    return objective
