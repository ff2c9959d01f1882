"""Strategic-merge patches of pod templates with recommended requests. Nothing here writes to a cluster."""

import shlex
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from trimaran.cli.workload_advice import QUANTITY, RESOURCES, AdvisedContainer, AdvisedWorkload

_API_VERSIONS = {"Deployment": "apps/v1", "StatefulSet": "apps/v1", "DaemonSet": "apps/v1", "CronJob": "batch/v1"}
_KUBERNETES_NAMES = dict(zip(RESOURCES, ("cpu", "memory"), strict=True))


def request_patches(advised: Iterable[AdvisedWorkload]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield a patch for each workload with a request to change, after the command that applies it from a file.

    Workloads of other kinds have no patch, nor have those that have ended, except for CronJobs.
    """
    for workload, containers, _ in advised:
        version = _API_VERSIONS.get(workload.kind)
        changes = [change for each in containers if (change := _change(each, workload.kind))]
        if version is None or not changes:
            continue
        spec: dict[str, Any] = {"template": {"spec": {"containers": changes}}}
        if workload.kind == "CronJob":
            spec = {"jobTemplate": {"spec": spec}}
        metadata = {"name": workload.name, "namespace": workload.namespace}
        names = shlex.join([workload.kind.lower(), workload.name, "--namespace", workload.namespace])
        yield (
            f"kubectl patch {names} --patch-file FILE",
            {"apiVersion": version, "kind": workload.kind, "metadata": metadata, "spec": spec},
        )


def _change(container: AdvisedContainer, kind: str) -> Mapping[str, Any]:
    """Return a container with its changed requests; empty if none changes. A request with a reason does not change."""
    if not container.pods and kind != "CronJob":
        return {}
    requests = {
        _KUBERNETES_NAMES[resource]: QUANTITY[resource](recommended)
        for resource, recommended in container.recommended.items()
        if recommended is not None
        and container.verdict[resource] in {"lower", "raise"}
        and not container.reason[resource]
    }
    return {"name": container.name, "resources": {"requests": requests}} if requests else {}
