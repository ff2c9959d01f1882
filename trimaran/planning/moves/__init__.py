"""Plans for moving running pods: arrays in, moves out. The simulator and a live rebalancer use the same code."""

from trimaran.planning.moves.costs import MoveCosts
from trimaran.planning.moves.gains import GainRule
from trimaran.planning.moves.planner import Move, MovePlanner
from trimaran.planning.moves.problem import MoveProblem

__all__ = ["GainRule", "Move", "MoveCosts", "MovePlanner", "MoveProblem"]
