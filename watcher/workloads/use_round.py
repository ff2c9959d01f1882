"""One round of measurements of containers: the input of the learner, live and in a replay."""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np

from runtime.kubernetes.workloads import ContainerRole
from watcher.workload_table import Bools, ContainerKey, Float64s, Int64s

if TYPE_CHECKING:
    from watcher.windows.container_use import ContainerUse
    from watcher.workloads.pods import ContainerRestart, PodTemplate, RunningPods

MAX_USE = np.array([[10_000.0], [2.0**53]])
"""Largest plausible use and request of a container, cores and bytes; no machine has more."""


@dataclass(frozen=True, slots=True, eq=False)
class ContainerFacts:
    """State of containers that bears on their requests; one value for each key of the round.

    Attributes:
        limits: limits in the newest template, cores and bytes, shape (2, keys); 0 without one.
        roles: a :class:`ContainerRole` for each container, shape (keys,).
        is_guaranteed: whether the pods have the QoS class Guaranteed, shape (keys,).
        restarted_at: time of the newest restart in a pod that runs, Unix seconds, shape (keys,); 0 without one.
        killed_at: time of the newest kill for lack of memory, in the same form.
        killed_requests: highest memory request of the killed, bytes, shape (keys,).
    """

    limits: Float64s
    roles: Int64s
    is_guaranteed: Bools
    restarted_at: Float64s
    killed_at: Float64s
    killed_requests: Float64s


@dataclass(frozen=True, slots=True, eq=False)
class UseRound:
    """One round of measurements. Each measurement is of one container, or the mean over several pods' equal ones.

    Attributes:
        time: end of the round, Unix seconds.
        seconds: time that the round covers; rounds do not overlap.
        keys: containers that ``container`` refers to.
        container: index of each measurement's container in ``keys``, shape (n,); -1 leaves the measurement out.
        revision: number of the pod's revision, shape (n,); 0 if unknown.
        pods: number of pods that each measurement stands for, shape (n,).
        measured_seconds: time that each pod ran in the round, shape (n,).
        use: mean CPU use and highest memory use of one pod in the round, cores and bytes, shape (2, n); NaN if unknown.
        requests: requests of one pod, cores and bytes, shape (2, n); NaN or 0 without a request.
        strain: share of the CPU periods in which each container was throttled, and share of the time for which it
            waited for CPU, shape (2, n); NaN if unknown. None if nothing is known.
        started_at: start of each pod, Unix seconds, shape (n,); NaN if unknown. None if nothing is known.
        facts: state of the containers; None if unknown.
    """

    time: float
    seconds: float
    keys: Sequence[ContainerKey]
    container: Int64s
    revision: Int64s
    pods: Float64s
    measured_seconds: Float64s
    use: Float64s
    requests: Float64s
    strain: Float64s | None = None
    started_at: Float64s | None = None
    facts: ContainerFacts | None = None

    def known(self) -> Bools:
        """Return whether each amount of use can be right: finite, not negative, not too large; shape (2, n)."""
        with np.errstate(invalid="ignore"):
            return np.asarray((self.use >= 0) & (self.use <= MAX_USE))

    def valid_requests(self) -> Float64s:
        """Return the requests, with 0 for those that are not known or not plausible."""
        with np.errstate(invalid="ignore"):
            valid = (self.requests > 0) & (self.requests <= MAX_USE)
        return np.where(valid, self.requests, 0.0)


@dataclass(frozen=True, slots=True)
class _Template:
    """Containers of a pod template.

    Attributes:
        revision: number of the revision.
        containers: index of each container by name, and its requests in cores and bytes.
        facts: index, limits in cores and bytes, and role of each container.
        is_guaranteed: whether the pods have the QoS class Guaranteed.
    """

    revision: int
    containers: dict[str, tuple[int, float, float]]
    facts: list[tuple[int, float, float, int]]
    is_guaranteed: bool


