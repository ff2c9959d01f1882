"""NodeDiskIO: nodes whose disks have the throughput that a pod asks for in an annotation.

The idea is KEP-624 of kubernetes-sigs/scheduler-plugins, for which upstream has no code; the details are ours. An agent
of the disk's vendor writes the free throughput of each device into a NodeDiskIOInfo. Requests of pods that the object
does not list yet are subtracted from every device. A pod fits if one device has enough for reads, for writes and for
both. The score is the share of the freest device that stays free (LeastAllocated), or 100 minus it (MostAllocated).
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Protocol, Self

import numpy as np

from runtime.kubernetes.k8s_fields import decoder, get
from runtime.kubernetes.objects import Pod
from runtime.kubernetes.quantity import nano_value
from runtime.parsing import parse_json
from scoring.arrays import Int64s
from scoring.normalization import MAX_NODE_SCORE
from scoring.plugins.base import EVERY_ROW, Rows, Terms, WithoutNodeTerms
from scoring.plugins.filtering import ClusterEvent, FilterPlugin, FilterVerdict
from scoring.profiles.configuration.fields import FieldReader
from scoring.table.node_table import NodeTable
from trimaran.scheduler.framework.extension_points import PreFilterPlugin, Rejection
from trimaran.scheduler.plugins.arguments import finish, word

ANNOTATION: Final = "blockio.kubernetes.io/throughput"
_STRATEGIES: Final = ("LeastAllocated", "MostAllocated")
_NO_DISK: Final = "node(s) had no disk with the requested throughput"
_NANO: Final = 10**9
_LONGEST: Final = 1024  # characters; an annotation may have 256 KiB, and those of all placed pods are read for each pod


@dataclass(frozen=True)
class Throughput:
    """Throughput in bytes a second.

    Attributes:
        total: reads and writes together.
        read: reads.
        write: writes.
    """

    total: int
    read: int
    write: int

    def less(self, other: "Throughput") -> "Throughput":
        """Subtract another throughput; the result may be negative."""
        return Throughput(self.total - other.total, self.read - other.read, self.write - other.write)

    @property
    def is_enough(self) -> bool:
        """True if no rate is negative: a device with this remaining throughput has enough for its pods."""
        return min(self.total, self.read, self.write) >= 0


@dataclass(frozen=True)
class NodeDisks:
    """Disks of a node.

    Attributes:
        left: free throughput of each device, by the device's identity.
        listed: uids of the pods whose requests are subtracted already.
    """

    left: Mapping[str, Throughput]
    listed: frozenset[str]

    @classmethod
    @decoder("nodediskioinfo")
    def from_k8s(cls, document: Mapping[str, Any]) -> Self:
        """Read a NodeDiskIOInfo; a device with an amount that is not a quantity is left out.

        Raises:
            ValueError: the object has another form.
        """
        left: dict[str, Throughput] = {}
        for key, device in (get(get(document, "status"), "allocatableBandwidth") or {}).items():
            with suppress(ValueError):
                amounts = (_bytes(get(get(device, "status"), name), name) for name in ("total", "read", "write"))
                left[str(key)] = Throughput(*amounts)
        return cls(left, frozenset(map(str, get(get(document, "spec"), "reservedPods") or ())))


def node_name_of(document: Mapping[str, Any]) -> str:
    """Return the name of the node that a NodeDiskIOInfo is about."""
    return str(get(get(document, "spec"), "nodeName") or get(get(document, "metadata"), "name") or "")


class NodeDiskSource(Protocol):
    """Disks of the cluster's nodes."""

    def node_disks(self, node_name: str) -> NodeDisks | None:
        """Return the disks of a node; None if they are unknown."""
        ...


