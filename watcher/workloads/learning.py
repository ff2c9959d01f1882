"""Learning of workloads live: each round of pod use is given to the learner, and its state is stored with the round.

The store is written in one transaction a round. After a kill the learner goes on with the last complete round.
"""

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Protocol

import numpy as np

from watcher.workload_table import ContainerKey, ContainerTable, WorkloadTable
from watcher.workloads.learner import MAX_WORKLOADS, QUANTILES, WorkloadLearner
from watcher.workloads.learner_state import UnreadableStateError, load_state, save_state
from watcher.workloads.use_round import UseRound

if TYPE_CHECKING:
    from watcher.windows.container_use import ContainerUse
    from watcher.workloads.pods import PodTemplate, RunningPods

_log = logging.getLogger(__name__)


class WorkloadStore(Protocol):
    """Part of the watcher's store that holds the state of the learner."""

    def save_workloads(self, source: str, state: Callable[[set[str]], Mapping[str, bytes | None]]) -> None:
        """Write the state in one transaction."""
        ...

    def load_workloads(self, source: str) -> dict[str, bytes]:
        """Return the stored state."""
        ...


class WorkloadLearning:
    """Learner of a watcher, with its stored state. Threads may share it.

    Args:
        store: the watcher's store.
        source: name of the source of the measurements in the store.
        max_workloads: number of workloads above which the least recently seen are forgotten.
    """

    def __init__(self, store: WorkloadStore, source: str, max_workloads: int = MAX_WORKLOADS) -> None:
        self._store, self._source, self._max_workloads = store, source, max_workloads
        self._lock = threading.Lock()
        self._loaded: WorkloadLearner | None = None
        self._table: WorkloadTable | None = None

    def observe(self, use: "ContainerUse", pods: "RunningPods") -> None:
        """Learn from a round of pod use, and store what is known then."""
        with self._lock:
            learner = self._learner()
            measured = use_round(use, pods, learner.time)
            if measured is None:
                return
            learner.observe(measured)
            self._table = None
            self._store.save_workloads(self._source, lambda stored: save_state(learner, stored))

    def table(self) -> WorkloadTable:
        """Return the expected use of a pod of each workload; the same object until the next round."""
        with self._lock:
            if self._table is None:
                self._table = self._learner().table()
            return self._table

    def containers(self, quantiles: tuple[float, ...] = QUANTILES) -> ContainerTable:
        """Return what is known of each container, with these quantiles of CPU use."""
        with self._lock:
            return self._learner().containers(quantiles)

    def _learner(self) -> WorkloadLearner:
        """Return the learner, with its stored state at the first call."""
        if self._loaded is None:
            self._loaded = WorkloadLearner(self._max_workloads)
            if parts := self._store.load_workloads(self._source):
                try:
                    self._loaded = load_state(parts, self._max_workloads)
                except UnreadableStateError as error:
                    _log.warning(
                        "the stored use of workloads is unreadable: learning begins", extra={"error": str(error)}
                    )
        return self._loaded


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
    measured_seconds, requests = np.full(count, seconds), np.zeros((2, count))
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
