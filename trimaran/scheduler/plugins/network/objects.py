"""AppGroup and NetworkTopology of ``diktyo.x-k8s.io``: communicating workloads, and costs between zones and regions."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from runtime.kubernetes.k8s_fields import decoder, get, get_whole
from runtime.kubernetes.objects import Pod

REGION: Final = "topology.kubernetes.io/region"
ZONE: Final = "topology.kubernetes.io/zone"
_GROUP_LABEL: Final = "appgroup.diktyo.x-k8s.io"
_WORKLOAD_LABEL: Final = "appgroup.diktyo.x-k8s.io.workload"
_LARGEST: Final = 2**40  # the sum over all pods of a cluster fits 64 bits


def group_of(pod: Pod) -> str:
    """Return the name of a pod's AppGroup; empty without one."""
    return pod.labels.get(_GROUP_LABEL, "")


def workload_of(pod: Pod) -> str:
    """Return the selector of a pod's workload in its AppGroup."""
    return pod.labels.get(_WORKLOAD_LABEL, "")


@dataclass(frozen=True)
class Dependency:
    """Workload that another workload of the AppGroup communicates with.

    Attributes:
        workload: selector of the workload.
        most_cost: largest allowed network cost between the two workloads.
    """

    workload: str
    most_cost: int


@dataclass(frozen=True)
class AppGroup:
    """Application of several workloads.

    Attributes:
        dependencies: dependencies by the selector of the workload that has them.
        order: place of each workload in the order of placement, by selector.
    """

    dependencies: Mapping[str, tuple[Dependency, ...]]
    order: Mapping[str, int]

    @classmethod
    @decoder("app group")
    def from_k8s(cls, document: Mapping[str, Any]) -> Self:
        """Read an AppGroup.

        Raises:
            ValueError: a cost or a place is not a whole number; the message names the object and the field.
        """
        where = f"app group {_title(document)}"
        dependencies: dict[str, tuple[Dependency, ...]] = {}
        for each in get(get(document, "spec"), "workloads") or ():
            selector = _selector(each)
            found = [
                Dependency(_selector(other), _cost(other, "maxNetworkCost", where))
                for other in get(each, "dependencies") or ()
            ]
            dependencies[selector] = (*dependencies.get(selector, ()), *found)
        ordered = get(get(document, "status"), "topologyOrder") or ()
        return cls(dependencies, {_selector(each): _cost(each, "index", where) for each in ordered})


@dataclass(frozen=True)
class NetworkTopology:
    """Network costs between regions and between zones.

    Attributes:
        costs: cost by name of the weights, label of the nodes, origin and destination.
    """

    costs: Mapping[tuple[str, str, str, str], int]

    @classmethod
    @decoder("network topology")
    def from_k8s(cls, document: Mapping[str, Any]) -> Self:
        """Read a NetworkTopology.

        Raises:
            ValueError: a cost is not a whole number; the message names the object and the field.
        """
        where = f"network topology {_title(document)}: costList"
        return cls({
            (str(get(weights, "name")), str(get(level, "topologyKey")), str(get(origin, "origin")),
             str(get(cost, "destination"))): _cost(cost, "networkCost", where)
            for weights in get(get(document, "spec"), "weights") or ()
            for level in get(weights, "topologyList") or ()
            for origin in get(level, "originList") or ()
            for cost in get(origin, "costList") or ()
        })  # fmt: skip


def _selector(document: Any) -> str:
    return str(get(get(document, "workload"), "selector") or "")


def _cost(owner: Any, name: str, where: str) -> int:
    return max(-_LARGEST, min(get_whole(owner, name, where, bits=64), _LARGEST))


def _title(document: Mapping[str, Any]) -> str:
    metadata = get(document, "metadata")
    return f"{get(metadata, 'namespace') or 'default'}/{get(metadata, 'name')}"
