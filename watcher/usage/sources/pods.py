"""Running pods: the workload, the revision and the containers' requests of each."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from runtime.http.gather import Deadline
from runtime.kubernetes.workloads import ContainerRole, Workload

if TYPE_CHECKING:
    from watcher.windows.container_use import ContainerUse  # imports numpy

RECENT_SECONDS: Final = 900.0
"""Time after its newest measurement from which a pod or a container counts as ended: three rounds."""
DAYS: Final = 14
"""Days of which histograms, highest memory, restarts and kills count."""
_OF_KUBECTL_DEBUG = re.compile("debugger-[a-z0-9]{5}")


class PodKey(NamedTuple):
    """Namespace and name of a pod."""

    namespace: str
    name: str


class ContainerResources(NamedTuple):
    """Requests and limits of a container; None for an amount that is not set.

    Attributes:
        name: name of the container.
        cpu_request_milli: CPU request, millicores.
        memory_request_bytes: memory request.
        cpu_limit_milli: CPU limit, millicores.
        memory_limit_bytes: memory limit.
        role: kind of container, such as a sidecar.
    """

    name: str
    cpu_request_milli: int | None = None
    memory_request_bytes: int | None = None
    cpu_limit_milli: int | None = None
    memory_limit_bytes: int | None = None
    role: ContainerRole = ContainerRole.UNKNOWN

    @property
    def amounts(self) -> tuple[int | None, ...]:
        """CPU request, memory request, CPU limit and memory limit."""
        return self.cpu_request_milli, self.memory_request_bytes, self.cpu_limit_milli, self.memory_limit_bytes


@dataclass(frozen=True, slots=True)
class PodTemplate:
    """Part of a pod that the pods of one revision share; equal templates are one object, so ``is`` compares them.

    Attributes:
        workload: the pod's workload.
        revision: hash of the template, by ``pod-template-hash`` or ``controller-revision-hash``; "" if unknown.
        containers: the containers, then the sidecars (init containers that keep running).
        init_containers: names of the other init containers.
        is_guaranteed: whether the pods have the QoS class Guaranteed.
        pod: requests and limits of the pod as a whole (``spec.resources``); None without any.
        is_complete: whether the source names all containers, so that any other one is ephemeral.
        requests: millicores and bytes that kube-scheduler counts for such a pod, with its init containers, overhead and
            an unfinished resize; None for the sum of the containers.
    """

    workload: Workload
    revision: str
    containers: tuple[ContainerResources, ...]
    init_containers: tuple[str, ...] = ()
    is_guaranteed: bool = False
    pod: ContainerResources | None = None
    is_complete: bool = False
    requests: tuple[int, int] | None = None

    def is_ephemeral(self, container: str) -> bool:
        """Return whether a container that the template does not name was added to a pod, as ``kubectl debug`` does."""
        return self.is_complete or _OF_KUBECTL_DEBUG.fullmatch(container) is not None


def requested(template: PodTemplate) -> tuple[int, int]:
    """Return the millicores and bytes that a pod requests."""
    if template.requests is not None:
        return template.requests
    amounts = [(each.cpu_request_milli or 0, each.memory_request_bytes or 0) for each in template.containers]
    return sum(milli for milli, _ in amounts), sum(memory for _, memory in amounts)


class ContainerRestart(NamedTuple):
    """Last restart of a container in a running pod.

    Attributes:
        container: name of the container.
        ended_at: end of the run before, Unix seconds.
        was_out_of_memory: whether that run was killed for lack of memory.
    """

    container: str
    ended_at: float
    was_out_of_memory: bool


class RunningPod(NamedTuple):
    """Pod that is bound to a node and has not finished.

    Attributes:
        template: workload, revision and containers of the pod.
        started_at: start of the pod, Unix seconds; None if unknown.
        uid: identity of the pod, which no other pod of its name has; "" if unknown.
        node: name of the pod's node; "" if unknown.
        restarts: last restart of each container that was restarted; None if the source does not know restarts.
    """

    template: PodTemplate
    started_at: float | None
    uid: str = ""
    node: str = ""
    restarts: tuple[ContainerRestart, ...] | None = None


RunningPods = Mapping[PodKey, RunningPod]

Capacity = tuple[float, float]
"""Cores and bytes that pods may request on all nodes together: the sums of the allocatable amounts."""


class PodSource(Protocol):
    """Source of the running pods: the Kubernetes API, or kube-state-metrics in a Prometheus."""

    def running(self, deadline: Deadline) -> RunningPods:
        """Return the running pods. The mapping does not change later.

        Raises:
            ProviderError: the pods are not known; the message has the reason and the remedy.
        """
        ...

    def killed(self, deadline: Deadline) -> Sequence[RunningPod]:
        """Return pods that have failed and still exist, with the kills for lack of memory of their containers.

        Raises:
            ProviderError: the pods cannot be read; the message has the reason.
        """
        ...

    def capacity(self, deadline: Deadline) -> Capacity | None:
        """Return the sum of all nodes' allocatable resources; None if the source does not know the nodes.

        Raises:
            ProviderError: the nodes cannot be read; the message has the reason.
        """
        ...

    @property
    def problems(self) -> tuple[str, ...]:
        """Problems of the last call of :meth:`running` that leave its result usable."""
        ...

    def close(self) -> None:
        """Stop following the pods."""
        ...


class UseObserver(Protocol):
    """Consumer of each round of pod use, such as the learner. It is called in the background, by one thread."""

    def observe(self, use: "ContainerUse", pods: RunningPods, capacity: Capacity | None = None) -> None:
        """Add the use that one round measured.

        Args:
            use: use of all containers; containers whose pods are not in ``pods`` have ended, or are not known yet.
            pods: the running pods.
            capacity: capacity of all nodes; None if unknown.
        """
        ...
