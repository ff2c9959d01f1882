"""Comparison of optimizers: the paper's second table, and Wilcoxon's test over many seeds."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np
from scipy.stats import wilcoxon

from research.tbesk.functions import FUNCTIONS, shifted
from research.tbesk.swarms import particle_swarm, satin_bowerbird, sparrow_search
from trimaran.planning.bald_eagle import bald_eagle_search, tbesk, tbesk_original
from trimaran.planning.objective import Objective, Optimizer

#: TBESK with both third stages, and its rivals in the paper's second table.
OPTIMIZERS: Final[Mapping[str, Optimizer]] = {
    "TBESK (paper)": tbesk,
    "TBESK (original)": tbesk_original,
    "BES": bald_eagle_search,
    "tSSA": sparrow_search,
    "tSBO": satin_bowerbird,
    "tPSO": particle_swarm,
}
Runs = Mapping[str, Mapping[str, Sequence[Objective]]]
"""Minimized objectives by function and optimizer, one for each seed."""
_SHIFT: Final = 1_000_003  # keeps the position of a shifted minimum independent of the first positions
_CONVERGED: Final = 1e-8  # smaller improvements do not count


def compare(
    seeds: Sequence[int], *, evaluations: float = np.inf, seconds: float = np.inf, dimensions: int = 30
) -> Runs:
    """Run every optimizer on every function, plain and shifted, with equal budgets.

    Args:
        seeds: seed of each run; it also determines the position of a shifted minimum.
        evaluations: budget of a run.
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
    """Return the number of rounds after which the lowest value improved by less than 1e-8."""
    return int((np.asarray(trace) <= trace[-1] + _CONVERGED).argmax()) + 1 if trace else 0


def contests(runs: Runs, champion: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield each function with the result of Wilcoxon's signed-rank test of one optimizer against each other.

    A result reads "wins-losses verdict": the number of seeds with a lower and with a higher value than the rival's, and
    ``better``, ``worse`` or ``alike`` at the level of 5 %.
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
