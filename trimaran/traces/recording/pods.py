"""What is known of pods: what they ask for and who made them, from the Kubernetes API, else from kube-state-metrics."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from runtime.kubernetes import pod_demand
from runtime.kubernetes.objects import CPU, MEMORY
from scoring import Pod
from trimaran.traces.recording.history import History
from trimaran.traces.trace import NO_LIMIT

Key = tuple[str, str]
"""Namespace and name of a pod."""

_CRON_RUN = re.compile(r"-\d{8,}$")  # a CronJob's run is called by the minute that it is for
_FIXED = frozenset({"DaemonSet", "Node"})


@dataclass(frozen=True, slots=True)
class Known:
    """A pod as its user wrote it.

    Attributes:
        owner_kind: such as ``Deployment``; ``Pod`` of one that nobody made.
        owner: its name, with the namespace.
        node: where it was last; "" if unknown.
        requests: millicores and bytes.
        limits: the same; -1 without one.
    """

    owner_kind: str
    owner: str
    node: str
    requests: tuple[int, int]
    limits: tuple[int, int]

    @property
    def is_fixed(self) -> bool:
        """Whether no scheduler could place it elsewhere: it is of a DaemonSet, or a static pod."""
        return self.owner_kind in _FIXED


def from_api(manifests: Iterable[Mapping[str, Any]]) -> dict[Key, Known]:
    """Read v1 Pods; one that cannot be read is left out, as if it were gone: kube-state-metrics may know of it."""
    known = {}
    for manifest in manifests:
        try:
            pod = Pod.from_k8s(manifest)
        except ValueError:  # such as one that asks for more than any node has, which never ran
            continue
        kind, name = ("Pod", pod.name) if pod.owner is None else (pod.owner.kind, pod.owner.name)
        hashed = pod.labels.get("pod-template-hash")
        if kind == "ReplicaSet" and hashed and name.endswith(f"-{hashed}"):
            kind, name = "Deployment", name.removesuffix(f"-{hashed}")
        known[pod.namespace, pod.name] = Known(
            kind, _owner(pod.namespace, kind, name), pod.node_name,
            (pod_demand.in_tree_requests(pod, CPU), pod_demand.in_tree_requests(pod, MEMORY)),
            (_limit(pod, CPU), _limit(pod, MEMORY)),
        )  # fmt: skip
    return known


def from_kube_state_metrics(history: History, wanted: Iterable[Key], matchers: str) -> dict[Key, Known]:
    """Return what kube-state-metrics told of pods that are gone; those that it did not know are left out.

    Raises:
        HistoryError: it cannot be read.
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
        _amounts(history, way, resource, matchers) for way in ("requests", "limits") for resource in (CPU, MEMORY)
    )
    known = {}
    for key, labels in infos.items():
        kind, name = labels.get("created_by_kind", ""), labels.get("created_by_name", "")
        if kind in {"", "<none>"}:
            kind, name = "Pod", key[1]
        elif kind == "ReplicaSet" and (key[0], name) in deployments:
            kind, name = "Deployment", deployments[key[0], name]
        requests = cpu_requests.get(key, 0), memory_requests.get(key, 0)
        limits = cpu_limits.get(key, NO_LIMIT), memory_limits.get(key, NO_LIMIT)
        known[key] = Known(kind, _owner(key[0], kind, name), labels.get("node", ""), requests, limits)
    return known


def _amounts(history: History, way: str, resource: str, matchers: str) -> dict[Key, int]:
    """Return what the containers of each pod request, or are limited to, added up: millicores or bytes."""
    each = f"kube_pod_container_resource_{way}" + _selector(f'resource="{resource}"', matchers)
    by = "max by (namespace, pod, container)"  # there may be several kube-state-metrics
    scale = 1000 if resource == CPU else 1
    return {
        _key(labels): round(value * scale)
        for labels, value in history.latest(
            lambda back: f"sum by (namespace, pod) ({by} (max_over_time({each}[{back}])))"
        )
    }


def _selector(*matchers: str) -> str:
    return "{" + ",".join(filter(None, matchers)) + "}"


def _owner(namespace: str, kind: str, name: str) -> str:
    return f"{namespace}/{_CRON_RUN.sub('', name) if kind == 'Job' else name}"


def _limit(pod: Pod, resource: str) -> int:
    """Return a pod's limit; it has none where one of its containers has none."""
    if not pod.containers or not all(resource in container.limits for container in pod.containers):
        return NO_LIMIT
    return pod_demand.limits(pod, resource)


def _key(labels: Mapping[str, str]) -> Key:
    return labels.get("namespace", ""), labels.get("pod", "")
