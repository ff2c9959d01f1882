"""From a Kubernetes cluster to a problem: nodes, the pods on them, the pods that wait, and the measured peaks.

Pods that a plan could place wrongly are left to the scheduler, each with the reason: what they ask for is known to it
alone (affinity to other pods, topology spread, volumes, host ports).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from runtime.kubernetes import pod_demand
from runtime.kubernetes.k8s_fields import get, get_list
from runtime.kubernetes.objects import CPU, DISK, MEMORY, NETWORK
from scoring import MetricsTable, NodeTable, Pod
from scoring.arrays import Bools, Float64s, Int64s
from trimaran.planning.problem import Problem
from watcher.model import MetricType, Operator, WatcherMetrics

#: What a plan balances where nodes have it and pods ask for it, and the metric that tells its use.
RESOURCES: Final = {
    CPU: MetricType.CPU,
    MEMORY: MetricType.MEMORY,
    NETWORK: MetricType.BANDWIDTH,
    DISK: MetricType.STORAGE,
}
_ALWAYS = frozenset({CPU, MEMORY})  # balanced even where no pod asks for them, and nothing uses any
#: The labels by which the coscheduling plugins of Kubernetes tell the pods of a gang.
GANG_LABELS: Final = ("scheduling.x-k8s.io/pod-group", "pod-group.scheduling.sigs.k8s.io")
_NODE_VOLUMES = frozenset({"configMap", "secret", "emptyDir", "downwardAPI", "projected", "hostPath", "name"})


@dataclass(frozen=True, eq=False)
class Waiting:
    """A pod that is to be placed.

    Attributes:
        pod: as scores see it.
        gang: namespace and name of its gang; "" without one.
    """

    pod: Pod
    gang: str

    @property
    def name(self) -> str:
        """Its namespace and name."""
        return f"{self.pod.namespace}/{self.pod.name}"


@dataclass(frozen=True, eq=False)
class Batch:
    """What is placed together.

    Attributes:
        problem: for the methods.
        names: of the nodes, by row.
        waiting: the pods, in the problem's order.
        left: pods that are left to the scheduler, each with the reason.
        notes: what the user should know of how the problem was read.
    """

    problem: Problem
    names: tuple[str, ...]
    waiting: tuple[Waiting, ...]
    left: Mapping[str, str]
    notes: tuple[str, ...]


def read_waiting(
    pods: Iterable[Any], scheduler_name: str = "", *, leave_unreadable: bool = False
) -> tuple[list[Waiting], dict[str, str]]:
    """Return the pods that wait for a node, and those that are left to the scheduler, each with the reason.

    Args:
        pods: v1 Pods; those that are bound, finished or being deleted are passed over.
        scheduler_name: pods of other schedulers are passed over, and the rest of their gangs left; "" takes all.
        leave_unreadable: a pod that cannot be read is left, and is no error: anybody can put one into a cluster.

    Raises:
        ValueError: a pod cannot be read, or two have one name.
    """
    waiting, left = [], {}
    seen: set[str] = set()
    foreign: dict[str, str] = {}  # a pod of another scheduler, by its gang
    for manifest in pods:
        pod, unreadable = _read(manifest) if leave_unreadable else (Pod.from_k8s(manifest), "")
        if pod.node_name or pod.finished or pod.terminating:
            continue
        gang = next((f"{pod.namespace}/{pod.labels[label]}" for label in GANG_LABELS if pod.labels.get(label)), "")
        if scheduler_name not in {"", pod.scheduler_name}:
            if gang:
                foreign[gang] = Waiting(pod, gang).name
            continue
        waiting.append(Waiting(pod, gang))
        if waiting[-1].name in seen:
            raise ValueError(f"two pods are named {waiting[-1].name}: give each once")
        seen.add(waiting[-1].name)
        if reason := unreadable or unknown_demand(manifest):
            left[waiting[-1].name] = reason
    broken = {each.gang: each.name for each in waiting if each.name in left and each.gang}
    for each in waiting:
        if each.gang in broken and each.name not in left:
            left[each.name] = f"{broken[each.gang]}, of its gang, is left to the scheduler"
        elif each.gang in foreign and each.name not in left:
            left[each.name] = f"{foreign[each.gang]}, of its gang, has another schedulerName"
    return [each for each in waiting if each.name not in left], left


def _read(manifest: Any) -> tuple[Pod, str]:
    """Return one of the API server's pods and why it cannot be read, "" if it can; else what tells which it is."""
    try:
        return Pod.from_k8s(manifest), ""
    except ValueError as error:
        metadata, spec = get(manifest, "metadata"), get(manifest, "spec")
        outline = Pod(
            name=get(metadata, "name"),
            namespace=get(metadata, "namespace"),
            labels=get(metadata, "labels") or {},
            terminating=bool(get(metadata, "deletionTimestamp")),
            scheduler_name=get(spec, "schedulerName"),
        )
        return outline, str(error)


