"""Requests, limits and owners of pods, from the Kubernetes API or from kube-state-metrics."""

import re
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from runtime.kubernetes import pod_demand
from runtime.kubernetes.objects import CPU, MEMORY
from scoring import Pod
from trimaran.traces.recording.history import PrometheusHistory
from trimaran.traces.trace import NO_LIMIT

PodKey = tuple[str, str]
"""Namespace and name of a pod."""

_CRON_RUN = re.compile(r"-\d{8,}$")  # a Job of a CronJob has its scheduled minute as suffix
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
        except ValueError:  # for example a request that is out of range; such a pod never ran
            continue
        kind, name = ("Pod", pod.name) if pod.owner is None else (pod.owner.kind, pod.owner.name)
        hashed = pod.labels.get("pod-template-hash")
        if kind == "ReplicaSet" and hashed and name.endswith(f"-{hashed}"):
            kind, name = "Deployment", name.removesuffix(f"-{hashed}")
        specs[pod.namespace, pod.name] = PodSpec(
            kind, _owner(pod.namespace, kind, name), pod.node_name,
            (pod_demand.in_tree_requests(pod, CPU), pod_demand.in_tree_requests(pod, MEMORY)),
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
    missing = frozenset(wanted)
    pods = "kube_pod_info" + _selector(matchers)
    infos = {
        key: labels
        for labels, _ in history.latest(lambda back: f"max_over_time({pods}[{back}])")
        if (key := _key(labels)) in missing
    }
    if not infos:
        return {}
    owners = "kube_replicaset_owner" + _selector('owner_kind="Deployment"', matchers)
    deployments = {
        (labels.get("namespace", ""), labels.get("replicaset", "")): labels.get("owner_name", "")
        for labels, _ in history.latest(lambda back: f"max_over_time({owners}[{back}])")
    }
    cpu_requests, memory_requests, cpu_limits, memory_limits = (
        _amounts(history, infos.keys(), kind, resource, matchers)
        for kind in ("requests", "limits")
        for resource in (CPU, MEMORY)
    )
    specs = {}
    for key, labels in infos.items():
        kind, name = labels.get("created_by_kind", ""), labels.get("created_by_name", "")
        if kind in {"", "<none>"}:
            kind, name = "Pod", key[1]
        elif kind == "ReplicaSet" and (key[0], name) in deployments:
            kind, name = "Deployment", deployments[key[0], name]
        requests = cpu_requests.get(key, 0), memory_requests.get(key, 0)
        limits = cpu_limits.get(key, NO_LIMIT), memory_limits.get(key, NO_LIMIT)
        specs[key] = PodSpec(kind, _owner(key[0], kind, name), labels.get("node", ""), requests, limits)
    return specs


def _amounts(
    history: PrometheusHistory, wanted: Container[PodKey], kind: str, resource: str, matchers: str
) -> dict[PodKey, int]:
    """Return the sum of the containers' requests or limits for each wanted pod, in millicores or bytes."""
    metric = f"kube_pod_container_resource_{kind}" + _selector(f'resource="{resource}"', matchers)
    by = "max by (namespace, pod, container)"  # several instances of kube-state-metrics report the same container
    scale = 1000 if resource == CPU else 1
    return {
        key: round(value * scale)
        for labels, value in history.latest(
            lambda back: f"sum by (namespace, pod) ({by} (max_over_time({metric}[{back}])))"
        )
        if (key := _key(labels)) in wanted
    }


def _selector(*matchers: str) -> str:
    return "{" + ",".join(filter(None, matchers)) + "}"


def _owner(namespace: str, kind: str, name: str) -> str:
    return f"{namespace}/{_CRON_RUN.sub('', name) if kind == 'Job' else name}"


def _limit(pod: Pod, resource: str) -> int:
    """Return a pod's limit, the sum over its containers; -1, no limit, if any container has no limit."""
    if not pod.containers or not all(resource in container.limits for container in pod.containers):
        return NO_LIMIT
    return pod_demand.limits(pod, resource)


def _key(labels: Mapping[str, str]) -> PodKey:
    return labels.get("namespace", ""), labels.get("pod", "")
