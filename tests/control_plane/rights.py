"""Rights of the accounts in shipped manifests, and the policies that limit them."""

import re
from pathlib import Path

import yaml
from control_plane.api import names
from control_plane.cluster import ControlPlane

_KINDS = {
    "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
}  # fmt: skip
_FORBIDDEN = re.compile(r"\b403\b")  # and not these digits within the random name of a host or a pod


def was_forbidden(log: str) -> bool:
    """Return whether a log tells of a request with the status 403."""
    return _FORBIDDEN.search(log) is not None


def grant_rights(cluster: ControlPlane, *manifests: Path) -> None:
    """Create the namespace trimaran if it is missing, and the accounts of manifests with their rights and policies."""
    if "trimaran" not in names(cluster.api.items("/api/v1/namespaces")):
        cluster.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "trimaran"}})
    for manifest in (each for file in manifests for each in yaml.safe_load_all(file.read_text())):
        if manifest["kind"] in _KINDS:
            cluster.api.create(manifest)
