"""Moves of pods: the records that the ledger keeps for a day."""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from runtime.kubernetes.workloads import Workload


class MoveState(StrEnum):
    """State of a move."""

    PLANNED = "planned"
    """Recorded; the eviction may or may not have been requested."""
    EVICTED = "evicted"
    """The pod is evicted; its replacement is not Ready."""
    LANDED = "landed"
    """The replacement is Ready."""
    HELD = "held"
    """Planned and not made, to compare the gains of other moves with it."""
    REFUSED = "refused"
    """The eviction was refused, or was never requested."""
    LOST = "lost"
    """No replacement became Ready in time."""


OPEN_STATES = frozenset({MoveState.PLANNED, MoveState.EVICTED})
MADE_STATES = frozenset({MoveState.PLANNED, MoveState.EVICTED, MoveState.LANDED, MoveState.LOST})


@dataclass(frozen=True, slots=True)
class MoveRecord:
    """A move of a pod. All times are Unix seconds, 0 if the event has not happened.

    Attributes:
        uid: UID of the evicted pod.
        namespace, name: identity of the evicted pod.
        kind, workload: kind and name of its workload.
        revision: hash of the template that the evicted pod was created from.
        lineage: identity that the pod shares with its replacements, see :mod:`trimaran.rebalancer.lineage`.
        source, target: names of the node that the pod left and of the node planned for its replacement.
        state: state of the move.
        gain: predicted reduction of the cost.
        low: lower end of the 80 % interval of the gain in the next two hours, minutes of a hot node.
        planned_at, evicted_at, ready_at: times of the plan, of the eviction, and since which the replacement is Ready.
        replacement: UID of the replacement; "" if it is not known.
        landed_on: name of the replacement's node; "" if it has none.
        startup: time that the evicted pod took from its creation to Ready, seconds.
        cores: CPU use of the evicted pod in the quarter of an hour before the plan, cores.
        hidden: CPU that the pod may need in addition, because its node was saturated, cores.
        youngest: creation time of the youngest pod of the workload before the eviction; its replacement is younger.
        restarts_before, restarts: restarts of the evicted pod, and of its replacement.
        measured: measured reduction of the cost; None before it is measured.
        refusals: number of consecutive refused evictions of the lineage.
        wait: time after ``planned_at`` before which a refused move is not tried again, seconds.
        grace: time that the evicted pod may take to end, seconds.
        version: resource version of the pod after the request for its eviction: a watch of earlier
            versions does not show the outcome yet; 0 if unknown.
        excused: whether a person released the brake after the move was lost, so that it does not set the brake again.
    """

    uid: str
    namespace: str
    name: str
    kind: str
    workload: str
    revision: str
    lineage: str
    source: str
    target: str
    state: MoveState = MoveState.PLANNED
    gain: float = 0.0
    low: float = 0.0
    planned_at: float = 0.0
    evicted_at: float = 0.0
    ready_at: float = 0.0
    replacement: str = ""
    landed_on: str = ""
    startup: float = 0.0
    cores: float = 0.0
    hidden: float = 0.0
    youngest: float = 0.0
    restarts_before: int = 0
    restarts: int = 0
    measured: float | None = None
    refusals: int = 0
    wait: float = 0.0
    grace: float = 0.0
    version: int = 0
    excused: bool = False

    @property
    def key(self) -> tuple[str, float]:
        """Identity of the move: a pod whose eviction had no effect may be evicted again."""
        return self.uid, self.planned_at

    @property
    def of(self) -> Workload:
        """Workload of the pod."""
        return Workload(self.namespace, self.kind, self.workload)

    @property
    def node(self) -> str:
        """Name of the node that the replacement is on, or is planned for."""
        return self.landed_on or self.target

    @property
    def is_open(self) -> bool:
        """True while the replacement is awaited: it is not Ready, and the move has not failed."""
        return self.state in OPEN_STATES

    @property
    def is_made(self) -> bool:
        """True if the pod was or may have been evicted, so that the move counts for the caps."""
        return self.state in MADE_STATES

    def changed(self, **fields: Any) -> "MoveRecord":
        """Return a copy of the record with the given fields changed."""
        return replace(self, **fields)
