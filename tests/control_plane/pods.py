"""A pod of the manifests or the chart as processes with its commands, files and service account."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from control_plane.cluster import ControlPlane
from control_plane.processes import Process


class PodRunner:
    """Runner for the containers of a Deployment or Job, each as a process in its own mount namespace.

    The pod's files exist only in these namespaces, not elsewhere on this machine.

    Args:
        cluster: cluster to which the objects were applied.
        documents: objects with one Deployment or Job, and at most one ConfigMap.
        namespace: namespace of the pod.

    Attributes:
        spec: spec of the pod.
        tls: folder that the containers see as ``/etc/trimaran-tls``.
    """

    def __init__(
        self, cluster: ControlPlane, documents: Iterable[Mapping[str, Any]], namespace: str = "trimaran"
    ) -> None:
        by_kind = {document["kind"]: document for document in documents}
        workload = by_kind.get("Deployment") or by_kind["Job"]
        self.spec: dict[str, Any] = workload["spec"]["template"]["spec"]
        self._cluster = cluster
        self._mounts = cluster.folder / f"mounts-{workload['metadata']['name']}"
        self.tls = self._mounts / "trimaran-tls"
        for folder in (self.tls, self._mounts / "trimaran"):
            folder.mkdir(parents=True)
        for name, text in by_kind.get("ConfigMap", {}).get("data", {}).items():
            self.write(f"trimaran/{name}", text)
        account = cluster.service_account(namespace, self.spec["serviceAccountName"])
        self.write("account/token", account.token)
        self.write("account/ca.crt", cluster.certificates.certificate.read_text())
        self.write("account/namespace", namespace)
        self.write("hosts", "127.0.0.1 localhost trimaran.trimaran\n")

    def write(self, name: str, text: str) -> None:
        """Write a file atomically, as a ConfigMap's volume does."""
        file = self._mounts / name
        file.parent.mkdir(parents=True, exist_ok=True)
        new = file.with_suffix(".new")
        new.write_text(text)
        new.replace(file)

    def run(self, *command: str, **environment: str) -> Process:
        """Start a container's command with these environment variables and those of every pod."""
        staged = (
            "mount -t tmpfs tmpfs /run && mkdir -p /run/secrets/kubernetes.io /run/work && "
            "mkdir -p /run/upper/trimaran /run/upper/trimaran-tls && "
            f"cp -r {self._mounts}/account /run/secrets/kubernetes.io/serviceaccount && "
            f"cp {self._mounts}/hosts /run/upper/hosts && "
            "mount -t overlay overlay -o lowerdir=/etc,upperdir=/run/upper,workdir=/run/work /etc && "
            f"mount --bind {self._mounts}/trimaran /etc/trimaran && mount --bind {self.tls} /etc/trimaran-tls && "
            'exec "$@"'
        )
        port = self._cluster.url.rpartition(":")[2]
        environment |= {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": port}
        inside = ["env", *(f"{name}={value}" for name, value in environment.items()), *command]
        log = self._mounts / f"{Path(command[0]).name}-{len(command)}.log"
        return Process(["unshare", "--mount", "--map-root-user", "sh", "-c", staged, "sh", *inside], log)
