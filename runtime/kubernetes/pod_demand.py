"""Requests and limits of a pod, as the Trimaran plugins, Peaks and kube-scheduler count them.

Amounts are integers: millicores for ``cpu``, bytes or pieces for the rest. Sums saturate at the largest 64-bit
integer; kube-scheduler's wrap.
"""

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Protocol

from runtime.kubernetes.objects import CPU, MEMORY, CachedRequests, Container, Pod, RequestKey, ResourceList
from runtime.kubernetes.quantity import MAX_INT64

# Requests that kube-scheduler's scores assume for containers without requests, so that such pods are spread.
NON_ZERO_REQUESTS: Mapping[str, int] = {CPU: 100, MEMORY: 200 * 1024 * 1024}


_MAX_ENTRIES = 10_000
_MAX_KEY_BYTES = 4 << 20  # of all keys as text: the cache then takes tens of MB at most


class RequestCache:
    """Cache of computed amounts, with one entry for all pods with equal requests, such as a workload's replicas.

    Thread-safe.
    """

    def __init__(self) -> None:
        self._entries: dict[RequestKey, CachedRequests] = {}
        self._key_bytes = 0  # approximate, since concurrent additions may be lost

    def lookup(self, key: RequestKey) -> CachedRequests:
        """Return the entry for pods with these requests."""
        known = self._entries.get(key)
        if known is not None:
            return known
        if len(self._entries) >= _MAX_ENTRIES or self._key_bytes >= _MAX_KEY_BYTES:
            self._entries.clear()  # frees the entries of deleted pods; existing pods keep their reference
            self._key_bytes = 0
        self._key_bytes += len(repr(key))
        return self._entries.setdefault(key, CachedRequests())


class _Amount(Protocol):
    def __call__(self, pod: Pod, resource: str) -> int: ...


def _cached(count: Callable[[Pod, str], int]) -> _Amount:
    """Decorate a function of pod and resource so that it uses the pod's cache, if the pod has one."""
    function_name = count.__name__

    @wraps(count)
    def counted(pod: Pod, resource: str) -> int:
        if pod.cached_requests is None:
            return count(pod, resource)
        known = pod.cached_requests.amounts
        amount = known.get((resource, function_name))
        if amount is None:
            amount = known[resource, function_name] = count(pod, resource)
        return amount

    return counted


@_cached
def requests(pod: Pod, resource: str) -> int:
    """Return the pod's request as the Trimaran plugins count it.

    The sum of the containers, each rounded up, or the largest init container if that is more, plus the overhead. If the
    result is zero, the amount in the pod's annotation counts.
    """
    total = sum([container.requests.amount(resource) for container in pod.containers])
    for container in pod.init_containers:
        total = max(total, container.requests.amount(resource))
    return _with_overhead(pod, resource, total)


def requested(pod: Pod) -> Mapping[str, int]:
    """Return :func:`requests` for every resource that the pod names. Callers must not change the mapping."""
    known = pod.cached_requests
    if known is not None and known.requested is not None:
        return known.requested
    amounts = {name: requests(pod, name) for name in resource_names(pod)}
    if known is not None:
        known.requested = amounts
    return amounts


def limits(pod: Pod, resource: str) -> int:
    """Return the pod's limit as LowRiskOverCommitment counts it: like :func:`requests`, but at least the request."""
    total = sum([container.limits.amount(resource) for container in pod.containers])
    for container in pod.init_containers:
        total = max(total, container.limits.amount(resource))
    return max(_with_overhead(pod, resource, total), requests(pod, resource))


def peaks_cpu(pod: Pod) -> int:
    """Return the CPU request in millicores as Peaks counts it.

    The exact sum of the containers, or the largest init container if that is more; plus the overhead, unless the sum is
    zero; rounded up at the end. Source: ``GetResourceRequestQuantity`` of k8s.io/kubernetes/pkg/api/v1/resource.
    """
    total = sum(container.requests.nano(CPU) for container in pod.containers)
    total = max([total, *(container.requests.nano(CPU) for container in pod.init_containers)])
    if total:
        total += pod.overhead.nano(CPU)
    return _round_up(total, CPU)


