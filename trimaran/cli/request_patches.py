"""Patches with recommended requests, of pod templates or of running pods. Nothing here writes to a cluster."""

import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from runtime.kubernetes.workloads import Workload
from trimaran.workload_advice import QUANTITY, RESOURCES, AdvisedContainer, AdvisedWorkload

API_VERSIONS = {"Deployment": "apps/v1", "StatefulSet": "apps/v1", "DaemonSet": "apps/v1", "CronJob": "batch/v1"}
"""Kinds whose templates can be patched, with their API versions."""
_KUBERNETES_NAMES = dict(zip(RESOURCES, ("cpu", "memory"), strict=True))

TemplateContainers = Callable[[Workload], Collection[str] | None]
"""Function that returns the names of the containers and init containers in a workload's template; None if unknown."""


class RequestPatch(NamedTuple):
    """Patch of a template or a pod.

    Attributes:
        notes: remarks, such as containers that are not patched.
        command: command that applies the document from a file; "" without a document.
        document: the patch; empty if nothing is to be patched.
    """

    notes: tuple[str, ...]
    command: str
    document: Mapping[str, Any]


def no_template(_workload: Workload) -> None:
    """Return None: the lookup of template containers if the cluster cannot be read."""


def request_patches(
    advised: Iterable[AdvisedWorkload], template_of: TemplateContainers = no_template
) -> Iterator[RequestPatch]:
    """Yield a strategic-merge patch of the template of each workload with a request to change.

    Workloads of other kinds and ended workloads, except CronJobs, get no patch. Init containers and containers that
    are not in the template, such as injected sidecars, get a note instead of a patch.
    """
    for advice in advised:
        workload = advice.workload
        version = API_VERSIONS.get(workload.kind)
        changed = [each for each in advice.containers if _requests(each, workload.kind)]
        if version is None or not changed:
            continue
        notes, pod_spec = _pod_spec(changed, workload.kind, template_of(workload))
        if not pod_spec:
            yield RequestPatch((f"{workload.kind} {workload.name} in {workload.namespace}", *notes), "", {})
            continue
        spec: dict[str, Any] = {"template": {"spec": pod_spec}}
        if workload.kind == "CronJob":
            spec = {"jobTemplate": {"spec": spec}}
        metadata = {"name": workload.name, "namespace": workload.namespace}
        names = shlex.join([workload.kind.lower(), workload.name, "--namespace", workload.namespace])
        yield RequestPatch(
            notes,
            f"kubectl patch {names} --patch-file FILE",
            {"apiVersion": version, "kind": workload.kind, "metadata": metadata, "spec": spec},
        )


def resize_patches(
    advised: Iterable[AdvisedWorkload], pods_of: Mapping[Workload, Mapping[str, Collection[str]]]
) -> Iterator[RequestPatch]:
    """Yield a patch of the subresource ``resize`` of each running pod with a request to change.

    Args:
        advised: the workloads.
        pods_of: pods of each workload in the cluster, each with the names of its containers.
    """
    for workload, containers, _ in advised:
        changed = [each for each in containers if _requests(each, workload.kind)]
        for pod, names in pods_of.get(workload, {}).items() if changed else ():
            present = [each for each in changed if each.name in names]
            notes, spec = _pod_spec(present, workload.kind, None)
            if spec:
                words = shlex.join(["pod", pod, "--namespace", workload.namespace])
                metadata = {"name": pod, "namespace": workload.namespace}
                document = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
                yield RequestPatch(notes, f"kubectl patch {words} --subresource resize --patch-file FILE", document)


def _pod_spec(
    changed: Iterable[AdvisedContainer], kind: str, template: Collection[str] | None
) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Return notes, and the part of a pod's specification with the patched containers; empty if there are none."""
    notes: list[str] = []
    spec: dict[str, list[Mapping[str, Any]]] = {}
    for container in changed:
        if container.role == "init":
            notes.append(f"not patched: {container.name} is an init container")
        elif template is not None and container.name not in template:
            notes.append(f"not patched: {container.name} is not in the template, but injected into the pods")
        else:
            requests = _requests(container, kind)
            limits = dict(_limits(container, requests))
            notes += _limit_notes(container, requests, limits)
            resources = {"requests": requests} | ({"limits": limits} if limits else {})
            part = "initContainers" if container.role == "sidecar" else "containers"
            spec.setdefault(part, []).append({"name": container.name, "resources": resources})
    return tuple(notes), spec


def _requests(container: AdvisedContainer, kind: str) -> Mapping[str, str]:
    """Return the new requests of a container; a request that has a reason against lowering is left out."""
    if not container.pods and kind != "CronJob":
        return {}
    return {
        _KUBERNETES_NAMES[resource]: QUANTITY[resource](recommended)
        for resource, recommended in container.recommended.items()
        if recommended is not None
        and container.verdict[resource] in {"lower", "raise"}
        and not container.reason[resource]
    }


def _limits(container: AdvisedContainer, requests: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield name and new quantity of each limit that rises with a raised request."""
    for resource, name in _KUBERNETES_NAMES.items():
        limit = container.recommended_limits[resource]
        if name in requests and limit is not None and container.verdict[resource] == "raise":
            yield name, QUANTITY[resource](limit)


def _limit_notes(container: AdvisedContainer, requests: Mapping[str, str], limits: Mapping[str, str]) -> Iterator[str]:
    for resource, name in _KUBERNETES_NAMES.items():
        limit = container.limits[resource]
        if name in requests and limit:
            present = QUANTITY[resource](limit)
            is_raised = name in limits
            change = f"keeps its ratio to the request: {present} → {limits[name]}" if is_raised else f"stays {present}"
            yield f"{name} limit of {container.name} {change}"