def use_round(use: "ContainerUse", pods: "RunningPods", since: float) -> UseRound | None:
    """Return a round of pod use as the learner's input; None if it is the same round as before.

    Containers of pods that do not run, or are not known yet, are left out.

    Args:
        use: use of all containers.
        pods: the running pods.
        since: end of the round before, Unix seconds; 0 for the first one.
    """
    seconds = use.timestamp - since
    if seconds == 0:
        return None
    if not 0 < seconds < use.window_seconds:  # the first round, a gap, or a clock that was set back
        seconds = use.window_seconds
    index: dict[ContainerKey, int] = {}
    templates: dict[int, _Template] = {}
    count = len(use)
    container, revision = np.full(count, -1), np.zeros(count, np.int64)
    measured_seconds, requests = np.full(count, float(seconds)), np.zeros((2, count))
    started_at = np.full(count, np.nan)
    names = zip(use.namespaces, use.pods, use.containers, strict=True)
    for row, (namespace, name, container_name) in enumerate(names):
        pod = pods.get((namespace, name))  # type: ignore[call-overload]  # a plain tuple equals a PodKey and is faster
        if pod is None:
            continue
        template = templates.get(id(pod.template))
        if template is None:
            template = templates[id(pod.template)] = _read(pod.template, index)
        known = template.containers.get(container_name)
        if known is None and pod.template.is_ephemeral(container_name):
            continue  # its use is the pod's, but no other pod of the workload has it
        if known is None:
            key = ContainerKey(pod.template.workload, container_name)
            known = template.containers[container_name] = index.setdefault(key, len(index)), 0.0, 0.0
        container[row], requests[0, row], requests[1, row] = known
        revision[row] = template.revision
        if pod.started_at is not None:
            started_at[row] = pod.started_at
            measured_seconds[row] = min(seconds, use.timestamp - pod.started_at)
    facts = _facts(pods, templates, index, use.timestamp)
    return UseRound(
        time=float(use.timestamp),
        seconds=float(seconds),
        keys=list(index),
        container=container,
        revision=revision,
        pods=np.ones(count),
        measured_seconds=measured_seconds,
        use=np.stack([use.cpu_cores, use.memory_bytes]),
        requests=requests,
        strain=use.strain,
        started_at=started_at,
        facts=facts,
    )


def _facts(
    pods: "RunningPods", templates: dict[int, _Template], index: dict[ContainerKey, int], now: float
) -> ContainerFacts:
    """Return the state of the containers; those that restarted and are not measured now are added to the index."""
    newest: dict[int, tuple[float, ...]] = {}  # time of restart and kill, and request, by index
    for pod in pods.values():
        if pod.restarts and id(pod.template) not in templates:
            templates[id(pod.template)] = _read(pod.template, index)
        for restart in pod.restarts or ():
            place = index.setdefault(ContainerKey(pod.template.workload, restart.container), len(index))
            ended_at = min(restart.ended_at, now)  # the clock of a node may be ahead
            killed = (ended_at, _memory_request(pod.template, restart)) if restart.was_out_of_memory else (0.0, 0.0)
            newest[place] = tuple(map(max, newest.get(place, (0.0, 0.0, 0.0)), (ended_at, *killed)))
    limits, roles, is_guaranteed = np.zeros((2, len(index))), np.zeros(len(index), np.int64), np.zeros(len(index), bool)
    for template in templates.values():
        for place, *amounts, role in template.facts:
            limits[:, place], roles[place], is_guaranteed[place] = amounts, role, template.is_guaranteed
    restarts = np.zeros((3, len(index)))
    for place, values in newest.items():
        restarts[:, place] = values
    return ContainerFacts(limits, roles, is_guaranteed, *restarts)


def _memory_request(template: "PodTemplate", restart: "ContainerRestart") -> float:
    requests = (each.memory_request_bytes for each in template.containers if each.name == restart.container)
    return float(next(requests, None) or 0)


def _read(template: "PodTemplate", index: dict[ContainerKey, int]) -> _Template:
    containers, facts = {}, []
    for each in template.containers:
        place = index.setdefault(ContainerKey(template.workload, each.name), len(index))
        containers[each.name] = (place, (each.cpu_request_milli or 0) / 1000, float(each.memory_request_bytes or 0))
        limits = (each.cpu_limit_milli or 0) / 1000, float(each.memory_limit_bytes or 0)
        facts.append((place, *limits, int(each.role)))
    for name in template.init_containers:
        place = index.setdefault(ContainerKey(template.workload, name), len(index))
        containers[name] = (place, 0.0, 0.0)
        facts.append((place, 0.0, 0.0, int(ContainerRole.INIT)))
    return _Template(_number(template.revision), containers, facts, template.is_guaranteed)


def _number(revision: str) -> int:
    """Return a number that identifies a revision in all runs of the watcher; 0 if the revision is not known."""
    return int.from_bytes(blake2b(revision.encode(), digest_size=8).digest(), signed=True) if revision else 0
