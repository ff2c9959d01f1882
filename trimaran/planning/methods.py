"""Placement methods by name."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

import numpy as np

from scoring.arrays import Int64s
from trimaran.planning.bald_eagle import bald_eagle_search, tbesk, tbesk_original
from trimaran.planning.fitness import fitness_rule
from trimaran.planning.metaheuristics import place_by_metaheuristic
from trimaran.planning.problem import Problem
from trimaran.planning.rules import balanced_resources, cwt_topsis, least_requested, place_by_rule

Method = Callable[[Problem, np.random.Generator], Int64s]
"""Function from a problem and a random number generator to a plan."""

LOCAL_SEARCH: Final = "local-search"
SOLVER: Final = "milp"
#: Methods to compare a plan with, which are neither :data:`LOCAL_SEARCH` nor :data:`SOLVER`.
BASELINES: Final[Mapping[str, Method]] = {
    "lra": lambda problem, _rng: place_by_rule(problem, least_requested, columns=2),
    "bra": lambda problem, _rng: place_by_rule(problem, balanced_resources, columns=2),
    "cwt": lambda problem, _rng: place_by_rule(problem, cwt_topsis),
    "fitness": lambda problem, _rng: place_by_rule(problem, fitness_rule),
    "bes": partial(place_by_metaheuristic, optimizer=bald_eagle_search),
    "tbesk": partial(place_by_metaheuristic, optimizer=tbesk),
    "tbesk-original": partial(place_by_metaheuristic, optimizer=tbesk_original),
}
