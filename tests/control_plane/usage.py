"""Simulated kubelets with usage from annotations, and a real metrics-server that reads it.

KWOK simulates every node's kubelet: it sets bound pods to Running, and serves ``/metrics/resource`` with the usage in
each pod's annotations. metrics-server scrapes KWOK as it scrapes any kubelet.
"""

from collections.abc import Mapping
from typing import Any, Self

import requests
from control_plane.builds import binary
from control_plane.cluster import ControlPlane
from control_plane.processes import Process
from support.ports import free_port, start_on_free_ports

CPU_ANNOTATION = "kwok.x-k8s.io/usage-cpu"
MEMORY_ANNOTATION = "kwok.x-k8s.io/usage-memory"
METRICS_API = "/apis/metrics.k8s.io/v1beta1"
_SETTINGS = (
    "metrics/resource/metrics-resource.yaml", "metrics/usage/usage-from-annotation.yaml",
    "stage/node/fast/node-initialize.yaml", "stage/pod/fast/pod-ready.yaml", "stage/pod/fast/pod-delete.yaml",
)  # fmt: skip
_COMPLETE_JOBS = "stage/pod/fast/pod-complete.yaml"


class Kwok:
    """Simulated kubelets of all nodes. Use it as a context manager, with nodes from :meth:`for_kwok`.

    Args:
        cluster: cluster with the nodes.
        completes_jobs: complete the pods of Jobs as soon as they run.
        leases: renew a Lease for each node, as kubelets do.
    """

    process: Process

    def __init__(self, cluster: ControlPlane, *, completes_jobs: bool = True, leases: bool = True) -> None:
        self._cluster, self._leases = cluster, leases
        self._settings = (*_SETTINGS, _COMPLETE_JOBS) if completes_jobs else _SETTINGS
        self._port = free_port()

    def for_kwok(self, node: Mapping[str, Any]) -> dict[str, Any]:
        """Return a Node with the addresses and annotations that direct metrics-server to KWOK."""
        name, status = node["metadata"]["name"], node["status"]
        path = {"metrics.k8s.io/resource-metrics-path": f"/metrics/nodes/{name}/metrics/resource"}
        return {
            **node,
            "metadata": {**node["metadata"], "annotations": {**node["metadata"].get("annotations", {}), **path}},
            "status": {
                **status,
                "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
                "daemonEndpoints": {"kubeletEndpoint": {"Port": self._port}},
            },
        }

    def __enter__(self) -> Self:
        program = binary("kwok")
        # Each file is one document; KWOK reads all of them from one file.
        texts = [(program.parent / "kustomize" / name).read_text() for name in self._settings]
        settings = self._cluster.folder / "kwok.yaml"
        settings.write_text("\n---\n".join(texts))

        def start(port: int) -> Process:
            if port != self._port:
                self._move_nodes(port)
            command = [
                program, "--kubeconfig", self._cluster.kubeconfig(), "--manage-all-nodes", "--config", settings,
                "--server-address", f"127.0.0.1:{port}", "--node-ip", "127.0.0.1", "--node-port", str(port),
            ]  # fmt: skip
            if not self._leases:
                command += ["--node-lease-duration-seconds", "0"]
            return Process(command, self._cluster.folder / "kwok.log")

        self.process = start_on_free_ports(start, first=self._port)
        healthy = f"http://127.0.0.1:{self._port}/healthz"
        self.process.wait_until(lambda: requests.get(healthy, timeout=5).ok, "KWOK is healthy")
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()

    def _move_nodes(self, port: int) -> None:
        """Write another port into the nodes that exist already, as theirs was taken."""
        for each in self._cluster.api.items("/api/v1/nodes"):
            endpoint = each["status"].get("daemonEndpoints", {}).get("kubeletEndpoint", {})
            if endpoint.get("Port") == self._port:
                status = {"status": {"daemonEndpoints": {"kubeletEndpoint": {"Port": port}}}}
                self._cluster.api.patch(f"/api/v1/nodes/{each['metadata']['name']}/status", status)
        self._port = port


class MetricsServer:
    """metrics-server, registered as the cluster's metrics API. Use it as a context manager.

    Args:
        cluster: cluster with the nodes.
        resolution_seconds: interval between scrapes; the first values come after two intervals.
    """

    process: Process

    def __init__(self, cluster: ControlPlane, resolution_seconds: int = 10) -> None:
        self._cluster = cluster
        self._resolution_seconds = resolution_seconds

    def __enter__(self) -> Self:
        self.process = start_on_free_ports(self._start)
        self._register()
        return self

    def _start(self, port: int) -> Process:
        self._port = port
        kubeconfig, certificate = self._cluster.kubeconfig(), self._cluster.serving_certificate
        command = [
            binary("metrics-server"), "--kubeconfig", kubeconfig, "--authentication-kubeconfig", kubeconfig,
            "--authorization-kubeconfig", kubeconfig, "--secure-port", str(port), "--bind-address", "127.0.0.1",
            "--tls-cert-file", certificate, "--tls-private-key-file", certificate, "--kubelet-insecure-tls",
            "--kubelet-preferred-address-types", "InternalIP", "--kubelet-use-node-status-port",
            "--metric-resolution", f"{self._resolution_seconds}s",
            "--kubelet-request-timeout", f"{self._resolution_seconds // 2}s",
        ]  # fmt: skip
        return Process(command, self._cluster.folder / "metrics-server.log")

    def __exit__(self, *_: object) -> None:
        self.process.kill()

    def wait_for(self, nodes: int, seconds: float = 60) -> list[dict[str, Any]]:
        """Wait until at least so many nodes have metrics; return the metrics of all nodes."""

        def measured() -> list[dict[str, Any]]:
            try:
                metrics = self._cluster.api.items(f"{METRICS_API}/nodes")
            except requests.HTTPError:
                return []
            return metrics if len(metrics) >= nodes else []

        metrics: list[dict[str, Any]] = self.process.wait_until(measured, f"{nodes} nodes have metrics", seconds)
        return metrics

    def _register(self) -> None:
        namespace = "kube-system"
        service = {
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "metrics-server", "namespace": namespace},
            "spec": {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": self._port}]},
        }  # fmt: skip
        registration = {
            "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
            "metadata": {"name": "v1beta1.metrics.k8s.io"},
            "spec": {
                "group": "metrics.k8s.io", "version": "v1beta1", "insecureSkipTLSVerify": True,
                "groupPriorityMinimum": 100, "versionPriority": 100,
                "service": {"name": "metrics-server", "namespace": namespace, "port": self._port},
            },
        }  # fmt: skip
        self._cluster.api.create(service)
        self._cluster.api.create(registration)
