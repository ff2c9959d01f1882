"""Lineages: a pod and the pods that replace it after evictions, whatever their names and UIDs are.

Cooldowns apply to lineages: by UID, a replacement would look like a new pod, and could be moved again at once.

    StatefulSet     namespace, kind, workload and ordinal: the replacement has the same name
    Deployment      UID of the first evicted pod; a replacement is a pod of the same workload and revision that was
                    created after the eviction, each for one move, the oldest pod for the oldest move. Creation times
                    are compared with each other only, as clocks of other machines differ
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from runtime.kubernetes.objects import Pod
from runtime.kubernetes.workloads import Workload, revision_of
from trimaran.rebalancer.caps import DAY
from trimaran.rebalancer.facts import PodFacts
from trimaran.rebalancer.moves import MoveRecord, MoveState
from trimaran.rebalancer.rules import Cooldowns

STATEFUL_SET = "StatefulSet"


class Member(NamedTuple):
    """Member of a lineage: a pod and its :class:`PodFacts`."""

    pod: Pod
    facts: PodFacts


def lineage_of(pod: Pod, lineages: Mapping[str, str]) -> str:
    """Return the identity that a pod shares with the pods that it replaces.

    Args:
        pod: the pod.
        lineages: lineage of each replacement of the past day, by UID.
    """
    if pod.workload is not None and pod.workload.kind == STATEFUL_SET:
        return f"{pod.namespace}/{STATEFUL_SET}/{pod.name}"
    return lineages.get(pod.uid, pod.uid)


def replacements(
    records: Sequence[MoveRecord], members: Mapping[Workload, Sequence[Member]]
) -> Iterator[tuple[MoveRecord, Member]]:
    """Yield the record of each evicted pod with the pod that replaces it; without a replacement nothing.

    Args:
        records: moves of the past day.
        members: all pods of the workloads that have an evicted pod, by workload.
    """
    claimed = {record.replacement for record in records if record.replacement}
    evicted = sorted((each for each in records if each.state == MoveState.EVICTED), key=lambda each: each.evicted_at)
    waiting: dict[tuple[Workload, str], list[MoveRecord]] = defaultdict(list)
    for record in evicted:
        waiting[(record.of, record.revision)].append(record)
    for (workload, revision), moves in waiting.items():
        pods = sorted(members.get(workload, ()), key=lambda each: (each.facts.created_at, each.pod.name))
        present = {each.pod.uid: each for each in pods}
        for record in moves:
            found = present.get(record.replacement) if record.replacement else None
            if found is None:
                found = next((each for each in pods if _replaces(each, record, revision, claimed)), None)
            if found is not None:
                claimed.add(found.pod.uid)
                yield record, found


def _replaces(member: Member, record: MoveRecord, revision: str, claimed: "set[str]") -> bool:
    pod, facts = member
    if pod.uid == record.uid or pod.uid in claimed or facts.created_at <= record.youngest:
        return False
    if record.kind == STATEFUL_SET:
        return pod.name == record.name
    return revision_of(pod.labels) == revision


class CooldownClock:
    """Ends of the cooldowns of pods, workloads and nodes after the moves of the past day.

    Args:
        cooldowns: lengths of the pauses.
        records: moves of the past day.
    """

    def __init__(self, cooldowns: Cooldowns, records: Iterable[MoveRecord]) -> None:
        self._cooldowns = cooldowns
        self._moves: dict[str, list[float]] = defaultdict(list)
        self._held: dict[str, float] = {}
        self._refused: dict[str, float] = {}
        self._workloads: dict[Workload, float] = {}
        self._sources: dict[str, float] = {}
        self._targets: dict[str, float] = {}
        for record in records:
            at = max(record.planned_at, record.evicted_at, record.ready_at)
            if record.is_made:
                self._moves[record.lineage].append(at)
                _latest(self._workloads, record.of, at)
                _latest(self._sources, record.source, at)
                _latest(self._targets, record.node, at)
            elif record.state == MoveState.HELD:
                _latest(self._held, record.lineage, at)
            else:
                _latest(self._refused, record.lineage, record.planned_at + record.wait)

    def add(self, record: MoveRecord) -> None:
        """Count a move that begins now."""
        self._moves[record.lineage].append(record.planned_at)
        _latest(self._workloads, record.of, record.planned_at)
        _latest(self._sources, record.source, record.planned_at)
        _latest(self._targets, record.target, record.planned_at)

    def pod_until(self, lineage: str) -> float:
        """Return the Unix time until which no pod of a lineage moves; 0 without a cooldown."""
        moves = self._moves.get(lineage)
        doubled = 0.0
        if moves:
            doubled = max(moves) + min(self._cooldowns.pod * float(2 ** min(len(moves) - 1, 16)), DAY)
        held = self._held.get(lineage)
        return max(doubled, self._refused.get(lineage, 0.0), 0.0 if held is None else held + DAY)

    def workload_until(self, workload: Workload) -> float:
        """Return the Unix time until which no pod of a workload moves; 0 without a cooldown."""
        return self._until(self._workloads.get(workload), self._cooldowns.workload)

    def source_until(self, node: str) -> float:
        """Return the Unix time until which no further pod leaves a node; 0 without a cooldown."""
        return self._until(self._sources.get(node), self._cooldowns.node)

    def target_until(self, node: str) -> float:
        """Return the Unix time until which no further pod moves to a node; 0 without a cooldown."""
        return self._until(self._targets.get(node), self._cooldowns.node)

    @staticmethod
    def _until(at: float | None, seconds: float) -> float:
        return 0.0 if at is None else at + seconds

    def moved_twice(self) -> int:
        """Return the number of lineages that moved more than once within a day."""
        return sum(len(moves) > 1 for moves in self._moves.values())


def refused(record: MoveRecord, cooldowns: Cooldowns, least: float = 0.0) -> MoveRecord:
    """Return the record of a move that was refused. Its pause doubles with each consecutive refusal, up to a day.

    Args:
        record: the move, with the number of refusals before this one.
        cooldowns: lengths of the pauses.
        least: shortest pause, seconds.
    """
    wait = min(cooldowns.refusal * float(2 ** min(record.refusals, 16)), DAY)
    return record.changed(state=MoveState.REFUSED, refusals=record.refusals + 1, wait=max(least, wait))


def _latest(times: dict[str, float] | dict[Workload, float], key: "str | Workload", at: float) -> None:
    times[key] = max(times.get(key, 0.0), at)  # type: ignore[index, arg-type]
