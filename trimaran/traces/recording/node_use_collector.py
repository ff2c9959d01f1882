"""Sums of the use of pods by node, from which a recording has the use of its nodes."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from runtime.kubernetes.objects import CPU, MEMORY
from scoring import Node
from scoring.arrays import Bools
from trimaran.traces.node_use import NodeUse
from trimaran.traces.recording.lifetimes import Lifetime
from trimaran.traces.recording.pods import PodSpec
from watcher.usage.sources.pods import PodKey


class NodeUseCollector:
    """Sums of the use of pods by node.

    A pod counts on its last node in each of its minutes. System processes outside of pods are not included.

    Args:
        nodes: the nodes.
        minutes: length of the recording.
    """

    def __init__(self, nodes: Sequence[Node], minutes: int) -> None:
        self._nodes = nodes
        self._row = {node.name: row for row, node in enumerate(nodes)}
        self._use = np.full((2, len(nodes), minutes), np.nan)

    def passing(self, lifetimes: Iterable[Lifetime], specs: Mapping[PodKey, PodSpec]) -> Iterator[Lifetime]:
        """Yield the lifetimes, and count each of them on its node."""
        for lifetime in lifetimes:
            spec = specs.get(lifetime.key)
            if spec is not None and (row := self._row.get(spec.node)) is not None:
                part = self._use[:, row, lifetime.start : lifetime.end]
                np.add(np.nan_to_num(part), lifetime.use, out=part)
            yield lifetime

    def result(self, begin: int, covered: Bools) -> NodeUse:
        """Return the use of all lifetimes that were passed on.

        Args:
            begin: Unix time of minute 0.
            covered: whether any pod has a value in each minute; in other minutes the use is not known, although
                lifetimes bridge them.
        """
        capacity = np.array(
            [[node.capacity.amount(resource) or np.inf for node in self._nodes] for resource in (CPU, MEMORY)],
            np.float64,
        )
        self._use[:, :, ~covered] = np.nan
        cpu, memory = self._use * [[[1000]], [[1]]] / capacity[:, :, None]
        return NodeUse(tuple(node.name for node in self._nodes), begin, cpu, memory)
