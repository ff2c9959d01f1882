"""What a pod asks for, counted in each of the ways Kubernetes schedulers count it.

Amounts are integers: millicores for ``cpu``, bytes or pieces for the rest.
"""

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Protocol

from runtime.kubernetes.objects import CPU, MEMORY, CachedRequests, Container, Pod, RequestKey, ResourceList

# kube-scheduler spreads containers without requests as if they asked for this.
NON_ZERO_REQUESTS: Mapping[str, int] = {CPU: 100, MEMORY: 200 * 1024 * 1024}


_MOST_KEPT = 10_000
_MOST_TEXT = 4 << 20  # of all that is kept, written out: some tens of MB, whatever pods are made up


class RequestCache:
    """Where what is counted of pods is kept, once for all that ask for the same, as a workload's replicas do.

    Threads may share it.
    """

    def __init__(self) -> None:
        self._known: dict[RequestKey, CachedRequests] = {}
        self._text = 0  # about: threads may lose some of it

    def lookup(self, asks: RequestKey) -> CachedRequests:
        """Return where it is kept of pods that ask for this."""
        known = self._known.get(asks)
        if known is not None:
            return known
        if len(self._known) >= _MOST_KEPT or self._text >= _MOST_TEXT:
            self._known.clear()  # pods keep what they have; what pods that are gone have left is freed
            self._text = 0
        self._text += len(repr(asks))
        return self._known.setdefault(asks, CachedRequests())


class _Amount(Protocol):
    def __call__(self, pod: Pod, resource: str) -> int: ...


def _cached(count: Callable[[Pod, str], int]) -> _Amount:
    """Have an amount counted once for pods that keep what was counted."""
    way = count.__name__

    @wraps(count)
    def counted(pod: Pod, resource: str) -> int:
        if pod.cached_requests is None:
            return count(pod, resource)
        known = pod.cached_requests.amounts
        amount = known.get((resource, way))
        if amount is None:
            amount = known[resource, way] = count(pod, resource)
        return amount

    return counted


@_cached
def requests(pod: Pod, resource: str) -> int:
    """Return the pod's request as Trimaran counts it.

    Containers are summed, each rounded up by itself; the sum is raised to each init container's; overhead is added.
    An annotation counts when that comes to zero.
    """
    total = sum([container.requests.amount(resource) for container in pod.containers])
    for container in pod.init_containers:
        total = max(total, container.requests.amount(resource))
    return _with_overhead(pod, resource, total)


def requested(pod: Pod) -> Mapping[str, int]:
    """Return :func:`requests` by resource, of every resource that the pod names; not to be changed."""
    known = pod.cached_requests
    if known is not None and known.requested is not None:
        return known.requested
    amounts = {name: requests(pod, name) for name in resource_names(pod)}
    if known is not None:
        known.requested = amounts
    return amounts


def limits(pod: Pod, resource: str) -> int:
    """Return the pod's limit as LowRiskOverCommitment counts it: like :func:`requests`, and at least the request."""
    total = sum([container.limits.amount(resource) for container in pod.containers])
    for container in pod.init_containers:
        total = max(total, container.limits.amount(resource))
    return max(_with_overhead(pod, resource, total), requests(pod, resource))


def peaks_cpu(pod: Pod) -> int:
    """Return the CPU request in millicores as Peaks counts it.

    Source: ``GetResourceRequestQuantity`` of k8s.io/kubernetes/pkg/api/v1/resource: exact quantities are summed and
    raised to each init container's, overhead is added only to a sum that is not zero, and the result is rounded up.
    """
    total = sum(container.requests.nano(CPU) for container in pod.containers)
    total = max([total, *(container.requests.nano(CPU) for container in pod.init_containers)])
    if total:
        total += pod.overhead.nano(CPU)
    return _round_up(total, CPU)


def in_tree_requests(pod: Pod, resource: str, *, non_zero: bool = False) -> int:
    """Return the pod's request as kube-scheduler counts it.

    Source: ``PodRequests`` of k8s.io/component-helpers/resource. Sidecars (restartable init containers) run beside the
    containers; an ordinary init container runs beside the sidecars started before it. Exact amounts are summed, the
    result is rounded up. What the pod requests as a whole replaces that sum. What is resized in place counts as the
    most of what is wanted and what is held.

    Args:
        pod: the pod.
        resource: the resource's name.
        non_zero: count a container without a request as :data:`NON_ZERO_REQUESTS`; beside requests of the whole pod
            only where nobody requests the resource (``getNonMissingContainerRequests`` of kube-scheduler's framework).
    """
    return _non_zero_requests(pod, resource) if non_zero else _in_tree_requests(pod, resource)


@_cached
def _in_tree_requests(pod: Pod, resource: str) -> int:
    nano = pod.requests.nano(resource) if resource in pod.requests else _containers_nano(pod, resource, 0)
    return _round_up(nano + pod.overhead.nano(resource), resource) or pod.annotated.amount(resource)


@_cached
def _non_zero_requests(pod: Pod, resource: str) -> int:
    if resource in pod.requests or (pod.requests and _listed(pod, resource)):
        return _in_tree_requests(pod, resource)
    nano = _containers_nano(pod, resource, NON_ZERO_REQUESTS.get(resource, 0)) + pod.overhead.nano(resource)
    return _round_up(nano, resource) or pod.annotated.amount(resource)


@_cached
def fit_score_requests(pod: Pod, resource: str) -> int:
    """Return what NodeResourcesFit's score adds for a pending pod, containers without a request counted as spread.

    The score of kube-scheduler, 1.36 included, does not know what the pod requests as a whole; its filter, its other
    scores and its sums of placed pods do. Source: ``NewFit`` of its plugin noderesources.
    """
    total = _containers_nano(pod, resource, NON_ZERO_REQUESTS.get(resource, 0)) + pod.overhead.nano(resource)
    return _round_up(total, resource) or pod.annotated.amount(resource)


def filter_requests(pod: Pod) -> tuple[tuple[str, int], ...]:
    """Return the resources that the pod requests any of, each with the amount as kube-scheduler counts it."""
    known = pod.cached_requests
    if known is not None and known.filter_requests is not None:
        return known.filter_requests
    amounts = ((name, in_tree_requests(pod, name)) for name in resource_names(pod))
    found = tuple([each for each in amounts if each[1]])
    if known is not None:
        known.filter_requests = found
    return found


def resource_names(pod: Pod) -> set[str]:
    """Return every resource that the pod names."""
    found = {*pod.overhead, *pod.annotated, *pod.requests}
    for container in (*pod.containers, *pod.init_containers):
        found.update(container.requests, container.limits)
    return found


def _listed(pod: Pod, resource: str) -> bool:
    containers = (*pod.containers, *pod.init_containers)
    return resource in pod.overhead or any(resource in each.requests for each in containers)


def _containers_nano(pod: Pod, resource: str, default: int) -> int:
    def nano(container: Container) -> int:
        held = container.requests if container.resized is None else container.resized
        if default and resource not in held:
            return ResourceList({resource: default}).nano(resource)
        return held.nano(resource)

    total = sum([nano(container) for container in pod.containers])
    sidecars = peak = 0
    for container in pod.init_containers:
        if container.restartable:
            sidecars += nano(container)
            peak = max(peak, sidecars)
        else:
            peak = max(peak, sidecars + nano(container))
    return max(total + sidecars, peak)


def _with_overhead(pod: Pod, resource: str, total: int) -> int:
    return total + pod.overhead.amount(resource) or pod.annotated.amount(resource)


def _round_up(nano: int, resource: str) -> int:
    return -(-nano // (10**6 if resource == CPU else 10**9))
