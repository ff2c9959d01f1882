"""State of a cluster at one time, and the move problem that is made from it, as arrays.

A pod's past is its use that the watcher has recorded. A replacement inherits the past of the pod that it replaces;
other new pods begin with the hourly profile of their workload. While the replacement of an evicted pod has no node, its
use and requests count on the planned target. A pod that is being deleted counts by its requests only.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

import numpy as np

from runtime.kubernetes.objects import CPU, MEMORY, Pod
from runtime.kubernetes.pod_demand import in_tree_requests
from runtime.kubernetes.workloads import Workload
from scoring import NodeTable
from scoring.arrays import Bools, Float64s, Int64s
from trimaran.planning.moves import MoveProblem
from trimaran.planning.moves.correction import RecentMove
from trimaran.planning.moves.past import begin_with_course, expected_cpu, expected_memory
from trimaran.rebalancer.eligibility import WorkloadState
from trimaran.rebalancer.facts import NodeFacts, PodBarrier, PodFacts
from trimaran.rebalancer.lineage import Member
from trimaran.rebalancer.moves import MoveRecord, MoveState
from watcher.pod_use_table import HOURS, PERIOD_STEPS, STEP_SECONDS, STEPS, Float16s, PodUseTable

HOUR_STEPS: Final = STEPS // HOURS
NO_USE: Final = PodUseTable(
    0.0, (), (), (), (), (), np.zeros(0), np.zeros(0), np.zeros((0, STEPS), np.float16),
    np.zeros((0, STEPS // PERIOD_STEPS), np.float16), np.zeros((2, 0, HOURS), np.float16),
)  # fmt: skip
"""Table without pods."""


@dataclass(frozen=True)
class ClusterLook:
    """State of a cluster at one time.

    Attributes:
        table: nodes with the pods on them; a copy that nothing else changes.
        pods: facts about all pods, by UID.
        nodes: facts about all nodes, by name.
        pending: pods without a node.
        state: state of the workloads.
        use: use of the pods over the last day.
        measured: CPU load of each node with fresh metrics, percent.
        window: begin and end of the window over which ``measured`` is averaged, Unix seconds.
        now: Unix time.
        unknown_nodes: reason for each node whose free CPU and memory are not known.
        version: resource version up to which the pods are known; 0 if unknown.
    """

    table: NodeTable
    pods: Mapping[str, PodFacts]
    nodes: Mapping[str, NodeFacts]
    pending: Sequence[Pod]
    state: WorkloadState
    use: PodUseTable
    measured: Mapping[str, float]
    window: tuple[float, float]
    now: float
    unknown_nodes: Mapping[str, str] = field(default_factory=dict)
    version: int = 0

    @cached_property
    def running(self) -> Sequence[tuple[int, Member]]:
        """Row in the table and member of each pod that is bound to a node, except pods whose facts have not arrived."""
        return [
            (row, Member(placed.pod, self.pods[placed.pod.uid]))
            for row, placed in self.table.placed_pods()
            if placed.pod.uid in self.pods
        ]

    @cached_property
    def members(self) -> Mapping[Workload, Sequence[Member]]:
        """Pods by workload, with or without a node; terminating pods are left out."""
        by_workload: dict[Workload, list[Member]] = defaultdict(list)
        for member in self.all_members():
            if member.pod.workload is not None and not member.pod.terminating:
                by_workload[member.pod.workload].append(member)
        return by_workload

    def all_members(self) -> Iterator[Member]:
        """Yield all pods with their facts."""
        yield from (member for _, member in self.running)
        yield from (Member(pod, self.pods[pod.uid]) for pod in self.pending if pod.uid in self.pods)


@dataclass(frozen=True, eq=False)
class PlanArrays:
    """Move problem of a cluster, and the pods of its rows.

    Attributes:
        members: pods in the problem's order; the problem has further rows for replacements without a node.
        problem: the move problem; no pod is marked as movable yet.
        is_known: whether the past of each pod was measured, shape (pods of the problem,).
    """

    members: Sequence[Member]
    problem: MoveProblem
    is_known: Bools

    @property
    def pods(self) -> int:
        """Number of rows of the problem: pods on nodes, and replacements without a node."""
        return int(self.problem.rows.size)


def known_steps(use: PodUseTable, history: float) -> int:
    """Return the number of past steps that a plan uses: whole hours, or in the first hour whole quarters.

    Args:
        use: use of the pods.
        history: largest length of the past, seconds, at most a day.
    """
    if not len(use):
        return 0
    steps = int(min(STEPS * STEP_SECONDS, history, use.timestamp - float(use.since.min())) // STEP_SECONDS)
    return steps - steps % (HOUR_STEPS if steps >= HOUR_STEPS else PERIOD_STEPS)


def plan_arrays(
    look: ClusterLook, records: Sequence[MoveRecord], steps: int, last_hour_share: float = 0.0, burst_steps: int = 0
) -> PlanArrays:
    """Return the move problem of a cluster.

    Args:
        look: the cluster.
        records: moves of the past day.
        steps: number of past steps, from :func:`known_steps`; at least three.
        last_hour_share: share of each past hour's level that is replaced by the last hour's level.
        burst_steps: number of steps of an hour that its level leaves out.
    """
    waiting = [record for record in _without_node(records) if record.target in look.table]
    pods = [member.pod for _, member in look.running]
    places = _places(look.use, pods)
    former = _places_by_uid(look.use, [record.uid for record in waiting])
    heirs = {record.replacement: record.uid for record in records if record.replacement}
    inherited = _places_by_uid(look.use, [heirs.get(pod.uid, "") for pod in pods])
    cpu = _rows(look.use.cpu_cores, places, inherited, former)[:, -steps:]
    memory = _rows(look.use.memory_gib, places, inherited, former)[:, -steps // PERIOD_STEPS :]
    is_known = np.asarray(~np.isnan(cpu).all(axis=1))
    ends_soon = np.zeros(len(cpu), np.bool_)
    ends_soon[: len(pods)] = [PodBarrier.JOB in member.facts.barriers for _, member in look.running]
    courses = _courses(look.use, [pod.workload for pod in pods] + [record.of for record in waiting])
    courses[:, ends_soon] = np.nan
    begin_with_course(cpu, memory, courses, int(look.use.timestamp // STEP_SECONDS) - 1)
    leaving = [place for place, pod in enumerate(pods) if pod.terminating]
    cpu[leaving], memory[leaving] = 0.0, 0.0

    rows = [row for row, _ in look.running] + [look.table.row(record.target) for record in waiting]
    requests = np.array([[in_tree_requests(pod, name) for pod in pods] for name in (CPU, MEMORY)], np.int64)
    requests = np.concatenate([requests.reshape(2, len(pods)), np.zeros((2, len(waiting)), np.int64)], axis=1)
    room = [look.table.allocatable(name) - look.table.in_tree_requests(name) for name in (CPU, MEMORY)]
    free = np.array(room, np.float64)  # sums of 64-bit integers could overflow
    _reserve(free, look, waiting)
    problem = MoveProblem(
        capacity=np.array([look.table.capacity(CPU) / 1000, look.table.capacity(MEMORY) / 2**30]),
        free=free,
        rows=np.array(rows, np.int64),
        requests=requests,
        cpu=expected_cpu(cpu, ends_soon, HOUR_STEPS, last_hour_share, burst_steps),
        memory=expected_memory(memory, ends_soon),
        movable=np.zeros(len(cpu), np.bool_),
    )
    return PlanArrays([member for _, member in look.running], problem, is_known)


def measured_cpu(use: PodUseTable, pods: Sequence[Pod]) -> tuple[Float16s, Float16s]:
    """Return the measured CPU of pods in each step, and the mean of their workloads in the present hour of the day.

    Cores, shapes (pods, 288) and (pods,); NaN where unknown.
    """
    hour = int(use.timestamp - STEP_SECONDS) // 3600 % HOURS
    return _rows(use.cpu_cores, _places(use, pods)), _courses(use, [pod.workload for pod in pods])[0, :, hour]


def recent_moves(table: NodeTable, records: Sequence[MoveRecord]) -> Iterator[RecentMove]:
    """Yield the moves that were made, as input for the correction of measured loads.

    Args:
        table: nodes.
        records: moves of the past day.
    """
    capacity = table.capacity(CPU) / 1000
    for record in records:
        if record.is_made and record.evicted_at:
            percents = (
                100 * record.cores / max(float(capacity[table.row(name)]), 1e-9) if name in table else 0.0
                for name in (record.source, record.node)
            )
            yield RecentMove(record.evicted_at, record.source, record.node, *percents)


def measured_arrays(look: ClusterLook, steps: int) -> PlanArrays:
    """Return the move problem with the measured use of the last steps; unknown steps get the pod's mean."""
    arrays = plan_arrays(look, (), steps)
    cpu = _rows(look.use.cpu_cores, _places(look.use, [each.pod for each in arrays.members]))[:, -steps:]
    nobody = np.zeros(len(cpu), np.bool_)
    return replace(arrays, problem=replace(arrays.problem, cpu=expected_cpu(cpu, nobody, HOUR_STEPS, 0.0)))


