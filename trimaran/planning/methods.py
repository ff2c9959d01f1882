"""Placement methods by name."""

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np

from scoring.arrays import Int64s
from trimaran.planning.problem import Problem
from trimaran.planning.rules import balanced_resources, least_requested, place_by_rule

Method = Callable[[Problem, np.random.Generator], Int64s]
"""Function from a problem and a random number generator to a plan."""

LOCAL_SEARCH: Final = "local-search"
EXACT: Final = "milp"
#: Methods to compare a plan with, which are neither :data:`LOCAL_SEARCH` nor :data:`EXACT`.
BASELINES: Final[Mapping[str, Method]] = {
    "lra": lambda problem, _rng: place_by_rule(problem, least_requested, columns=2),
    "bra": lambda problem, _rng: place_by_rule(problem, balanced_resources, columns=2),
}
