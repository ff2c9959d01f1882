"""Small clusters for tests of the rebalancer: manifests as the API server sends them, and the use of their pods."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import numpy as np

from runtime.kubernetes.disruption_budgets import DisruptionBudget
from runtime.kubernetes.objects import Node, Pod
from runtime.kubernetes.workloads import Workload
from scoring import NodeTable
from trimaran.rebalancer.eligibility import WorkloadState
from trimaran.rebalancer.facts import NodeFacts, PodFacts, ScalerFacts, WorkloadFacts
from trimaran.rebalancer.lineage import Member
from trimaran.rebalancer.look import ClusterLook
from trimaran.rebalancer.rules import CapLimits, Cooldowns, MoveRules, NodeRules, PodRules
from watcher.pod_use_table import HOURS, PERIODS, STEPS, PodUseTable

NOW = 1_795_000_200.0
CORES = 8
_DAY = 86400.0

#: Rules with the widest limits, for tests of what the plan itself does.
WIDE_RULES = MoveRules(
    holdout_percent=0, cooldowns=Cooldowns(pod=0, workload=0, node=0, refusal=0),
    caps=CapLimits(
        percent_per_hour=100, per_hour=1000, per_day=1000, open_moves=1000, node_per_hour=1000, namespace_per_hour=1000,
        workload_per_hour=1000,
    ),
    pods=PodRules(min_age=0, min_replicas=1, max_pod_percent=100),
    nodes=NodeRules(target_percent=79, bad_looks=1, good_looks=1, max_disagreement=1000),
)  # fmt: skip


def rfc3339(seconds: float) -> str:
    """Return a Unix time as Kubernetes writes it."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def node(name: str, **changes: Any) -> dict[str, Any]:
    """Return a Ready v1 Node with 8 cores and 32 GiB; ``changes`` replace parts of it by their path, as ``spec``."""
    amounts = {"cpu": str(CORES), "memory": "32Gi", "pods": "110"}
    manifest: dict[str, Any] = {
        "metadata": {"name": name, "uid": f"uid-of-{name}", "annotations": {}},
        "spec": {},
        "status": {"capacity": amounts, "allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]},
    }
    for part, fields in changes.items():
        manifest[part] = {**manifest[part], **fields}
    return manifest


def pod(
    name: str,
    on: str = "",
    *,
    of: str = "web",
    kind: str = "ReplicaSet",
    namespace: str = "default",
    ready_at: float | None = NOW - _DAY,
    created_at: float = NOW - _DAY - 10,
    request: str = "500m",
    metadata: Mapping[str, Any] | None = None,
    spec: Mapping[str, Any] | None = None,
    conditions: Sequence[Mapping[str, str]] = (),
    restarts: int = 0,
) -> dict[str, Any]:
    """Return a v1 Pod of a Deployment; ``on`` is its node, and ``ready_at`` None a pod that is not Ready."""
    owner_name = f"{of}-5d8f7c9b64" if kind == "ReplicaSet" else of
    owners = [{"kind": kind, "name": owner_name, "controller": True, "uid": owner_name}] if kind else []
    given = [dict(each) for each in conditions]
    if on:
        given.append({"type": "PodScheduled", "status": "True", "lastTransitionTime": rfc3339(created_at)})
    status = "False" if ready_at is None else "True"
    given.append({"type": "Ready", "status": status, "lastTransitionTime": rfc3339(ready_at or created_at)})
    labels = {"app": of, **({"pod-template-hash": "5d8f7c9b64"} if kind == "ReplicaSet" else {})}
    described = {
        "name": name, "namespace": namespace, "uid": f"uid-of-{namespace}-{name}", "labels": labels,
        "ownerReferences": owners, "creationTimestamp": rfc3339(created_at), "annotations": {},
        **(metadata or {}),
    }  # fmt: skip
    container = {"name": "main", "resources": {"requests": {"cpu": request, "memory": "256Mi"}}}
    return {
        "metadata": described,
        "spec": {"containers": [container], **({"nodeName": on} if on else {}), **(spec or {})},
        "status": {"phase": "Running", "conditions": given,
                   "containerStatuses": [{"name": "main", "restartCount": restarts}]},
    }  # fmt: skip


def member(manifest: Mapping[str, Any]) -> Member:
    """Return a pod with its facts."""
    read = Pod.from_k8s(manifest)
    return Member(read, PodFacts.from_k8s(manifest, read))


def deployment(name: str, replicas: int, kind: str = "Deployment", **status: Any) -> dict[str, Any]:
    """Return an apps/v1 workload that is not rolling out."""
    counts = {"observedGeneration": 1, "replicas": replicas, "updatedReplicas": replicas}
    return {"kind": kind, "metadata": {"name": name, "namespace": "default", "generation": 1},
            "spec": {"replicas": replicas}, "status": {**counts, **status}}  # fmt: skip


@dataclass
class World:
    """A cluster in which a test changes what it wants.

    Attributes:
        nodes, pods, workloads, budgets, scalers: manifests.
        cores: CPU use of each pod, cores, by name; 0.1 without one.
        measured: CPU load of nodes, percent; by default the sum of their pods.
        now: Unix time.
        use_age: age of the newest step of the pods' use, seconds.
        gone: manifests of pods that are gone, whose use the watcher still knows.
        waiting: share of the time for which pods waited for CPU, by name; 0 without one.
    """

    nodes: list[dict[str, Any]]
    pods: list[dict[str, Any]]
    workloads: list[dict[str, Any]] = field(default_factory=list)
    budgets: list[dict[str, Any]] = field(default_factory=list)
    scalers: list[dict[str, Any]] = field(default_factory=list)
    cores: dict[str, float] = field(default_factory=dict)
    measured: dict[str, float] = field(default_factory=dict)
    now: float = NOW
    use_age: float = 60.0
    gone: list[dict[str, Any]] = field(default_factory=list)
    waiting: dict[str, float] = field(default_factory=dict)

    def pod(self, name: str) -> dict[str, Any]:
        """Return the manifest of a pod."""
        return next(each for each in self.pods if each["metadata"]["name"] == name)

    def look(self) -> ClusterLook:
        """Return the state of the cluster, read from the manifests."""
        read = [Pod.from_k8s(each) for each in self.pods]
        return ClusterLook(
            table=NodeTable(map(Node.from_k8s, self.nodes), read),
            pods={one.uid: PodFacts.from_k8s(each, one) for each, one in zip(self.pods, read, strict=True)},
            nodes={each["metadata"]["name"]: NodeFacts.from_k8s(each) for each in self.nodes},
            pending=[one for one in read if not one.node_name],
            state=WorkloadState.of(
                {self._workload(each): WorkloadFacts.from_k8s(each) for each in self.workloads},
                map(DisruptionBudget.from_k8s, self.budgets),
                map(ScalerFacts.from_k8s, self.scalers),
            ),
            use=self._use(),
            measured={**self._sums(), **self.measured},
            window=(self.now - self.use_age - 900, self.now - self.use_age),
            now=self.now,
        )

    def _use(self) -> PodUseTable:
        pods = [Pod.from_k8s(each) for each in (*self.pods, *self.gone) if each["spec"].get("nodeName")]
        cores = np.array([self.cores.get(one.name, 0.1) for one in pods])
        begin = self.now - self.use_age - STEPS * 300
        return PodUseTable(
            timestamp=self.now - self.use_age,
            uids=[one.uid for one in pods],
            names=[f"{one.namespace}/{one.name}" for one in pods],
            nodes=[one.node_name for one in pods],
            workloads=[one.workload or Workload("", "", "") for one in pods],
            revisions=["" for _ in pods],
            since=np.full(len(pods), begin),
            last_seen=np.full(len(pods), self.now - self.use_age),
            cpu_cores=(cores[:, None] * np.ones(STEPS)).astype(np.float16),
            memory_gib=np.full((len(pods), PERIODS), 0.2, np.float16),
            courses=np.zeros((2, len(pods), HOURS), np.float16),
            waiting=np.array([self.waiting.get(one.name, 0.0) for one in pods]) if self.waiting else None,
        )

    def _sums(self) -> dict[str, float]:
        loads = {each["metadata"]["name"]: 0.0 for each in self.nodes}
        for each in self.pods:
            if each["spec"].get("nodeName"):
                loads[each["spec"]["nodeName"]] += 100 * self.cores.get(each["metadata"]["name"], 0.1) / CORES
        return loads

    @staticmethod
    def _workload(each: Mapping[str, Any]) -> Workload:
        return Workload(each["metadata"]["namespace"], each["kind"], each["metadata"]["name"])


def hot_and_cold() -> World:
    """Return a cluster with one hot node, whose five pods of five Deployments use 1.5 cores each, and two cold ones.

    Each Deployment has another, idle pod on the first cold node.
    """
    names = [f"app-{letter}" for letter in "abcde"]
    pods = [pod(f"{name}-hot", "node-hot", of=name) for name in names]
    pods += [pod(f"{name}-idle", "node-cold", of=name) for name in names]
    return World(
        nodes=[node("node-hot"), node("node-cold"), node("node-idle")],
        pods=pods,
        workloads=[deployment(name, 2) for name in names],
        cores={f"{name}-hot": 1.5 for name in names},
    )