def _without_node(records: Sequence[MoveRecord]) -> list[MoveRecord]:
    """Return the moves whose pod is evicted and whose replacement has no node yet."""
    return [record for record in records if record.state == MoveState.EVICTED and not record.landed_on]


def _reserve(free: Float64s, look: ClusterLook, waiting: Sequence[MoveRecord]) -> None:
    """Subtract from the targets' free capacity what the replacements without a node will request."""
    for record in waiting:
        sibling = next(iter(look.members.get(record.of, ())), None)
        if sibling is not None:
            free[:, look.table.row(record.target)] -= [in_tree_requests(sibling.pod, name) for name in (CPU, MEMORY)]


def _places(use: PodUseTable, pods: Sequence[Pod]) -> Int64s:
    """Return the row of each pod in the table of use, by UID, or by name if the watcher has no UIDs; -1 if absent."""
    by_uid = {uid: place for place, uid in enumerate(use.uids) if uid}
    by_name = {name: place for place, (name, uid) in enumerate(zip(use.names, use.uids, strict=True)) if not uid}
    return np.array(
        [by_uid.get(pod.uid, by_name.get(f"{pod.namespace}/{pod.name}", -1) if by_name else -1) for pod in pods],
        np.int64,
    )


def _places_by_uid(use: PodUseTable, uids: Sequence[str]) -> Int64s:
    wanted = {uid for uid in uids if uid}
    by_uid = {uid: place for place, uid in enumerate(use.uids) if uid in wanted}
    return np.array([by_uid.get(uid, -1) for uid in uids], np.int64)


