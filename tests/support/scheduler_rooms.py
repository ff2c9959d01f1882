"""Filter by free resources, and the decisions of a scheduler, for tests of its state machine."""

from runtime.kubernetes.objects import Pod
from scoring import NodeTable
from scoring.plugins.base import EVERY_ROW, Rows
from scoring.plugins.filtering import FilterPlugin, FilterVerdict
from trimaran.scheduler.framework.decisions import Decision
from trimaran.scheduler.framework.scheduler import Scheduler


class Room(FilterPlugin):
    """Free resources, by the table."""

    name = "Room"
    counts_nominated = True

    def filter(self, pod: Pod, nodes: NodeTable, rows: Rows = EVERY_ROW) -> FilterVerdict:
        """Return the nodes with room for the pod."""
        return FilterVerdict(nodes.feasible(pod)[rows], "Insufficient cpu")


def decisions(scheduler: Scheduler, now: float) -> list[Decision]:
    """Return all decisions that are due."""
    made = []
    while (decision := scheduler.next(now)) is not None:
        made.append(decision)
        assert len(made) < 10_000, "the scheduler tries pods without end"
    return made