@dataclass(frozen=True)
class NodeDiskIO(WithoutNodeTerms, FilterPlugin, PreFilterPlugin):
    """Filter and score plugin for the throughput of disks.

    Attributes:
        objects: disks of the nodes.
        strategy: ``LeastAllocated`` prefers nodes with much free throughput, ``MostAllocated`` nodes with little.
    """

    objects: NodeDiskSource
    strategy: str = _STRATEGIES[0]

    name: ClassVar[str] = "NodeDiskIO"
    requeued_by: ClassVar[frozenset[ClusterEvent]] = frozenset({
        ClusterEvent.NODE_ADDED, ClusterEvent.POD_GONE, ClusterEvent.POD_CHANGED, ClusterEvent.OTHER_CHANGED,
    })  # fmt: skip

    @property
    def annotations(self) -> frozenset[str]:
        """Names of the annotations of pods to read."""
        return frozenset({ANNOTATION})

    @classmethod
    def from_config(cls, objects: NodeDiskSource, reader: FieldReader) -> Self:
        """Read ``NodeDiskIOArgs``: ``scoreStrategy``.

        Raises:
            ValueError: an argument is invalid or unknown; the message begins with its path.
        """
        strategy = word(reader, "scoreStrategy", _STRATEGIES)
        finish(reader)
        return cls(objects, strategy)

    def pre_filter(self, pod: Pod, nodes: NodeTable, now: float) -> Rejection | None:  # noqa: ARG002
        """Hold a pod whose annotation cannot be read."""
        try:
            read_request(pod)
        except ValueError as error:
            return Rejection(f"annotation {ANNOTATION}: {error}")
        return None

    def filter(self, pod: Pod, nodes: NodeTable, rows: Rows = EVERY_ROW) -> FilterVerdict | None:
        """Return the nodes with a disk for the pod; None for a pod that requests no throughput."""
        asked = _request_of(pod)
        if asked is None:
            return None
        places = np.arange(len(nodes))[rows]
        fits = [any(left.is_enough for _, left in self._left(nodes, row, asked)) for row in places.tolist()]
        return FilterVerdict(np.array(fits, np.bool_), _NO_DISK)

    def skips(self, pod: Pod) -> bool:
        """Return true for a pod that requests no throughput."""
        return _request_of(pod) is None

    def pod_terms(self, pods: Sequence[Pod], node: Terms, nodes: NodeTable, rows: Rows) -> Terms:  # noqa: ARG002
        """Return the score of each node."""
        places = np.arange(len(nodes))[rows].tolist()
        return {"score": np.array([self._scores(pod, nodes, places) for pod in pods])}

    def line(self, terms: Mapping[str, Any]) -> str:
        """Return the strategy as a sentence."""
        return f"{self.strategy} of the disk with the most room: {terms['score']}"

    def _scores(self, pod: Pod, nodes: NodeTable, places: Sequence[int]) -> Int64s:
        asked, scores = _request_of(pod), np.zeros(len(places), np.int64)
        for index, row in enumerate(places if asked is not None else ()):
            free = [
                MAX_NODE_SCORE * left.total // max(1, before.total)
                for before, left in self._left(nodes, row, asked) if left.is_enough
            ]  # fmt: skip
            if free:
                scores[index] = max(free) if self.strategy == _STRATEGIES[0] else MAX_NODE_SCORE - max(free)
        return scores

    def _left(self, nodes: NodeTable, row: int, asked: Throughput | None) -> Sequence[tuple[Throughput, Throughput]]:
        """Return the free throughput of each device of a node, without and with the pod."""
        disks = self.objects.node_disks(nodes.names[row])
        if disks is None or asked is None:
            return ()
        unlisted = [
            request for placed in nodes.placed_on(row)
            if placed.pod.uid not in disks.listed and (request := _request_of(placed.pod)) is not None
        ]  # fmt: skip
        found = []
        for left in disks.left.values():
            for request in unlisted:
                left = left.less(request)  # noqa: PLW2901  what is left, step by step
            found.append((left, left.less(asked)))
        return found


def read_request(pod: Pod) -> Throughput | None:
    """Return the throughput that a pod requests; None if it requests none.

    Raises:
        ValueError: the annotation is not valid.
    """
    stated = pod.annotations.get(ANNOTATION)
    if stated is None:
        return None
    if len(stated) > _LONGEST:
        raise ValueError(f"must be a JSON object, got {stated[:80]!r} ..., longer than {_LONGEST} characters")
    try:
        fields = parse_json(stated)
    except ValueError:
        raise ValueError(f"must be a JSON object, got {stated[:80]!r}") from None
    if not isinstance(fields, dict):
        raise ValueError(f"must be a JSON object, got {stated[:80]!r}")  # noqa: TRY004  a user's mistake
    read, write = (_bytes(fields.get(key), key) for key in ("rbps", "wbps"))
    return Throughput(read + write, read, write) if read or write else None


def _request_of(pod: Pod) -> Throughput | None:
    try:
        return read_request(pod)
    except ValueError:
        return None  # PreFilter refuses the pod, with the reason


def _bytes(written: Any, where: str) -> int:
    try:
        return -(-nano_value(written) // _NANO) if written else 0
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
