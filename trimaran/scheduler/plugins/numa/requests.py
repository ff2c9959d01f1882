"""Requests of a pod that must fit into NUMA nodes: of each container, or of the whole pod."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from runtime.kubernetes.objects import CPU, Pod, ResourceList
from runtime.kubernetes.qos import BEST_EFFORT, GUARANTEED, qos_class
from runtime.kubernetes.quantity import MAX_INT64
from trimaran.scheduler.plugins.numa.zones import is_affine, is_extended

Amounts = Mapping[str, int]
"""Amounts by resource: millicores, bytes or pieces."""


@dataclass(frozen=True)
class NumaRequests:
    """Requests of a pod.

    Attributes:
        init: requests of each init container.
        app: requests of each container.
        pod: requests of the pod as a whole: the containers together, or the largest init container, and the overhead.
        guaranteed: whether the pod is Guaranteed, so that it gets exclusive CPUs and memory.
        ignored: whether the pod needs nothing that a NUMA node has: a BestEffort pod without extended resources.
    """

    init: tuple[Amounts, ...]
    app: tuple[Amounts, ...]
    pod: Amounts
    guaranteed: bool
    ignored: bool

    @classmethod
    def of(cls, pod: Pod) -> "NumaRequests":
        """Return the requests of a pod. Source: ``GetPodEffectiveRequest`` of scheduler-plugins."""
        init = tuple(_amounts(each.requests) for each in pod.init_containers)
        app = tuple(_amounts(each.requests) for each in pod.containers)
        whole = _sum(app)
        for each in init:
            whole = {name: max(whole.get(name, 0), each.get(name, 0)) for name in (*whole, *each)}
        quality = qos_class(pod)
        extended = any(map(is_extended, (name for each in (*init, *app) for name in each)))
        return cls(
            init, app, _sum((whole, _amounts(pod.overhead))), quality == GUARANTEED,
            quality == BEST_EFFORT and not extended,
        )  # fmt: skip


def has_exclusive_resources(pod: Pod) -> bool:
    """Return whether a pod gets exclusive resources: devices, or if it is Guaranteed whole CPUs or memory.

    Source: ``AreExclusiveForPod`` of scheduler-plugins v0.33.5.
    """
    guaranteed = qos_class(pod) == GUARANTEED
    return any(
        is_extended(name) or (guaranteed and is_affine(name) and amount > 0 and (name != CPU or amount % 1000 == 0))
        for container in (*pod.init_containers, *pod.containers)
        for name, amount in container.requests.items()
    )


def _amounts(resources: ResourceList) -> Amounts:
    return dict(resources.items())


def _sum(parts: Iterable[Amounts]) -> dict[str, int]:
    total: dict[str, int] = {}
    for each in parts:
        for name, amount in each.items():
            total[name] = min(total.get(name, 0) + amount, MAX_INT64)
    return total