def unknown_demand(manifest: Any) -> str:
    """Return what a pod asks for that only the scheduler knows how to give; "" if nothing."""
    spec = get(manifest, "spec")
    for kind in ("schedulingGates", "resourceClaims"):
        if get_list(spec, kind, "spec"):
            return f"it has {kind}"
    for kind in ("podAffinity", "podAntiAffinity"):
        if get(get(get(spec, "affinity"), kind), "requiredDuringSchedulingIgnoredDuringExecution"):
            return f"it requires {kind}"
    for constraint in get_list(spec, "topologySpreadConstraints", "spec"):
        if get(constraint, "whenUnsatisfiable") != "ScheduleAnyway":
            return "it requires topologySpreadConstraints"
    return _unknown_host_demand(spec)


def _unknown_host_demand(spec: Any) -> str:
    for container in (*get_list(spec, "containers", "spec"), *get_list(spec, "initContainers", "spec")):
        if any(get(port, "hostPort") for port in get_list(container, "ports", "spec.containers")):
            return "it asks for a hostPort"
    for volume in get_list(spec, "volumes", "spec"):
        if isinstance(volume, Mapping) and not set(volume) <= _NODE_VOLUMES:
            return f"volume {volume.get('name')!r} may tie it to some nodes"
    return ""


def read_batch(
    nodes: NodeTable,
    waiting: Sequence[Waiting],
    left: Mapping[str, str],
    *,
    peaks: WatcherMetrics | None = None,
    limit: float = 1.0,
    gangs_within: str = "",
) -> Batch:
    """Return the problem of placing some pods.

    A node is used at its peak as the watcher measured it; one that was not measured, as much as its pods ask for.

    Args:
        nodes: with the pods that are on them.
        waiting: the pods.
        left: those that are left to the scheduler, to be told.
        peaks: what nodes use, in percent of their capacity: MAX where it is there, else the average.
        limit: the share of its capacity that a node may be used at its peak.
        gangs_within: a label of nodes, such as a rack's: all pods of a gang go to nodes of one value.

    Raises:
        ValueError: there is nothing to place, or nothing to place on.
    """
    if not len(nodes):
        raise ValueError("there are no nodes to place pods on")
    if not waiting:
        raise ValueError("there are no pods that wait for a node" + (f", but for {len(left)} left" if left else ""))
    notes: list[str] = []
    able = np.flatnonzero((nodes.capacity(CPU) > 0) & (nodes.capacity(MEMORY) > 0))
    if not len(able):
        raise ValueError("no node says in status.capacity how much cpu and memory it has")
    if without := len(nodes) - len(able):
        notes.append(f"{without} of {len(nodes)} nodes have no cpu or no memory: nothing is placed there")
        nodes = nodes.take(able)
    used, demand, capacity, resources = _balanced(nodes, waiting, peaks, notes)
    problem = Problem.of(capacity, used, demand, resources)
    hard, free = _hard(nodes, waiting)
    group, allowed = _allowed(nodes, waiting)
    gang, domain = _gangs(nodes, waiting, gangs_within, notes)
    room = np.maximum(limit * capacity - used, 0.0)
    made = Problem(
        problem.resources, capacity, used,
        np.concatenate([demand, hard], axis=1), np.concatenate([room, free], axis=1),
        group, allowed, gang, domain, np.array([each.pod.priority for each in waiting]),
    )  # fmt: skip
    return Batch(made, nodes.names, tuple(waiting), dict(left), tuple(notes))


