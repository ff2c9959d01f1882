"""Backoff of nodes whose kubelet has rejected a pod of this scheduler.

A kubelet rejects a pod that is bound to its node if the pod does not fit by the kubelet's own count, for example
because another scheduler has bound a pod there at the same time. The pod then fails, and its controller creates another
one, which the scheduler would send to the same node again. A node in backoff has a taint in the scheduler's own view of
the cluster, not in the API, so that all filters see it and its end is an event for unschedulable pods.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from runtime.kubernetes.constraints import Taint
from runtime.kubernetes.objects import Node
from scoring.arrays import Bools
from scoring.plugins.filtering import FilterVerdict
from scoring.table.node_table import NodeTable

_REASON = "node(s) whose kubelet rejected a pod, and that get none for a while"
REJECTED: Final = Taint("scheduler.trimaran.io/pods-rejected")
"""Taint of a node in backoff; only pods that tolerate every taint may still go there."""
_TAINTS: Final = "TaintToleration"  # filter that refuses the nodes with our taint


def with_taint(node: Node, taint: Taint, *, is_tainted: bool) -> Node:
    """Return a node with a taint, or without it."""
    if is_tainted == (taint in node.taints):
        return node
    others = tuple(each for each in node.taints if each != taint)
    return replace(node, taints=(*others, taint) if is_tainted else others)


def _counts(refused: Bools, rows: Collection[int], verdict: FilterVerdict) -> Mapping[str, int]:
    """Return the number of refused nodes by reason: the backoff, or the verdict's own reason.

    Args:
        refused: mask of the nodes that this verdict is the first to refuse, shape (nodes,).
        rows: rows of the nodes in backoff.
        verdict: verdict of TaintToleration, which has one reason.
    """
    ours = sum(bool(refused[row]) for row in rows)
    other = int(np.count_nonzero(refused)) - ours
    return {_REASON: ours, **(dict.fromkeys(verdict.reasons(0), other) if other else {})}


@dataclass(frozen=True, slots=True)
class _Backoff:
    seconds: float
    until: float


class RejectingNodes:
    """Nodes in backoff: they get no pods for a time that doubles with each further rejection. For one thread.

    Args:
        initial_seconds: duration of the first backoff.
        max_seconds: longest backoff; after this time without a rejection, the next backoff is an initial one again.
    """

    def __init__(self, initial_seconds: float = 10.0, max_seconds: float = 300.0) -> None:
        self._initial, self._max = initial_seconds, max_seconds
        self._last: dict[str, _Backoff] = {}  # newest backoff by node name, also after its end
        self._active: set[str] = set()

    @property
    def nodes(self) -> tuple[str, ...]:
        """Names of the nodes in backoff."""
        return tuple(sorted(self._active))

    def reject(self, name: str, now: float, most: int) -> None:
        """Record that a kubelet rejected a pod, and begin the node's backoff; during a backoff nothing changes.

        Args:
            name: name of the node.
            now: current time, seconds.
            most: largest number of nodes in backoff at the same time; more rejections are ignored.
        """
        if name in self._active or len(self._active) >= most:
            return
        last = self._last.get(name)
        is_recent = last is not None and now < last.until + self._max
        seconds = min(2 * last.seconds, self._max) if last is not None and is_recent else self._initial
        self._last[name] = _Backoff(seconds, now + seconds)
        self._active.add(name)

    def mark(self, node: Node) -> Node:
        """Return a node as filters should see it: with the taint during its backoff, without it otherwise."""
        return with_taint(node, REJECTED, is_tainted=node.name in self._active)

    def explain(self, verdicts: Mapping[str, FilterVerdict], nodes: NodeTable) -> Mapping[str, FilterVerdict]:
        """Return the verdicts with the backoff as the reason for nodes in backoff, in place of the taint."""
        verdict = verdicts.get(_TAINTS)
        rows = {nodes.row(name) for name in self._active if name in nodes.names}
        if verdict is None or not any(not verdict.allowed[row] for row in rows):
            return verdicts
        return {
            **verdicts,
            _TAINTS: replace(
                verdict,
                why=lambda index: (_REASON,) if index in rows else verdict.reasons(index),
                counts=lambda refused: _counts(refused, rows, verdict),
            ),
        }

    def end(self, now: float) -> list[str]:
        """End the backoffs that are over; return the names of their nodes."""
        ended = [name for name in self._active if self._last[name].until <= now]
        self._active.difference_update(ended)
        for name in [name for name, last in self._last.items() if last.until + self._max <= now]:
            del self._last[name]
        return ended

    def next_at(self) -> float | None:
        """Return the time at which the next backoff ends, seconds; None if no node is in backoff."""
        return min((self._last[name].until for name in self._active), default=None)
