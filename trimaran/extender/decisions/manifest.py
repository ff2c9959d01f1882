"""Manifest of a pod in a recorded decision, reduced to the fields that affect scores and filters.

Other fields are not recorded, so that no environment variable, command, label or volume (except images) can leak.
"""

from collections.abc import Sequence
from typing import Any

from runtime.kubernetes.constraints import NodeRequirement
from runtime.kubernetes.objects import CPU, Container, ResourceList
from scoring import Pod

_NANO, _NANO_PER_MILLI = 10**9, 10**6
_UNITS = ((1 << 30, "Gi"), (1 << 20, "Mi"), (1 << 10, "Ki"))


def pod_manifest(pod: Pod) -> dict[str, Any]:
    """Return a v1 Pod with the fields that affect scoring and filtering; ``Pod.from_k8s`` can read it."""
    metadata = {"name": pod.name, "namespace": pod.namespace, "annotations": _quantities(pod.annotated)}
    spec = {
        "schedulerName": pod.scheduler_name,
        "priority": pod.priority,
        "containers": [_container(each) for each in pod.containers],
        "initContainers": [_container(each) for each in pod.init_containers],
        "volumes": [{"image": {"reference": each}} for each in pod.image_volumes],
        "overhead": _quantities(pod.overhead),
        "resources": _filled({"requests": _quantities(pod.requests), "limits": _quantities(pod.limits)}),
        "nodeSelector": dict(pod.node_selector),
        "tolerations": [
            _filled({"key": each.key, "operator": each.operator, "value": each.value, "effect": each.effect})
            for each in pod.tolerations
        ],
        "affinity": _affinity(pod),
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": _filled(metadata), "spec": _filled(spec)}


def _container(container: Container) -> dict[str, Any]:
    requests, limits = _quantities(container.requests), _quantities(container.limits)
    return _filled({
        "image": container.image,
        "restartPolicy": "Always" if container.restartable else "",
        "resources": _filled({"requests": requests, "limits": limits}),
    })  # fmt: skip


def _affinity(pod: Pod) -> dict[str, Any]:
    if pod.required_affinity is None:
        return {}
    terms = [
        _filled({"matchExpressions": _requirements(each.labels), "matchFields": _requirements(each.names)})
        for each in pod.required_affinity
    ]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}


def _requirements(requirements: Sequence[NodeRequirement]) -> list[dict[str, Any]]:
    return [_filled({"key": each.key, "operator": each.operator, "values": list(each.values)}) for each in requirements]


def _quantities(amounts: ResourceList) -> dict[str, str]:
    return {name: _quantity(name, amounts.nano(name)) for name in amounts}


def _quantity(name: str, nano: int) -> str:
    """Return an amount, given in billionths of a unit, as an exact Kubernetes quantity such as ``500m`` or ``1Gi``."""
    if nano % _NANO:
        return f"{nano}n" if nano % _NANO_PER_MILLI else f"{nano // _NANO_PER_MILLI}m"
    whole = nano // _NANO
    unit, suffix = next(((unit, suffix) for unit, suffix in _UNITS if whole and whole % unit == 0), (1, ""))
    return str(whole) if name == CPU else f"{whole // unit}{suffix}"


def _filled(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields without empty values."""
    return {name: value for name, value in fields.items() if value not in ("", 0, [], {})}
