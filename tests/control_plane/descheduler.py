"""The real descheduler with the policy of docs/nodes.md, as in a pod."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from control_plane.builds import binary
from control_plane.cluster import ControlPlane

_DOCS = Path(__file__).parents[2] / "docs"


def documented_policy(address: str, page: str = "nodes.md") -> dict[str, Any]:
    """Return the first policy in a page of docs/ with another Prometheus address."""
    text = (_DOCS / page).read_text().partition("```yaml\n")[2].partition("```")[0]
    document: dict[str, Any] = yaml.safe_load(text)
    (provider,) = document["metricsProviders"]
    provider["prometheus"]["url"] = address
    return document


def queries(policy: Mapping[str, Any]) -> list[str]:
    """Return the Prometheus queries of a policy."""
    arguments = [each["args"] for profile in policy["profiles"] for each in profile["pluginConfig"]]
    return [each["metricsUtilization"]["prometheus"]["query"] for each in arguments]


def descheduler_command(
    cluster: ControlPlane, policy: Mapping[str, Any], interval: str
) -> tuple[list[str], dict[str, str]]:
    """Return the command and the environment of a descheduler as in a pod.

    It queries Prometheus only with a service account's files. They are in a mount namespace of its own, so that they do
    not appear on this machine.

    Args:
        cluster: cluster whose pods it evicts.
        policy: a DeschedulerPolicy.
        interval: time between two runs, such as ``5m``; with ``0`` it ends after the first.
    """
    account = {"apiVersion": "v1", "kind": "ServiceAccount"}
    cluster.api.create({**account, "metadata": {"name": "descheduler", "namespace": "default"}})
    file, token = cluster.folder / "policy.yaml", cluster.folder / "token"
    file.write_text(yaml.safe_dump(dict(policy)))
    token.write_text(cluster.service_account("default", "descheduler").token)
    command = [
        binary("descheduler"), "--policy-config-file", file, "--kubeconfig", cluster.kubeconfig(), "--v", "4",
        "--secure-port", "0", "--descheduling-interval", interval,
    ]  # fmt: skip
    staged = (
        "mount -t tmpfs tmpfs /run && mkdir -p /run/secrets/kubernetes.io/serviceaccount && "
        f"cp {token} /run/secrets/kubernetes.io/serviceaccount/token && "
        f'cp {cluster.certificates.certificate} /run/secrets/kubernetes.io/serviceaccount/ca.crt && exec "$@"'
    )
    pod_like = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": cluster.url.rpartition(":")[2]}
    return (
        ["unshare", "--mount", "--map-root-user", "sh", "-c", staged, "sh", *map(str, command)],
        {**os.environ, **pod_like},
    )
