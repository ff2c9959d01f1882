"""Requests, limits and owners of pods, from the Kubernetes API or from kube-state-metrics."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from runtime.kubernetes import pod_demand
from runtime.kubernetes.objects import CPU, MAX_AMOUNT, MEMORY
from runtime.kubernetes.workloads import ENDING_KINDS, Workload, workload_of
from scoring import Pod
from trimaran.traces.recording.history import PrometheusHistory
from trimaran.traces.trace import JOB, NO_LIMIT
from watcher.usage.sources.kube_state_containers import PodContainers
from watcher.usage.sources.kube_state_metrics import read_pods
from watcher.usage.sources.pods import PodKey

_NODE_BOUND = frozenset({"DaemonSet", "Node"})


@dataclass(frozen=True, slots=True)
class PodSpec:
    """Specification of a pod, as far as a trace records it.

    Attributes:
        owner_kind: kind of the owner, such as ``Deployment``; ``Pod`` if the pod has none.
        owner: ``namespace/name`` of the owner.
        node: last node of the pod; "" if unknown.
        requests: millicores and bytes.
        limits: millicores and bytes; -1 for no limit.
    """

    owner_kind: str
    owner: str
    node: str
    requests: tuple[int, int]
    limits: tuple[int, int]

    @property
    def is_node_bound(self) -> bool:
        """True for DaemonSet pods and static pods, which no scheduler could place elsewhere."""
        return self.owner_kind in _NODE_BOUND


def specs_from_api(manifests: Iterable[Mapping[str, Any]]) -> dict[PodKey, PodSpec]:
    """Return the specifications of Pod objects; unreadable ones are left out: kube-state-metrics may have them."""
    specs = {}
    for manifest in manifests:
        try:
            pod = Pod.from_k8s(manifest)
        except ValueError:  # no API server sends such a malformed Pod
            continue
        workload = workload_of(pod.namespace, pod.name, pod.labels, pod.owner)
        specs[PodKey(pod.namespace, pod.name)] = PodSpec(
            *_owner(workload), pod.node_name,
            (_request(pod, CPU), _request(pod, MEMORY)),
            (_limit(pod, CPU), _limit(pod, MEMORY)),
        )  # fmt: skip
    return specs


def specs_from_kube_state_metrics(
    history: PrometheusHistory, wanted: Iterable[PodKey], matchers: str
) -> dict[PodKey, PodSpec]:
    """Return the specifications of deleted pods from the metrics of kube-state-metrics; unknown pods are left out.

    Raises:
        HistoryError: the Prometheus cannot be queried.
    """

    def ask(selector: str, keep: str) -> Iterator[tuple[Mapping[str, str], float]]:
        return history.latest(lambda back: f"max by ({keep}) (max_over_time({selector}[{back}]))")

    return {
        key: PodSpec(
            *_owner(pod.workload), pod.node, pod.parts.requests, (_limited(pod.parts, 2), _limited(pod.parts, 3))
        )
        for key, pod in read_pods(ask, matchers, wanted=frozenset(wanted)).items()
    }


def _limited(parts: PodContainers, column: int) -> int:
    """Return a pod's own limit, or else the sum of its containers' limits; -1 (no limit) if a container has none."""
    overhead = parts.overhead[column - 2]
    if parts.pod is not None and (amount := parts.pod.amounts[column]) is not None:
        return min(amount + overhead, MAX_AMOUNT)
    amounts = [each.amounts[column] for each in parts.containers]
    known = [amount for amount in amounts if amount is not None]
    return min(sum(known) + overhead, MAX_AMOUNT) if known and len(known) == len(amounts) else NO_LIMIT


def _owner(workload: Workload) -> tuple[str, str]:
    """Return kind and name of a trace's owner; the kind of all workloads whose pods run to their end is Job."""
    kind = JOB if workload.kind in ENDING_KINDS else workload.kind
    return kind, f"{workload.namespace}/{workload.name}"


def _request(pod: Pod, resource: str) -> int:
    return min(pod_demand.in_tree_requests(pod, resource), MAX_AMOUNT)  # the largest amount in a trace


def _limit(pod: Pod, resource: str) -> int:
    """Return a pod's own limit, or else the sum of its containers' and sidecars' limits; -1 if one has none.

    The pod's overhead is added to the limit, as to the request.
    """
    overhead = pod.overhead.amount(resource)
    if resource in pod.limits:
        return min(pod.limits.amount(resource) + overhead, MAX_AMOUNT)
    lasting = [*pod.containers, *(each for each in pod.init_containers if each.restartable)]
    if not lasting or not all(resource in each.limits for each in lasting):
        return NO_LIMIT
    return min(sum(each.limits.amount(resource) for each in lasting) + overhead, MAX_AMOUNT)
