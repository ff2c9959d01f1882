"""One round of measurements of containers: the input of the learner, live and in a replay."""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np

from watcher.workload_table import Bools, ContainerKey, Float64s, Int64s

if TYPE_CHECKING:
    from watcher.windows.container_use import ContainerUse
    from watcher.workloads.pods import PodTemplate, RunningPods

MAX_USE = np.array([[10_000.0], [2.0**53]])
"""Largest plausible use and request of a container, cores and bytes; no machine has more."""


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
    """Containers of a pod template: index of each by name, and its requests in cores and bytes."""

    revision: int
    containers: dict[str, tuple[int, float, float]]


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
    names = zip(use.namespaces, use.pods, use.containers, strict=True)
    for row, (namespace, name, container_name) in enumerate(names):
        pod = pods.get((namespace, name))  # type: ignore[call-overload]  # a plain tuple equals a PodKey and is faster
        if pod is None:
            continue
        template = templates.get(id(pod.template))
        if template is None:
            template = templates[id(pod.template)] = _read(pod.template, index)
        known = template.containers.get(container_name)
        if known is None:  # a container that is not in the template, such as one for debugging
            key = ContainerKey(pod.template.workload, container_name)
            known = template.containers[container_name] = index.setdefault(key, len(index)), 0.0, 0.0
        container[row], requests[0, row], requests[1, row] = known
        revision[row] = template.revision
        if pod.started_at is not None:
            measured_seconds[row] = min(seconds, use.timestamp - pod.started_at)
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
    )


def _read(template: "PodTemplate", index: dict[ContainerKey, int]) -> _Template:
    containers = {}
    for each in template.containers:
        place = index.setdefault(ContainerKey(template.workload, each.name), len(index))
        containers[each.name] = (place, (each.cpu_request_milli or 0) / 1000, float(each.memory_request_bytes or 0))
    return _Template(_number(template.revision), containers)


def _number(revision: str) -> int:
    """Return a number that identifies a revision in all runs of the watcher; 0 if the revision is not known."""
    return int.from_bytes(blake2b(revision.encode(), digest_size=8).digest(), signed=True) if revision else 0
