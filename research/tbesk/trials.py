"""Comparison of optimizers on benchmark functions, for table 2 of the TBESK paper and for Wilcoxon's test."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np
from scipy.stats import wilcoxon

from research.tbesk.bald_eagle import bald_eagle_search, tbesk, tbesk_original
from research.tbesk.functions import FUNCTIONS, shifted
from research.tbesk.objective import Objective, Optimizer
from research.tbesk.swarms import particle_swarm, satin_bowerbird, sparrow_search

#: TBESK with the third stage as the TBESK paper prints it and as in the original BES, and its rivals in table 2.
OPTIMIZERS: Final[Mapping[str, Optimizer]] = {
    "TBESK (paper)": tbesk,
    "TBESK (original)": tbesk_original,
    "BES": bald_eagle_search,
    "tSSA": sparrow_search,
    "tSBO": satin_bowerbird,
    "tPSO": particle_swarm,
}
Runs = Mapping[str, Mapping[str, Sequence[Objective]]]
"""Results by function and optimizer: for each seed an objective, after it was minimized."""
_SHIFT: Final = 1_000_003  # keeps the position of a shifted minimum independent of the first positions
_CONVERGED: Final = 1e-8  # smaller improvements do not count


def compare(
    seeds: Sequence[int], *, evaluations: float = np.inf, seconds: float = np.inf, dimensions: int = 30
) -> Runs:
    """Run every optimizer on every benchmark function, plain and shifted, with equal budgets.

    Args:
        seeds: seed of each run; it also determines the position of a shifted minimum.
        evaluations: budget of a run in evaluations of the function.
        seconds: budget of a run in processor seconds.
        dimensions: number of dimensions of the functions.
    """
    runs: dict[str, dict[str, list[Objective]]] = {}
    for name, plain in FUNCTIONS.items():
        for suffix in ("", ", shifted"):
            of_function = runs[name + suffix] = {optimizer: [] for optimizer in OPTIMIZERS}
            for optimizer, objectives in of_function.items():
                for seed in seeds:
                    function, low, high = shifted(plain, dimensions, seed + _SHIFT) if suffix else plain
                    objective = Objective(function, low, high, dimensions, evaluations=evaluations, seconds=seconds)
                    OPTIMIZERS[optimizer](objective, np.random.default_rng(seed))
                    objectives.append(objective)
    return runs


def rounds_to_converge(trace: Sequence[float]) -> int:
    """Return the number of the first round after which the lowest value fell by at most 1e-8 until the end.

    Args:
        trace: lowest value after each round.
    """
    return int((np.asarray(trace) <= trace[-1] + _CONVERGED).argmax()) + 1 if trace else 0


def contests(runs: Runs, champion: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Compare an optimizer with each other optimizer by Wilcoxon's signed-rank test, for each function.

    Args:
        runs: minimized objectives.
        champion: name of the optimizer to compare with the others.

    Yields:
        The name of a function, and the result by the other optimizer's name. A result such as "20-10 better" has the
        number of seeds for which the champion found a lower and a higher value, and ``better``, ``worse`` or, if the
        difference is not significant at 5 %, ``alike``.
    """
    for function, objectives in runs.items():
        values = {name: np.array([run.best for run in own]) for name, own in objectives.items()}
        results = {}
        for rival in (name for name in values if name != champion):
            difference = values[champion] - values[rival]
            wins, losses = int((difference < 0).sum()), int((difference > 0).sum())
            alike = not difference.any() or wilcoxon(difference).pvalue >= 0.05
            verdict = "alike" if alike else "better" if wins > losses else "worse"
            results[rival] = f"{wins}-{losses} {verdict}"
        yield function, results
