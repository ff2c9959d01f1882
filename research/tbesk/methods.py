"""Placement methods of the TBESK paper by name: the rules of schedulers, CWT, the fitness as a rule, BES and TBESK."""

from collections.abc import Mapping
from functools import partial
from typing import Final

from research.tbesk.bald_eagle import bald_eagle_search, tbesk, tbesk_original
from research.tbesk.fitness import fitness_rule
from research.tbesk.metaheuristics import place_by_metaheuristic
from research.tbesk.topsis import cwt_topsis
from trimaran.planning.methods import BASELINES, Method
from trimaran.planning.rules import place_by_rule

METHODS: Final[Mapping[str, Method]] = {
    **BASELINES,
    "cwt": lambda problem, _rng: place_by_rule(problem, cwt_topsis),
    "fitness": lambda problem, _rng: place_by_rule(problem, fitness_rule),
    "bes": partial(place_by_metaheuristic, optimizer=bald_eagle_search),
    "tbesk": partial(place_by_metaheuristic, optimizer=tbesk),
    "tbesk-original": partial(place_by_metaheuristic, optimizer=tbesk_original),
}
