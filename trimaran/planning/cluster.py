"""Placement problem of a Kubernetes cluster, from its nodes, their pods, the pending pods and the measured peak use.

Pods with affinity to other pods, topology spread constraints, volumes or host ports are left to kube-scheduler, with
the reason: a plan does not check these requirements and could place the pods wrongly.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from runtime.errors import quoted
from runtime.kubernetes import pod_demand
from runtime.kubernetes.gangs import gang_of
from runtime.kubernetes.k8s_fields import get, get_list
from runtime.kubernetes.objects import CPU, DISK, MEMORY, NETWORK
from runtime.kubernetes.scheduling_rules import SchedulingRules
from scoring import MetricsTable, NodeTable, Pod
from scoring.arrays import Bools, Float64s, Int64s
from trimaran.planning.file_gaps import uncounted_rules
from trimaran.planning.problem import Problem
from watcher.model import MetricType, Operator, WatcherMetrics

#: Resource -> metric type of its use, for the resources that a plan balances if nodes have them and pods request them.
RESOURCES: Final = {
    CPU: MetricType.CPU,
    MEMORY: MetricType.MEMORY,
    NETWORK: MetricType.BANDWIDTH,
    DISK: MetricType.STORAGE,
}
_ALWAYS = frozenset({CPU, MEMORY})  # balanced even if no pod requests them and no node uses any
_NODE_VOLUMES = frozenset({"configMap", "secret", "emptyDir", "downwardAPI", "projected", "hostPath", "name"})


@dataclass(frozen=True, eq=False)
class PendingPod:
    """Pod that waits for a node.

    Attributes:
        pod: the pod, as scoring reads it.
        gang: namespace and name of its gang; "" without one.
    """

    pod: Pod
    gang: str

    @property
    def name(self) -> str:
        """Namespace and name of the pod."""
        return f"{self.pod.namespace}/{self.pod.name}"


@dataclass(frozen=True, eq=False)
class Batch:
    """Pods to place together.

    Attributes:
        problem: placement problem of the pods.
        names: name of each node, in the problem's order.
        pending: pods to place, in the problem's order.
        skipped: namespace and name of each pod left to the scheduler, with the reason.
        notes: remarks for the user, such as on missing metrics.
    """

    problem: Problem
    names: tuple[str, ...]
    pending: tuple[PendingPod, ...]
    skipped: Mapping[str, str]
    notes: tuple[str, ...]


def read_pending_pods(
    pods: Iterable[Any], scheduler_name: str = "", *, skip_unreadable: bool = False
) -> tuple[list[PendingPod], dict[str, str]]:
    """Return the pods to place, and the names of the pods left to the scheduler with the reason for each.

    Args:
        pods: v1 Pods; bound, finished and terminating pods are ignored.
        scheduler_name: schedulerName of the pods to place. Pods with another schedulerName are ignored; other pods of
            the same gang are left to the scheduler. "" accepts all pods.
        skip_unreadable: leave a malformed pod to the scheduler instead of raising, since any user may create one.

    Raises:
        ValueError: a pod is malformed, or two pods have the same name.
    """
    pending, skipped = [], {}
    seen: set[str] = set()
    foreign: dict[str, str] = {}  # gang to one of its pods that has another scheduler
    for manifest in pods:
        pod, error = _read(manifest) if skip_unreadable else (Pod.from_k8s(manifest), "")
        if pod.node_name or pod.finished or pod.terminating:
            continue
        ref = gang_of(pod)
        gang = "" if ref is None else str(ref)
        candidate = PendingPod(pod, gang)
        if scheduler_name not in {"", pod.scheduler_name}:
            if gang:
                foreign[gang] = candidate.name
            continue
        if candidate.name in seen:
            raise ValueError(f"pod {candidate.name} occurs twice in the input: list each pod once")
        seen.add(candidate.name)
        pending.append(candidate)
        if reason := error or unsupported_requirement(manifest):
            skipped[candidate.name] = reason

    # A gang is placed whole or not at all: one skipped pod takes the rest of its gang along.
    broken = {pod.gang: pod.name for pod in pending if pod.name in skipped and pod.gang}
    for waiting in pending:
        if waiting.gang in broken and waiting.name not in skipped:
            skipped[waiting.name] = f"{broken[waiting.gang]}, of its gang, is left to the scheduler"
        elif waiting.gang in foreign and waiting.name not in skipped:
            skipped[waiting.name] = f"{foreign[waiting.gang]}, of its gang, has another schedulerName"
    return [pod for pod in pending if pod.name not in skipped], skipped


def _read(manifest: Any) -> tuple[Pod, str]:
    """Return a pod and ""; for a malformed manifest, a pod with only its identifying fields, and the error."""
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
            scheduling=SchedulingRules(pod_group=get(get(spec, "schedulingGroup"), "podGroupName") or ""),
        )
        return outline, str(error)


def unsupported_requirement(manifest: Any) -> str:
    """Return a requirement of a v1 Pod that only the scheduler can meet, such as a host port; "" without one."""
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
    return _unsupported_port_or_volume(spec)


def _unsupported_port_or_volume(spec: Any) -> str:
    for container in (*get_list(spec, "containers", "spec"), *get_list(spec, "initContainers", "spec")):
        if any(get(port, "hostPort") for port in get_list(container, "ports", "spec.containers")):
            return "it requests a hostPort"
    for volume in get_list(spec, "volumes", "spec"):
        if isinstance(volume, Mapping) and not set(volume) <= _NODE_VOLUMES:
            return f"volume {quoted(volume.get('name'))} may tie it to some nodes"
    return ""


def read_batch(
    nodes: NodeTable,
    pending: Sequence[PendingPod],
    skipped: Mapping[str, str],
    *,
    peaks: WatcherMetrics | None = None,
    limit: float = 1.0,
    gangs_within: str = "",
) -> Batch:
    """Return the batch of the pending pods, with their placement problem.

    The use of a node's resource is its measured peak, or the sum of the pods' requests if it was not measured.

    Args:
        nodes: nodes with the pods that are bound to them.
        pending: pods to place.
        skipped: names of the pods left to the scheduler, with the reason for each.
        peaks: measured use of nodes in percent of capacity; the operator MAX is preferred to the average. None uses the
            pods' requests.
        limit: largest use of a node at its peak, as a share of capacity.
        gangs_within: name of a node label, such as a rack's: all pods of a gang go to nodes with the same value. ""
            lets them go to any nodes.

    Raises:
        ValueError: there are no pods to place, or no nodes to place them on.
    """
    if not len(nodes):
        raise ValueError("there are no nodes to place pods on")
    if not pending:
        note = f", except {len(skipped)} that are left to the scheduler" if skipped else ""
        raise ValueError("there are no pods that wait for a node" + note)
    notes = list(uncounted_rules([each.pod for each in pending], nodes))
    usable = np.flatnonzero((nodes.capacity(CPU) > 0) & (nodes.capacity(MEMORY) > 0))
    if not len(usable):
        raise ValueError("no node has cpu and memory in status.capacity")
    if without := len(nodes) - len(usable):
        notes.append(f"{without} of {len(nodes)} nodes have no cpu or no memory: nothing is placed there")
        nodes = nodes.take(usable)
    used, demand, capacity, resources = _balanced(nodes, pending, peaks, notes)
    problem = Problem.of(capacity, used, demand, resources)
    hard, free = _hard(nodes, pending)
    group, allowed = _allowed(nodes, pending)
    gang, domain = _gangs(nodes, pending, gangs_within, notes)
    room = np.maximum(limit * capacity - used, 0.0)
    constrained = Problem(
        problem.resources, capacity, used,
        np.concatenate([demand, hard], axis=1), np.concatenate([room, free], axis=1),
        group, allowed, gang, domain, np.array([pod.pod.priority for pod in pending]),
    )  # fmt: skip
    return Batch(constrained, nodes.names, tuple(pending), dict(skipped), tuple(notes))


def _balanced(
    nodes: NodeTable, pending: Sequence[PendingPod], peaks: WatcherMetrics | None, notes: list[str]
) -> tuple[Float64s, Float64s, Float64s, list[str]]:
    """Return use, requests and capacity of the resources that a plan balances; append remarks to ``notes``.

    Returns:
        Use of the nodes (nodes, R), requests of the pods (pods, R), capacity of the nodes (nodes, R), and the names of
        the R resources.
    """
    table = None if peaks is None else MetricsTable.align(peaks, nodes)
    columns: list[tuple[Float64s, Float64s, Float64s]] = []
    names: list[str] = []
    for name, metric_type in RESOURCES.items():
        capacity = nodes.capacity(name).astype(np.float64)
        requested = np.array([pod_demand.in_tree_requests(pod.pod, name) for pod in pending], np.float64)
        used = nodes.in_tree_requests(name).astype(np.float64)
        if not (capacity > 0).all():
            if requested.any():
                notes.append(f"{name} is not balanced: not every node has some")
            continue
        if table is not None:
            share, valid = _peak(table, metric_type)
            used = np.where(valid, share * capacity, used)
            if not valid.all() and requested.any():
                notes.append(
                    f"{int((~valid).sum())} of {len(nodes)} nodes have no {metric_type} metric: "
                    "the requests of their pods are used instead"
                )
        if requested.any() or used.any() or name in _ALWAYS:
            columns.append((used, requested, capacity))
            names.append(name)
    used, requested, capacity = (np.stack(arrays, axis=1) for arrays in zip(*columns, strict=True))
    return used, requested, capacity, names


def _peak(table: MetricsTable, metric_type: str) -> tuple[Float64s, Bools]:
    """Return the highest measured use of each node as a share of capacity, and whether it was measured."""
    measured = table.of(metric_type)
    average = np.where(measured.averaged, measured.average, np.nan)
    highest = measured.percentiles.get(Operator.MAX)
    peak = average if highest is None else np.where(np.isnan(highest), average, highest)
    return np.nan_to_num(np.clip(peak, 0.0, None)) / 100, ~np.isnan(peak)


def _hard(nodes: NodeTable, pending: Sequence[PendingPod]) -> tuple[Float64s, Float64s]:
    """Return the pods' requests and the nodes' free capacity, for the resources that the kubelet checks.

    Returns:
        Requests of the pods (pods, C), and allocatable minus requests of the pods on each node (nodes, C). The number
        of pods counts as a resource.
    """
    names = sorted(set().union(*(pod_demand.resource_names(pod.pod) for pod in pending)))
    requested = [[pod_demand.in_tree_requests(pod.pod, name) for name in names] for pod in pending]
    rooms = [nodes.allocatable(name) - nodes.in_tree_requests(name) for name in names]
    demand = np.array(requested, np.float64).reshape(len(pending), len(names))
    if "pods" in nodes.resources:
        demand = np.concatenate([demand, np.ones((len(pending), 1))], axis=1)
        rooms.append(nodes.allocatable("pods") - nodes.pod_counts)
    needed = demand.any(axis=0)
    room = np.array(rooms, np.float64).reshape(len(rooms), len(nodes)).T
    return demand[:, needed], np.maximum(room[:, needed], 0.0)


def _allowed(nodes: NodeTable, pending: Sequence[PendingPod]) -> tuple[Int64s, Bools]:
    """Group pods whose constraints allow the same nodes.

    Returns:
        The group of each pod, shape (pods,), and whether each group may use each node, shape (groups, nodes).
    """
    rows: dict[bytes, int] = {}
    group: list[int] = []
    allowed: list[Bools] = []
    for pod in pending:
        mask = nodes.rows.constraints.allows(pod.pod)
        key = mask.tobytes()
        if key not in rows:
            rows[key] = len(allowed)
            allowed.append(mask)
        group.append(rows[key])
    return np.array(group, np.int64), np.array(allowed)


def _gangs(
    nodes: NodeTable, pending: Sequence[PendingPod], within: str, notes: list[str]
) -> tuple[Int64s, Int64s | None]:
    """Return the number of each pod's gang, -1 without one, and of each node's topology domain, -1 without one.

    The domains are the values of the node label ``within``. If it is "", gangs have no domain, and None is returned.
    """
    numbers: dict[str, int] = {}
    gang = np.array([numbers.setdefault(pod.gang, len(numbers)) if pod.gang else -1 for pod in pending], np.int64)
    if not within:
        return gang, None
    values: dict[str, int] = {}
    labels = [node.labels.get(within) for node in nodes.nodes]
    if not any(labels):
        raise ValueError(f"no node has the label {within!r}, which --gangs-within names")
    if None in labels:
        notes.append(f"{labels.count(None)} of {len(nodes)} nodes have no label {within}: no gang goes there")
    return gang, np.array([-1 if label is None else values.setdefault(label, len(values)) for label in labels])
