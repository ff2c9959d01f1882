"""Our programs with real nodes: processes with the accounts and rights of the shipped manifests."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import requests
import yaml
from control_plane.api import names
from control_plane.cluster import ControlPlane
from control_plane.moving import PODS
from control_plane.rights import grant_rights
from control_plane.scheduler import Scheduler
from real_nodes.cluster import RealCluster
from real_nodes.images import WORKER_IMAGE
from real_nodes.node import Node
from support.servers import Service, wait_until

DEPLOY = Path(__file__).parents[2] / "deploy"
_KUBELET = DEPLOY / "kustomize/components/kubelet/kustomization.yaml"


def grant_shipped_rights(cluster: ControlPlane, *more: str) -> None:
    """Create the accounts of shipped manifests, with the watcher's right to read kubelets, which is a component."""
    manifests = ("watcher", "extender", "nodes", "rebalancer", "rebalancer-act", *more)
    grant_rights(cluster, *(DEPLOY / f"kubernetes/{name}.yaml" for name in manifests))
    for patch in yaml.safe_load(_KUBELET.read_text())["patches"]:
        if patch["target"]["kind"] == "ClusterRole":
            path = f"/apis/rbac.authorization.k8s.io/v1/clusterroles/{patch['target']['name']}"
            headers = {"Content-Type": "application/json-patch+json"}
            cluster.api.request("PATCH", path, json=yaml.safe_load(patch["patch"]), headers=headers)


def account(cluster: ControlPlane, name: str) -> Path:
    """Return a kubeconfig with the token of a shipped account."""
    return cluster.kubeconfig(name, token=cluster.service_account("trimaran", f"trimaran-{name}").token)


@contextmanager
def run_watcher(cluster: ControlPlane, *arguments: str, provider: str = "Kubelet", name: str = "") -> Iterator[Service]:
    """Run ``trimaran watch`` with the shipped account.

    Args:
        cluster: cluster with the nodes.
        arguments: further arguments.
        provider: source of the metrics.
        name: name of its store and its log; the provider's by default.
    """
    file = cluster.folder / (name or f"watcher-{provider}")
    environment = {
        "TRIMARAN_KUBELET__CA_FILE": str(cluster.certificates.certificate),
        "KUBE_CONFIG": str(account(cluster, "watcher")),
    }  # fmt: skip
    service = Service(
        file.with_suffix(".sqlite"), file.with_suffix(".log"), "--provider", provider, *arguments, **environment
    )
    try:
        yield service
    finally:
        service.close()


def load_of_nodes(service: Service, kind: str = "CPU", window: str = "") -> tuple[dict[str, float], float, float]:
    """Return the mean load of each measured node, percent, and the begin and end of its window, Unix seconds.

    Args:
        service: watcher.
        kind: type of the metric.
        window: window instead of the default one.
    """
    response = service.get(f"/watcher?window={window}" if window else "/watcher")
    if response.status_code != requests.codes.ok:
        return {}, 0, 0
    body = response.json()
    loads = {
        name: metric["value"] for name, node in body["data"].items() for metric in node["metrics"]
        if (metric["type"], metric["operator"]) == (kind, "AVG") and not node["metadata"].get("grade")
    }  # fmt: skip
    return loads, body["window"]["start"], body["window"]["end"]


def container(
    requests: Mapping[str, str] | None = None, limits: Mapping[str, str] | None = None, **behavior: object
) -> dict[str, Any]:
    """Return a container of the worker, with the variables that ``worker/main.go`` lists."""
    return {
        "name": "worker", "image": WORKER_IMAGE, "imagePullPolicy": "Never",
        "env": [{"name": name, "value": str(value)} for name, value in behavior.items()],
        "resources": {"requests": dict(requests or {}), "limits": dict(limits or {})},
    }  # fmt: skip


def deployment(
    name: str, replicas: int, *containers: Mapping[str, Any], annotations: Mapping[str, str] | None = None, **spec: Any
) -> dict[str, Any]:
    """Return a Deployment with these containers and fields of the pods' spec."""
    labels = {"app": name}
    template = {
        "metadata": {"labels": labels, "annotations": dict(annotations or {})},
        "spec": {"terminationGracePeriodSeconds": 2, "containers": list(containers), **spec},
    }
    return {
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": "default"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template},
    }  # fmt: skip


def single(name: str, *containers: Mapping[str, Any], **spec: Any) -> dict[str, Any]:
    """Return a pod of containers that are not restarted, with these fields of its spec."""
    return {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": list(containers), "restartPolicy": "Never", "terminationGracePeriodSeconds": 1, **spec},
    }  # fmt: skip


def growing(node: Node) -> dict[str, Any]:
    """Return a pod ``growing`` on a node, which takes more and more of its memory, until the kubelet evicts it.

    The kubelet checks every 10 s. The pod needs 50 from its threshold to the node's limit, where the kernel would kill.
    """
    requests = {"cpu": "100m", "memory": "8Mi"}
    grows = container(requests, MEMORY=node.memory_mebibytes, GROW=2)
    holds = {**container(requests, MEMORY=node.memory_mebibytes * 2 // 5), "name": "holds"}
    return single("growing", grows, holds, nodeName=node.name)


def on_node(name: str) -> dict[str, Any]:
    """Return a node selector for one node, a field of a pod's spec."""
    return {"nodeSelector": {"kubernetes.io/hostname": name}}


def pods_of(cluster: ControlPlane, app: str) -> Sequence[dict[str, Any]]:
    """Return the pods of a Deployment."""
    return cluster.api.items(PODS, labelSelector=f"app={app}")


def running(cluster: ControlPlane, app: str) -> dict[str, str]:
    """Return the node of each running pod of a Deployment that is not terminating, by UID."""
    return {
        each["metadata"]["uid"]: each["spec"]["nodeName"] for each in pods_of(cluster, app)
        if each["status"].get("phase") == "Running" and "deletionTimestamp" not in each["metadata"]
    }  # fmt: skip


@contextmanager
def small_cluster(folder: Path, cores: float, *accounts: str) -> Iterator[RealCluster]:
    """Run two nodes of 512 MiB with a stock kube-scheduler, which prefers the node with fewer requests.

    Args:
        folder: folder of the cluster.
        cores: capacity of each node.
        accounts: further manifests of the shipped accounts.
    """
    with RealCluster(folder, [cores, cores], memory_mebibytes=512) as cluster:
        grant_shipped_rights(cluster, *accounts)
        with Scheduler(cluster, [{"schedulerName": "default-scheduler"}], verbosity=2):
            yield cluster


def remove_workloads(cluster: RealCluster) -> None:
    """Remove all Deployments, disruption budgets and pods of a test."""
    cluster.api.delete("/apis/apps/v1/namespaces/default/deployments")
    cluster.api.delete("/apis/policy/v1/namespaces/default/poddisruptionbudgets")
    wait_until(lambda: not cluster.api.items(PODS) or cluster.api.delete(PODS), "no pod is left", 90)


@contextmanager
def only(cluster: ControlPlane, name: str) -> Iterator[None]:
    """Let new pods run on one node only."""
    others = [f"/api/v1/nodes/{each}" for each in names(cluster.api.items("/api/v1/nodes")) if each != name]
    for path in others:
        cluster.api.patch(path, {"spec": {"unschedulable": True}})
    try:
        yield
    finally:
        for path in others:
            cluster.api.patch(path, {"spec": {"unschedulable": None}})
