"""NodeResourceTopology of ``topology.node.k8s.io/v1alpha2``: free resources of each NUMA node of a node."""

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, Self

from runtime.kubernetes.k8s_fields import decoder, get, get_whole, unix_seconds
from runtime.kubernetes.objects import ResourceList

SINGLE_NUMA_NODE: Final = "single-numa-node"
POD, CONTAINER = "pod", "container"
_POLICIES: Final = frozenset({"none", "best-effort", "restricted", SINGLE_NUMA_NODE})
_DEFAULT_MAX_ZONES, _LARGEST_MAX_ZONES = 8, 1024
_ZONE_PREFIX = "node-"
_LARGEST_ID = 63
MOST_ZONES: Final = _LARGEST_ID + 1
"""Largest number of NUMA nodes of a node."""
_LARGEST_COST = 2**31 - 1  # sums of distances fit 64 bits
_NUMBER = re.compile(r"\+?0*([0-9]{1,18})")  # as Go reads it; the API server does not limit the length of a text
_FINGERPRINT_ANNOTATION = "topology.node.k8s.io/fingerprint"  # of older agents
# Values of the deprecated list ``topologyPolicies``.
_OLD_POLICIES: Final = {
    f"{old}{level}": (policy, scope)
    for old, policy in (
        ("SingleNUMANode", SINGLE_NUMA_NODE), ("Restricted", "restricted"), ("BestEffort", "best-effort"),
    )
    for level, scope in (("PodLevel", POD), ("ContainerLevel", CONTAINER), ("", CONTAINER))
}  # fmt: skip


@dataclass(frozen=True)
class Zone:
    """NUMA node.

    Attributes:
        number: number of the NUMA node.
        available: free amounts by resource, rounded down.
        costs: distance to other NUMA nodes by number.
    """

    number: int
    available: ResourceList
    costs: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class NodeTopology:
    """Topology of a node.

    Attributes:
        node_name: name of the node.
        zones: NUMA nodes by ascending number.
        policy: policy of kubelet's topology manager.
        scope: what the topology manager aligns: ``container`` or ``pod``.
        max_zones: largest number of NUMA nodes that the node's kubelet supports.
        written_at: time of the last write, Unix seconds; None if unknown.
        fingerprint: fingerprint of the pods that the agent saw; "" if it has none.
        fingerprint_method: the agent's name for the selection of these pods; "" if it has none.
    """

    node_name: str
    zones: tuple[Zone, ...]
    policy: str = "none"
    scope: str = CONTAINER
    max_zones: int = _DEFAULT_MAX_ZONES
    written_at: float | None = None
    fingerprint: str = ""
    fingerprint_method: str = ""

    @classmethod
    @decoder("node resource topology")
    def from_k8s(cls, document: Mapping[str, Any]) -> Self:
        """Read a NodeResourceTopology.

        Unknown attributes and zones that are not NUMA nodes are left out. A zone does not have a resource whose amount
        is not a quantity.

        Raises:
            ValueError: the object has another form.
        """
        metadata = get(document, "metadata")
        name = str(get(metadata, "name") or "")
        policy, scope, most = "none", CONTAINER, _DEFAULT_MAX_ZONES
        old = get(document, "topologyPolicies") or ()
        if old:
            policy, scope = _OLD_POLICIES.get(str(old[0]), (policy, scope))
        fingerprint, method = str(get(get(metadata, "annotations"), _FINGERPRINT_ANNOTATION) or ""), ""
        for attribute in get(document, "attributes") or ():
            key, value = get(attribute, "name"), str(get(attribute, "value") or "")
            if key == "nodeTopologyPodsFingerprint":
                fingerprint = value or fingerprint
            elif key == "nodeTopologyPodsFingerprintMethod":
                method = value
            elif key == "topologyManagerScope" and value in {POD, CONTAINER}:
                scope = value
            elif key == "topologyManagerPolicy" and value in _POLICIES:
                policy = value
            elif key == "topologyManagerMaxNUMANodes" and (limit := _digits(value)) > 1:
                most = min(limit, _LARGEST_MAX_ZONES)
        where = f"node resource topology {name}: zones"
        zones = [
            _zone(each)
            for each in get(document, "zones") or ()
            if get(each, "type") == "Node" and _number(get(each, "name")) is not None
        ]
        written = [unix_seconds(get(each, "time"), where) for each in get(metadata, "managedFields") or ()]
        known = [each for each in written if each is not None]
        by_number = {zone.number: zone for zone in zones}
        ordered = tuple(by_number[number] for number in sorted(by_number))
        return cls(name, ordered, policy, scope, most, max(known, default=None), fingerprint, method)


class TopologySource(Protocol):
    """Topologies of the cluster."""

    def version(self, kind: str) -> int:
        """Return a number that increases whenever an object of a kind changes."""
        ...

    def node_topology(self, node_name: str) -> NodeTopology | None:
        """Return the topology of a node; None if there is none."""
        ...


def _zone(document: Any) -> Zone:
    available: dict[str, int] = {}
    for each in get(document, "resources") or ():
        with suppress(ValueError):
            resource = str(get(each, "name"))
            free = ResourceList.from_k8s({resource: get(each, "available")}, "available", may_be_negative=True)
            available[resource] = free.whole(resource)
    costs = {
        number: max(-_LARGEST_COST, min(get_whole(each, "value", "costs", bits=64), _LARGEST_COST))
        for each in get(document, "costs") or ()
        if (number := _number(get(each, "name"))) is not None
    }
    number = _number(get(document, "name"))
    return Zone(-1 if number is None else number, ResourceList(available), costs)


def _number(name: Any) -> int | None:
    """Return the number of a zone such as ``node-3``; None if the name has another form."""
    number = _digits(str(name).removeprefix(_ZONE_PREFIX)) if str(name).startswith(_ZONE_PREFIX) else -1
    return number if 0 <= number <= _LARGEST_ID else None


def _digits(text: str) -> int:
    """Return the number in a text of digits; -1 for other texts."""
    match = _NUMBER.fullmatch(text)
    return int(match[1]) if match else -1
