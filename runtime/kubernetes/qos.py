"""Quality of service of pods: which pods a node under pressure ends first.

Source: ``ComputePodQOS`` of k8s.io/kubernetes/pkg/apis/core/v1/helper/qos.
"""

from typing import Final

from runtime.kubernetes.objects import CPU, MEMORY, Pod

GUARANTEED: Final = "Guaranteed"
BURSTABLE: Final = "Burstable"
BEST_EFFORT: Final = "BestEffort"
_CLASSES = frozenset({GUARANTEED, BURSTABLE, BEST_EFFORT})


def qos_class(pod: Pod) -> str:
    """Return a pod's class as the API server reports it; if unknown, derive it from the requests and limits."""
    if pod.qos in _CLASSES:
        return pod.qos
    if pod.requests or pod.limits:  # pod-level resources replace those of the containers
        whole = all(pod.limits.get(name) and pod.limits[name] == pod.requests.get(name) for name in (CPU, MEMORY))
        return GUARANTEED if whole else BURSTABLE
    containers = (*pod.containers, *pod.init_containers)
    named = {
        name
        for each in containers
        for amounts in (each.requests, each.limits)
        for name in (CPU, MEMORY)
        if amounts.get(name)
    }
    if not named:
        return BEST_EFFORT
    is_guaranteed = all(
        each.limits.get(name) and each.limits[name] == each.requests.get(name)
        for each in containers
        for name in (CPU, MEMORY)
    )
    return GUARANTEED if is_guaranteed else BURSTABLE