def _balanced(
    nodes: NodeTable, waiting: Sequence[Waiting], peaks: WatcherMetrics | None, notes: list[str]
) -> tuple[Float64s, Float64s, Float64s, list[str]]:
    table = None if peaks is None else MetricsTable.align(peaks, nodes)
    used: list[Float64s] = []
    demand: list[Float64s] = []
    capacity: list[Float64s] = []
    names: list[str] = []
    for name, kind in RESOURCES.items():
        has = nodes.capacity(name).astype(np.float64)
        asked = np.array([pod_demand.in_tree_requests(each.pod, name) for each in waiting], np.float64)
        there = nodes.in_tree_requests(name).astype(np.float64)
        if not (has > 0).all():
            if asked.any():
                notes.append(f"{name} is not balanced: not every node has some")
            continue
        if table is not None:
            share, valid = _peak(table, kind)
            there = np.where(valid, share * has, there)
            if not valid.all() and asked.any():
                notes.append(f"{int((~valid).sum())} of {len(nodes)} nodes have no {kind} metric: requests stand in")
        if asked.any() or there.any() or name in _ALWAYS:
            for column, values in ((used, there), (demand, asked), (capacity, has)):
                column.append(values)
            names.append(name)
    return np.stack(used, 1), np.stack(demand, 1), np.stack(capacity, 1), names


def _peak(table: MetricsTable, kind: str) -> tuple[Float64s, Bools]:
    """Return the highest use of each node as a share, and where there is one."""
    measured = table.of(kind)
    average = np.where(measured.averaged, measured.average, np.nan)
    highest = measured.percentiles.get(Operator.MAX)
    peak = average if highest is None else np.where(np.isnan(highest), average, highest)
    return np.nan_to_num(np.clip(peak, 0.0, None)) / 100, ~np.isnan(peak)


def _hard(nodes: NodeTable, waiting: Sequence[Waiting]) -> tuple[Float64s, Float64s]:
    """Return what must fit besides, as the kubelet counts it: requests within what is allocatable, and pods."""
    names = sorted(set().union(*(pod_demand.names(each.pod) for each in waiting)))
    demand = [[pod_demand.in_tree_requests(each.pod, name) for name in names] for each in waiting]
    free = [nodes.allocatable(name) - nodes.in_tree_requests(name) for name in names]
    columns, rooms = np.array(demand, np.float64).reshape(len(waiting), len(names)), [*free]
    if "pods" in nodes.resources:
        columns = np.concatenate([columns, np.ones((len(waiting), 1))], axis=1)
        rooms.append(nodes.allocatable("pods") - nodes.pod_counts)
    asked = columns.any(axis=0)
    room = np.array(rooms, np.float64).reshape(len(rooms), len(nodes)).T
    return columns[:, asked], np.maximum(room[:, asked], 0.0)


def _allowed(nodes: NodeTable, waiting: Sequence[Waiting]) -> tuple[Int64s, Bools]:
    rows: dict[bytes, int] = {}
    group: list[int] = []
    allowed: list[Bools] = []
    for each in waiting:
        mask = nodes.rows.constraints.allows(each.pod)
        key = mask.tobytes()
        if key not in rows:
            rows[key] = len(allowed)
            allowed.append(mask)
        group.append(rows[key])
    return np.array(group, np.int64), np.array(allowed)


def _gangs(nodes: NodeTable, waiting: Sequence[Waiting], within: str, notes: list[str]) -> tuple[Int64s, Int64s | None]:
    numbers: dict[str, int] = {}
    gang = np.array([numbers.setdefault(each.gang, len(numbers)) if each.gang else -1 for each in waiting], np.int64)
    if not within:
        return gang, None
    values: dict[str, int] = {}
    labels = [node.labels.get(within) for node in nodes.nodes]
    if not any(labels):
        raise ValueError(f"no node has the label {within!r}, which --gangs-within names")
    if None in labels:
        notes.append(f"{labels.count(None)} of {len(nodes)} nodes have no label {within}: no gang goes there")
    return gang, np.array([-1 if each is None else values.setdefault(each, len(values)) for each in labels])
