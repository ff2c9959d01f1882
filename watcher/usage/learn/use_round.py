"""One round of measurements of containers: the input of the learner, live and in a replay."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np

from runtime.kubernetes.workloads import ContainerRole, Workload
from watcher.workload_table import Bools, ContainerKey, Float64s, Int64s

if TYPE_CHECKING:
    from watcher.usage.sources.pods import ContainerRestart, PodTemplate, RunningPod, RunningPods
    from watcher.windows.container_use import ContainerUse

MAX_USE = np.array([[10_000.0], [2.0**53]])
"""Largest plausible use and request of a container, cores and bytes; no machine has more."""
_NEVER = (0.0, 0.0, 0.0)  # no kill: time, request and limit of the killed container


@dataclass(frozen=True, slots=True, eq=False)
class ContainerFacts:
    """State of containers that decides which requests to recommend; one value for each key of a :class:`UseRound`.

    Attributes:
        requests: requests that most pods of the newest revision have, cores and bytes, shape (2, keys); 0 without one.
        limits: limits of the same pods, cores and bytes, shape (2, keys); 0 without a limit.
        roles: a :class:`ContainerRole` for each container, shape (keys,).
        is_guaranteed: whether the pods have the QoS class Guaranteed, shape (keys,).
        restarted_at: time of the newest restart in a pod that runs, Unix seconds, shape (keys,); 0 without one.
        killed_at: time of the newest kill for lack of memory, Unix seconds, shape (keys,); 0 without one.
        killed_requests: highest memory request of a container that was killed, bytes, shape (keys,).
        killed_limits: highest memory limit of a killed container, bytes, shape (keys,); 0 without a limit.
        has_pod_requests: whether the pods request CPU and memory as a whole, shape (2, keys).
        pods: number of pods with the container, shape (keys,).
    """

    requests: Float64s
    limits: Float64s
    roles: Int64s
    is_guaranteed: Bools
    restarted_at: Float64s
    killed_at: Float64s
    killed_requests: Float64s
    killed_limits: Float64s
    has_pod_requests: Bools
    pods: Float64s


@dataclass(frozen=True, slots=True, eq=False)
class UseRound:
    """One round of measurements, each of one container, or of equal containers of several pods (their mean).

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
        strain: CPU contention: share of the CPU periods in which each container was throttled, and share of the time
            for which it waited for CPU, shape (2, n); NaN if unknown. None if unknown for all containers.
        started_at: start of each pod, Unix seconds, shape (n,); NaN if unknown. None if unknown for all pods.
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
        """Return whether each amount of use is plausible: finite, not negative, not too large; shape (2, n)."""
        with np.errstate(invalid="ignore"):
            return np.asarray((self.use >= 0) & (self.use <= MAX_USE))

    def valid_requests(self) -> Float64s:
        """Return the requests, with 0 for an unknown or implausible one."""
        with np.errstate(invalid="ignore"):
            valid = (self.requests > 0) & (self.requests <= MAX_USE)
        return np.where(valid, self.requests, 0.0)


@dataclass(frozen=True, slots=True)
class _Template:
    """Containers of a pod template.

    Attributes:
        workload: the pods' workload.
        revision: number of the revision.
        containers: index of each container by name, and its requests in cores and bytes.
        facts: index and role of each container, then its requests and its limits, each in cores and bytes.
        has_pod_requests: whether the pods request CPU and memory as a whole.
        is_guaranteed: whether the pods have the QoS class Guaranteed.
    """

    workload: Workload
    revision: int
    containers: dict[str, tuple[int, float, float]]
    facts: list[tuple[int, int, float, float, float, float]]
    has_pod_requests: list[bool]
    is_guaranteed: bool


