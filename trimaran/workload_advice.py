"""Workloads with recommended requests, as a watcher describes them, for ``trimaran workloads`` and the dashboard."""

from collections.abc import Callable, Mapping, Sequence
from math import ceil
from typing import Any, NamedTuple, TypeVar

from runtime.kubernetes.workloads import Workload
from watcher.usage.sources.pods import RECENT_SECONDS

Known = TypeVar("Known", float, str)

RESOURCES = ("cpu_cores", "memory_bytes")
_MIB = 2**20
_ROUNDING_ERROR = 1e-6
_MAX_AMOUNT = 1e24  # far above all pods of a cluster together; larger ones could overflow


class AdvisedContainer(NamedTuple):
    """Container of a workload as the watcher describes it; mappings are by resource.

    Attributes:
        name: name of the container.
        pods: number of pods that run now.
        role: ``container``, ``sidecar`` or ``init``; None if unknown.
        requests: present requests; 0 without one.
        limits: present limits; 0 without one.
        use: expected use of one pod; 0 if it was never measured.
        recommended: recommended requests; None if unknown.
        recommended_limits: limits that fit the recommended requests; None without one.
        verdict: ``lower``, ``raise`` or ``keep``; None if unknown.
        reason: reason why a request is not lowered, or not recommended; None without one.
        wasted: unused part of the requests of all pods that run now; None if unknown.
        more: further values for the wide table.
    """

    name: str
    pods: float
    role: str | None
    requests: Mapping[str, float]
    limits: Mapping[str, float]
    use: Mapping[str, float]
    recommended: Mapping[str, float | None]
    recommended_limits: Mapping[str, float | None]
    verdict: Mapping[str, str | None]
    reason: Mapping[str, str | None]
    wasted: Mapping[str, float | None]
    more: tuple[str, ...]


class AdvisedWorkload(NamedTuple):
    """Workload with the containers that its pods have now, and its JSON."""

    workload: Workload
    containers: Sequence[AdvisedContainer]
    item: Mapping[str, Any]

    def wasted(self, resource: str) -> float:
        """Return the unused part of the requests of all its pods."""
        return sum(each.wasted[resource] or 0.0 for each in self.containers)


def read_workload(item: Mapping[str, Any], newest: float) -> AdvisedWorkload:
    """Read a workload. Containers that its newest pods do not have any more are left out.

    Raises:
        KeyError, TypeError, ValueError, AttributeError: the item is not a workload with recommendations.
    """
    last_seen = float(item["last_seen"])
    is_running = last_seen >= newest - RECENT_SECONDS
    present = [each for each in item["containers"] if float(each["last_seen"]) >= last_seen - RECENT_SECONDS]
    workload = Workload(*(str(item[name]) for name in Workload._fields))
    return AdvisedWorkload(workload, [_container(each, is_running=is_running) for each in present], item)


def cpu_quantity(cores: float) -> str:
    """Return an amount of CPU as a Kubernetes quantity, rounded up to millicores."""
    milli = ceil(cores * 1000 - _ROUNDING_ERROR)
    return f"{milli // 1000}" if milli % 1000 == 0 else f"{milli}m"


def memory_quantity(amount: float) -> str:
    """Return an amount of memory in bytes as a Kubernetes quantity, rounded up to Mi."""
    mebi = ceil(amount / _MIB - _ROUNDING_ERROR)
    return f"{mebi // 1024}Gi" if mebi and mebi % 1024 == 0 else f"{mebi}Mi"


QUANTITY = {"cpu_cores": cpu_quantity, "memory_bytes": memory_quantity}
"""Function that writes an amount of a resource."""


def _container(item: Mapping[str, Any], *, is_running: bool) -> AdvisedContainer:
    use, percentiles = _amounts(item["use"]), item["cpu_cores_percentiles"]
    days = (float(item["last_seen"]) - float(item["first_seen"])) / 86400
    p90, highest = _amount(percentiles.get("90") or 0), _amount(item["highest_memory_bytes"] or 0)
    # Measured amounts are above 0; the use of a container that was killed before its first measurement is an estimate.
    use = {"cpu_cores": use["cpu_cores"] if p90 else 0.0, "memory_bytes": use["memory_bytes"] if highest else 0.0}
    more = (
        cpu_quantity(use["cpu_cores"]) if p90 else "-",
        memory_quantity(use["memory_bytes"]) if highest else "-",
        cpu_quantity(p90) if p90 else "-",
        memory_quantity(highest) if highest else "-",
        f"{days:.1f}d",
    )
    return AdvisedContainer(
        name=str(item["name"]),
        pods=_amount(item["pods"]) if is_running else 0.0,
        role=None if item["role"] is None else str(item["role"]),
        requests=_amounts(item["requests"]),
        limits=_amounts(item["limits"]),
        use=use,
        recommended=_known(item["recommended"], _amount),
        recommended_limits=_known(item["recommended_limits"], _amount),
        verdict=_known(item["verdict"], str),
        reason=_known(item["reason"], str),
        wasted=_known(item["wasted"], _amount),
        more=more,
    )


def _amounts(values: Mapping[str, Any]) -> dict[str, float]:
    return {name: _amount(values[name]) for name in RESOURCES}


def _known(values: Mapping[str, Any], read: Callable[[Any], Known]) -> dict[str, Known | None]:
    return {name: None if values[name] is None else read(values[name]) for name in RESOURCES}


def _amount(value: Any) -> float:
    if not isinstance(value, int | float) or not 0 <= value <= _MAX_AMOUNT:
        raise ValueError(f"not an amount: {value!r}")
    return float(value)
