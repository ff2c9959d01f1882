"""A real kube-controller-manager: workloads, disruption budgets, and the binding of volumes that exist to claims."""

from collections.abc import Sequence
from pathlib import Path
from typing import Self

import requests
from control_plane.builds import binary
from control_plane.cluster import ControlPlane
from control_plane.processes import Process
from support.ports import start_on_free_ports

# Only the controllers that create pods again or count them: nothing taints nodes or changes what tests write.
_CONTROLLERS = (
    "replicaset-controller", "deployment-controller", "statefulset-controller", "daemonset-controller",
    "job-controller", "cronjob-controller", "disruption-controller", "garbage-collector-controller",
    "persistentvolume-binder-controller",
)  # fmt: skip


class ControllerManager:
    """Controllers of workloads. Use it as a context manager: the controllers run when the block starts.

    Args:
        cluster: cluster with the workloads.
        controllers: names of the controllers.
        flags: further flags.
    """

    process: Process

    def __init__(self, cluster: ControlPlane, controllers: Sequence[str] = _CONTROLLERS, *flags: str | Path) -> None:
        self._cluster, self._controllers, self._flags = cluster, controllers, flags

    def __enter__(self) -> Self:
        self.process = start_on_free_ports(self._start)
        self.process.wait_until(self._is_healthy, "kube-controller-manager is healthy")
        return self

    def _start(self, port: int) -> Process:
        self._port = port
        kubeconfig, certificate = self._cluster.kubeconfig(), self._cluster.serving_certificate
        command = [
            binary("kube-controller-manager"), "--kubeconfig", kubeconfig, "--authentication-kubeconfig", kubeconfig,
            "--authorization-kubeconfig", kubeconfig, "--controllers", ",".join(self._controllers),
            "--leader-elect=false", "--kube-api-qps", "500", "--kube-api-burst", "1000",
            "--secure-port", str(port), "--bind-address", "127.0.0.1",
            "--tls-cert-file", certificate, "--tls-private-key-file", certificate,
            *self._flags,
        ]  # fmt: skip
        return Process(command, self._cluster.folder / "kube-controller-manager.log")

    def __exit__(self, *_: object) -> None:
        self.process.kill()

    def _is_healthy(self) -> bool:
        authority = str(self._cluster.certificates.certificate)
        return requests.get(f"https://127.0.0.1:{self._port}/healthz", verify=authority, timeout=60).ok