def use_round(
    use: "ContainerUse", pods: "RunningPods", since: float, killed: "Sequence[RunningPod]" = ()
) -> UseRound | None:
    """Return a round of pod use as the learner's input; None if the learner has observed this round.

    Containers of pods that do not run, or are not known yet, are left out.

    Args:
        use: use of all containers.
        pods: the running pods.
        since: end of the previous round, Unix seconds; 0 for the first one.
        killed: pods that do not run any more, with the kills of their containers.
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
            continue  # ephemeral: no other pod of the workload has the container
        if known is None:
            key = ContainerKey(pod.template.workload, container_name)
            known = template.containers[container_name] = index.setdefault(key, len(index)), 0.0, 0.0
        container[row], requests[0, row], requests[1, row] = known
        revision[row] = template.revision
        if pod.started_at is not None:
            started_at[row] = pod.started_at
            measured_seconds[row] = min(seconds, use.timestamp - pod.started_at)
    facts = _facts(pods, killed, templates, index, use.timestamp)
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
    pods: "RunningPods",
    ended: "Sequence[RunningPod]",
    templates: dict[int, _Template],
    index: dict[ContainerKey, int],
    now: float,
) -> ContainerFacts:
    """Return the state of the containers; add containers that ended and are not measured now to the index."""
    newest: dict[int, tuple[float, ...]] = {}  # time of restart and kill, request and limit, by index
    for pod in (*pods.values(), *ended):
        if pod.restarts and id(pod.template) not in templates:
            templates[id(pod.template)] = _read(pod.template, index)
        for restart in pod.restarts or ():
            place = index.setdefault(ContainerKey(pod.template.workload, restart.container), len(index))
            ended_at = min(restart.ended_at, now)  # the clock of a node may be ahead
            killed = (ended_at, *_memory(pod.template, restart)) if _exceeded_limit(pod.template, restart) else _NEVER
            newest[place] = tuple(map(max, newest.get(place, (0.0, *_NEVER)), (ended_at, *killed)))
    size = len(index)
    requests, limits, has_pod_requests = np.zeros((2, size)), np.zeros((2, size)), np.zeros((2, size), np.bool_)
    roles, is_guaranteed, counts = np.zeros(size, np.int64), np.zeros(size, np.bool_), np.zeros(size)
    for known, count in _by_precedence(pods, templates):  # the last template of a container overwrites others
        for place, role, *amounts in known.facts:
            requests[:, place], limits[:, place] = amounts[:2], amounts[2:]
            roles[place], is_guaranteed[place] = role, known.is_guaranteed
            has_pod_requests[:, place] = known.has_pod_requests
            counts[place] += count
    restarts = np.zeros((4, size))
    for place, values in newest.items():
        restarts[:, place] = values
    return ContainerFacts(
        requests,
        limits,
        roles,
        is_guaranteed,
        restarted_at=restarts[0],
        killed_at=restarts[1],
        killed_requests=restarts[2],
        killed_limits=restarts[3],
        has_pod_requests=has_pod_requests,
        pods=counts,
    )


def _by_precedence(pods: "RunningPods", templates: Mapping[int, _Template]) -> Iterator[tuple[_Template, int]]:
    """Yield each template and the number of its pods; a workload's last template is that of its next pods.

    If pods of one revision differ in requests and limits, as after a resize, the template of most pods comes last. The
    newest revision is the one whose pod started last.
    """
    counts: Counter[int] = Counter()
    started: dict[int, float] = {}
    newest_of: dict[tuple[Workload, int], float] = {}
    for pod in pods.values():
        place = id(pod.template)
        if (known := templates.get(place)) is not None:
            at = pod.started_at or 0.0
            counts[place] += 1
            started[place] = max(started.get(place, 0.0), at)
            revision = pod.template.workload, known.revision
            newest_of[revision] = max(newest_of.get(revision, 0.0), at)

    def precedence(place: int) -> tuple[float, int, float]:
        known = templates[place]
        return newest_of.get((known.workload, known.revision), 0.0), counts[place], started.get(place, 0.0)

    for place in sorted(templates, key=precedence):
        yield templates[place], counts[place]


def _exceeded_limit(template: "PodTemplate", restart: "ContainerRestart") -> bool:
    """Return whether a container was killed at its memory limit, not because its node ran out of memory."""
    has_limit = template.pod is not None and bool(template.pod.memory_limit_bytes)
    return restart.was_out_of_memory and (has_limit or _memory(template, restart)[1] > 0)


def _memory(template: "PodTemplate", restart: "ContainerRestart") -> tuple[float, float]:
    """Return the request and the limit of memory of a restarted container, bytes; 0 without one."""
    for each in template.containers:
        if each.name == restart.container:
            return float(each.memory_request_bytes or 0), float(each.memory_limit_bytes or 0)
    return 0.0, 0.0


def _read(template: "PodTemplate", index: dict[ContainerKey, int]) -> _Template:
    containers, facts = {}, []
    for each in template.containers:
        place = index.setdefault(ContainerKey(template.workload, each.name), len(index))
        requests = (each.cpu_request_milli or 0) / 1000, float(each.memory_request_bytes or 0)
        limits = (each.cpu_limit_milli or 0) / 1000, float(each.memory_limit_bytes or 0)
        containers[each.name] = (place, *requests)
        facts.append((place, int(each.role), *requests, *limits))
    for name in template.init_containers:
        place = index.setdefault(ContainerKey(template.workload, name), len(index))
        containers[name] = (place, 0.0, 0.0)
        facts.append((place, int(ContainerRole.INIT), 0.0, 0.0, 0.0, 0.0))
    has_pod_requests = [bool(amount) for amount in template.pod.amounts[:2]] if template.pod else [False, False]
    return _Template(
        template.workload, _number(template.revision), containers, facts, has_pod_requests, template.is_guaranteed
    )


def _number(revision: str) -> int:
    """Return a number that identifies a revision in all runs of the watcher; 0 if the revision is not known."""
    return int.from_bytes(blake2b(revision.encode(), digest_size=8).digest(), signed=True) if revision else 0
