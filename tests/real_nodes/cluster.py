"""A cluster with real kubelets and containers, on this machine only."""

import os
import subprocess
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Self

import pytest
from control_plane.cluster import ControlPlane
from control_plane.controllers import ControllerManager
from real_nodes import isolated
from real_nodes.cgroups import PERIOD_MICROSECONDS
from real_nodes.images import PAUSE_IMAGE, WORKER_IMAGE, write_archive
from real_nodes.node import CPU_LABEL, MEMORY_LABEL, NODES, Node
from support.servers import wait_until

# A kubelet reports the cores and the memory of the machine. At its quota a node would be far from full.
_PATCH = ", ".join(
    f"JSONPatch{{op: 'add', path: '/status/capacity/{resource}', value: object.metadata.labels['{label}']}}"
    for resource, label in (("cpu", CPU_LABEL), ("memory", MEMORY_LABEL))
)
_POLICY = {
    "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicy",
    "metadata": {"name": "capacity-of-real-nodes"},
    "spec": {
        "failurePolicy": "Fail", "reinvocationPolicy": "Never",
        "matchConstraints": {"resourceRules": [{
            "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"],
            "resources": ["nodes", "nodes/status"],
        }]},
        "matchConditions": [{
            "name": "labelled",
            "expression": f"'{CPU_LABEL}' in object.metadata.?labels.orValue({{}}) && has(object.status.capacity)",
        }],
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": f"[{_PATCH}]"}}],
    },
}  # fmt: skip
_BINDING = {
    "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicyBinding",
    "metadata": {"name": "capacity-of-real-nodes"}, "spec": {"policyName": "capacity-of-real-nodes"},
}  # fmt: skip


class RealCluster(ControlPlane):
    """A cluster as others have it, with all controllers, admission plugins and identities; a test adds a scheduler.

    Use it as a context manager, in a process that runs in ``isolated.py``: the nodes are Ready when the block starts.

    Args:
        folder: folder for certificates, logs, and the nodes' disks.
        cores: capacity of each node.
        memory_mebibytes: capacity of each node.
        grace_seconds: time without a sign of life after which a node counts as lost.
        period_microseconds: length of the period of the nodes' quotas: a node that has used its quota stalls for the
            rest of the period.

    Attributes:
        nodes: the nodes by name.
        images: archive with the images that each node has.
    """

    ADDRESS = f"{NODES}254"
    BRIDGE = "nodes"
    _address = ADDRESS

    def __init__(
        self, folder: Path, cores: Sequence[float], *, memory_mebibytes: int = 768, grace_seconds: int = 16,
        period_microseconds: int = PERIOD_MICROSECONDS,
    ) -> None:  # fmt: skip
        if isolated.MARK not in os.environ:
            pytest.fail("real nodes run by `make e2e-nodes` only, as they need namespaces of their own")
        super().__init__(folder)
        self.serving_certificate = self.certificates.issue("kube-apiserver", addresses=[self.ADDRESS, "10.0.0.1"])
        self._kubelet_client = self.certificates.issue("kubelet-client", organization="system:masters")
        self.images = write_archive(folder / "images.tar", PAUSE_IMAGE, WORKER_IMAGE)
        self._grace_seconds, self._stack = grace_seconds, ExitStack()
        self.nodes = {
            node.name: node for node in (
                Node(self, number, each, memory_mebibytes, period_microseconds)
                for number, each in enumerate(cores, 1)
            )
        }  # fmt: skip

    def __enter__(self) -> Self:
        try:
            self._bridge()
            super().__enter__()
            self.api.create(_POLICY, _BINDING)
            self._stack.enter_context(ControllerManager(self, ["*"], *self._controller_flags()))
            for node in self.nodes.values():
                self._stack.callback(node.close)
                node.start()
            for node in self.nodes.values():
                node.kubelet.wait_until(node.is_ready, f"{node.name} is Ready")
            accounts = "/api/v1/namespaces/default/serviceaccounts"
            wait_until(lambda: self.api.items(accounts), "pods have an account")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
        super().__exit__()

    def _bridge(self) -> None:
        """Create the network of the nodes."""
        for command in (
            ["ip", "link", "add", self.BRIDGE, "type", "bridge"],
            ["ip", "address", "add", f"{self.ADDRESS}/24", "dev", self.BRIDGE],
            ["ip", "link", "set", self.BRIDGE, "up"],
        ):
            subprocess.run(command, check=True)
        self._stack.callback(subprocess.run, ["ip", "link", "delete", self.BRIDGE], check=True)

    def _flags(self) -> list[str | Path]:
        return [
            "--authorization-mode", "Node,RBAC", "--enable-admission-plugins", "NodeRestriction",
            "--kubelet-preferred-address-types", "InternalIP",
            "--kubelet-certificate-authority", self.certificates.certificate,
            "--kubelet-client-certificate", self._kubelet_client, "--kubelet-client-key", self._kubelet_client,
        ]  # fmt: skip

    def _controller_flags(self) -> list[str | Path]:
        return [
            "--use-service-account-credentials", "--service-account-private-key-file", self._account_key,
            "--root-ca-file", self.certificates.certificate,
            "--node-monitor-grace-period", f"{self._grace_seconds}s", "--node-monitor-period", "2s",
        ]  # fmt: skip
