"""Sampling of feasible nodes: kube-scheduler's ``percentageOfNodesToScore``."""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from runtime.errors import quoted
from scoring.arrays import Bools, Int64s

ALL_NODES: Final = 100
"""``percentageOfNodesToScore`` that scores every feasible node."""
_LEAST_TO_FIND = 100
_LEAST_PERCENT = 5


class NodeSampling:
    """kube-scheduler's node sampling: in large clusters a search stops after a number of feasible nodes.

    Each search continues where the previous one ended.
    Source: ``numFeasibleNodesToFind`` and ``findNodesThatPassFilters`` of k8s.io/kubernetes/pkg/scheduler.

    Args:
        percent: percentage of the nodes to find; 0 means kube-scheduler's rule.
    """

    def __init__(self, percent: int) -> None:
        if not 0 <= percent <= ALL_NODES:
            raise ValueError(f"percentage of nodes to score: must be from 0 to 100, got {quoted(percent)}")
        self._percent = percent
        self._next = 0

    def candidates(self, feasible: Bools) -> Int64s:
        """Return the rows of the nodes to score: all feasible nodes, or a sample in a large cluster.

        Args:
            feasible: mask of the feasible nodes, shape (nodes,).
        """
        size = len(feasible)
        wanted = self.wanted(size)
        rows = feasible.nonzero()[0]
        if wanted >= size:
            return rows
        if len(rows) < wanted:  # the search went once around all nodes
            self._next %= size
            return rows
        begin = int(rows.searchsorted(self._next))
        end = (begin + wanted - 1) % len(rows) + 1
        self._next = (int(rows[end - 1]) + 1) % size
        return rows[begin:end] if begin < end else np.concatenate([rows[:end], rows[begin:]])

    def wanted(self, size: int) -> int:
        """Return the number of feasible nodes after which the search for a pod's node stops.

        Args:
            size: number of nodes in the cluster.
        """
        percent = self._percent or max(50 - size // 125, _LEAST_PERCENT)
        if size < _LEAST_TO_FIND or percent >= ALL_NODES:
            return size
        return max(size * percent // 100, _LEAST_TO_FIND)


def sample_percent(document: Mapping[str, Any], place: int = 0, default: int = ALL_NODES) -> int:
    """Return ``percentageOfNodesToScore`` of a profile in a parsed KubeSchedulerConfiguration.

    Args:
        document: the parsed file.
        place: index of the profile, whose value takes precedence over the file's.
        default: result if neither has a value.

    Raises:
        ValueError: the value is not a whole number from 0 to 100.
    """
    profiles = document.get("profiles") or [{}]
    for path, fields in ((f"profiles[{place}].", profiles[place]), ("", document)):
        percent = fields.get("percentageOfNodesToScore")
        if percent is None:
            continue
        if not isinstance(percent, int) or isinstance(percent, bool) or not 0 <= percent <= ALL_NODES:
            raise ValueError(f"{path}percentageOfNodesToScore: must be from 0 to 100, got {quoted(percent)}")
        return percent
    return default
