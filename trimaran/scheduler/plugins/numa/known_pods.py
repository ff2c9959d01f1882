"""Pods that a NodeResourceTopology includes: found by its fingerprint, or else by the time of its last write.

An agent writes a fingerprint of the pods that it saw on its node. Pods start one after another, so these pods are the
first of the pods that are on the node now, in order of their start. The fingerprint matches no pods if one of them has
ended since. Sources: k8stopologyawareschedwg/podfingerprint v0.2.2, and
kubernetes-sigs/scheduler-plugins v0.33.5, pkg/noderesourcetopology/cache.
"""

from collections.abc import Collection, Iterable, Sequence
from math import inf
from typing import Final

from xxhash import xxh64, xxh64_intdigest

from runtime.kubernetes.objects import Pod
from trimaran.scheduler.plugins.numa.node_topology import NodeTopology
from trimaran.scheduler.plugins.numa.requests import has_exclusive_resources

AUTODETECT: Final = "Autodetect"
ALL: Final = "All"
ONLY_EXCLUSIVE: Final = "OnlyExclusiveResources"
_VERSION = "pfp0v001"
_METHOD_ONLY_EXCLUSIVE = "with-exclusive-resources"
_MOST_UNKNOWN = 16  # if more pods started since the last write, their times decide


def fingerprint(pods: Iterable[Pod]) -> str:
    """Return the fingerprint of a set of pods."""
    return _signature([_digest(each) for each in pods])


class KnownPods:
    """Search for the pods that each node's topology includes.

    Args:
        resync_seconds: without a matching fingerprint, a topology includes pods that started so long before its write.
        method: pods in a fingerprint: ``All``, ``OnlyExclusiveResources``, or ``Autodetect`` as the topology says.
    """

    def __init__(self, resync_seconds: int, method: str) -> None:
        self._resync_seconds, self._method = resync_seconds, method
        self._matches: dict[str, tuple[NodeTopology, frozenset[str]]] = {}

    def keep(self, node_names: Iterable[str]) -> None:
        """Forget all nodes except these."""
        self._matches = {name: self._matches[name] for name in node_names if name in self._matches}

    def unknown(self, topology: NodeTopology, placed: Collection[Pod]) -> list[Pod]:
        """Return the pods of a node with exclusive resources that its topology does not include yet."""
        holding = [each for each in placed if has_exclusive_resources(each)]
        matched = self._matched(topology, holding if self._is_only_exclusive(topology) else placed)
        if matched is not None:
            return [each for each in holding if each.uid not in matched]
        known_until = (topology.written_at or 0.0) - self._resync_seconds
        return [each for each in holding if each.started_at is None or each.started_at > known_until]

    def _is_only_exclusive(self, topology: NodeTopology) -> bool:
        if self._method == AUTODETECT:
            return topology.fingerprint_method == _METHOD_ONLY_EXCLUSIVE
        return self._method == ONLY_EXCLUSIVE

    def _matched(self, topology: NodeTopology, pods: Iterable[Pod]) -> frozenset[str] | None:
        """Return the uids of the pods in a topology's fingerprint, also of pods that have ended; None if unknown."""
        of, uids = self._matches.get(topology.node_name, (None, frozenset[str]()))
        if of is topology:
            return uids
        if not topology.fingerprint:
            return None
        ordered = sorted(pods, key=lambda each: inf if each.started_at is None else each.started_at)
        digests = [_digest(each) for each in ordered]
        for count in range(len(ordered), max(-1, len(ordered) - _MOST_UNKNOWN - 1), -1):
            if _signature(digests[:count]) == topology.fingerprint:
                uids = frozenset(each.uid for each in ordered[:count])
                self._matches[topology.node_name] = topology, uids
                return uids
        return None


def _digest(pod: Pod) -> int:
    return xxh64_intdigest(pod.name.encode(), xxh64_intdigest(pod.namespace.encode()))


def _signature(digests: Sequence[int]) -> str:
    packed = b"".join(each.to_bytes(8, "little") for each in sorted(digests))
    return _VERSION + xxh64(packed).hexdigest()