def in_tree_requests(pod: Pod, resource: str, *, non_zero: bool = False) -> int:
    """Return the pod's request as kube-scheduler counts it.

    Exact amounts are summed, and the result is rounded up. Sidecars (restartable init containers) run at the same time
    as the containers, and an ordinary init container at the same time as the sidecars before it. A pod-level request
    replaces the sum. During an in-place resize, the maximum of the desired, actual and allocated requests counts. The
    node's resources that the pod's resource claims hold are added to those of the containers. Source: ``PodRequests``
    of k8s.io/component-helpers/resource.

    Args:
        pod: the pod.
        resource: name of the resource.
        non_zero: True to assume :data:`NON_ZERO_REQUESTS` for a container without a request. In a pod with requests as
            a whole, this applies only to resources that neither the pod nor a container requests
            (``getNonMissingContainerRequests`` of kube-scheduler's framework).
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
    """Return the request that NodeResourcesFit's score counts for a pending pod.

    A container without a request counts with NON_ZERO_REQUESTS (100m CPU, 200 MiB). Up to kube-scheduler 1.37, this
    score ignores pod-level requests (``spec.resources``); the filter, the other scores and the sums over placed pods
    include them. Source: ``NewFit`` of the plugin noderesources.
    """
    total = _containers_nano(pod, resource, NON_ZERO_REQUESTS.get(resource, 0)) + pod.overhead.nano(resource)
    return _round_up(total, resource) or pod.annotated.amount(resource)


def filter_requests(pod: Pod) -> tuple[tuple[str, int], ...]:
    """Return the resources with a nonzero request, and the amounts as kube-scheduler's filter counts them."""
    known = pod.cached_requests
    if known is not None and known.filter_requests is not None:
        return known.filter_requests
    amounts = ((name, in_tree_requests(pod, name)) for name in resource_names(pod))
    nonzero = tuple([(name, amount) for name, amount in amounts if amount])
    if known is not None:
        known.filter_requests = nonzero
    return nonzero


def resource_names(pod: Pod) -> set[str]:
    """Return the names of all resources in the pod's requests, limits, overhead, annotations and resource claims."""
    resources = {*pod.overhead, *pod.annotated, *pod.requests, *(pod.claimed or ())}
    for container in (*pod.containers, *pod.init_containers):
        resources.update(container.requests, container.limits)
    return resources


def _listed(pod: Pod, resource: str) -> bool:
    """Return whether the overhead or a container requests the resource."""
    containers = (*pod.containers, *pod.init_containers)
    return resource in pod.overhead or any(resource in each.requests for each in containers)


def _containers_nano(pod: Pod, resource: str, default: int) -> int:
    """Return the containers' exact request in billionths, with a default for containers without one."""

    def nano(container: Container) -> int:
        container_requests = container.requests if container.resized is None else container.resized
        if default and resource not in container_requests:
            return ResourceList({resource: default}).nano(resource)
        return container_requests.nano(resource)

    # An init container runs with the sidecars started before it; the containers run with all sidecars.
    total = sum([nano(container) for container in pod.containers])
    sidecars = peak = 0
    for container in pod.init_containers:
        if container.restartable:
            sidecars += nano(container)
            peak = max(peak, sidecars)
        else:
            peak = max(peak, sidecars + nano(container))
    return max(total + sidecars, peak) + (0 if pod.claimed is None else pod.claimed.nano(resource))


def _with_overhead(pod: Pod, resource: str, total: int) -> int:
    return min(total + pod.overhead.amount(resource), MAX_INT64) or pod.annotated.amount(resource)


def _round_up(nano: int, resource: str) -> int:
    return min(-(-nano // (10**6 if resource == CPU else 10**9)), MAX_INT64)