def _rows(table: Float16s, places: Int64s, inherited: Int64s | None = None, more: Int64s | None = None) -> Float16s:
    """Return rows of a table, NaN for row -1; ``inherited`` rows fill unknown values, and the rows ``more`` follow."""
    rows = table[places] if len(table) else np.full((places.size, table.shape[1]), np.nan, np.float16)
    rows[places < 0] = np.nan
    if inherited is not None and (inherited >= 0).any():
        heirs = np.flatnonzero(inherited >= 0)
        rows[heirs] = np.where(np.isnan(rows[heirs]), table[inherited[heirs]], rows[heirs])
    return rows if more is None else np.concatenate([rows, _rows(table, more)])


def _courses(use: PodUseTable, workloads: Sequence[Workload | None]) -> Float16s:
    """Return CPU and memory use of each pod's workload by hour of the day, shape (2, pods, 24); NaN if unknown."""
    place = {workload: place for place, workload in enumerate(use.workloads)}
    places = np.array([-1 if each is None else place.get(each, -1) for each in workloads], np.int64)
    return np.stack([_rows(courses, places) for courses in use.courses])


def percents(use: tuple[Float64s, Float64s], capacity: Float64s, steps: int) -> tuple[Float64s, Float64s]:
    """Return each node's mean CPU and memory load over the last steps, percent, shapes (nodes,)."""
    cpu = use[0][:, -steps:].mean(axis=1)
    memory = use[1][:, -max(steps // PERIOD_STEPS, 1) :].mean(axis=1)
    return tuple(100 * mean / np.maximum(of, 1e-9) for mean, of in zip((cpu, memory), capacity, strict=True))
