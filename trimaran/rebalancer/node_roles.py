"""Roles of nodes in a plan: sources and targets of moves, with the reason why a node is not one of them."""

from collections.abc import Mapping

import numpy as np

from scoring.arrays import Float64s
from trimaran.rebalancer.caps import Caps
from trimaran.rebalancer.eligibility import NodeRefusal, source_barrier, target_barrier
from trimaran.rebalancer.facts import NodeBarrier, NodeFacts
from trimaran.rebalancer.lineage import CooldownClock
from trimaran.rebalancer.look import ClusterLook, percents
from trimaran.rebalancer.rules import MoveRules

_DISAGREEMENT_STEPS = 3  # 15 minutes, the default window of the watcher
_UNKNOWN = NodeFacts(barriers=frozenset({NodeBarrier.NOT_READY}))  # of a node whose object is not known


class NodeRoles:
    """Roles of the nodes of a cluster.

    Args:
        look: state of the cluster.
        rules: the limits.
        caps: moves of the past day.
        cooldowns: pauses after these moves.
        use: CPU and memory use of each node in the past, as :meth:`MoveProblem.node_use` returns it.
        capacity: CPU and memory of each node, shape (2, nodes).
        measured: CPU load of each node with fresh metrics, corrected for recent moves, percent.
    """

    def __init__(
        self,
        look: ClusterLook,
        rules: MoveRules,
        caps: Caps,
        cooldowns: CooldownClock,
        use: tuple[Float64s, Float64s],
        capacity: Float64s,
        measured: Mapping[str, float],
    ) -> None:
        self._look, self._rules, self._caps, self._cooldowns = look, rules, caps, cooldowns
        self._measured = measured
        self._peak = _peaks(use, capacity)
        self._recent = percents(use, capacity, _DISAGREEMENT_STEPS)[0]

    def sources(self) -> dict[str, NodeBarrier | NodeRefusal]:
        """Return the nodes that no pod may leave: the reason, by name of the node."""
        return {name: why for name in self._look.table.names if (why := self._source_refusal(name)) is not None}

    def targets(self) -> dict[str, NodeBarrier | NodeRefusal]:
        """Return the nodes to which no pod may move: the reason, by name of the node."""
        return {name: why for name in self._look.table.names if (why := self._target_refusal(name)) is not None}

    def _source_refusal(self, name: str) -> NodeBarrier | NodeRefusal | None:
        """Return the reason why no pod leaves a node; None if pods may leave."""
        facts = self._look.nodes.get(name, _UNKNOWN)
        if (barrier := source_barrier(facts, self._rules.nodes)) is not None:
            return barrier
        if self._peak[self._look.table.row(name)] < self._rules.nodes.source_percent:
            return NodeRefusal.NOT_HOT
        if (refusal := self._measure_refusal(name)) is not None:
            return refusal
        if self._cooldowns.source_until(name) > self._look.now:
            return NodeRefusal.COOLDOWN
        return None if self._caps.allows_source(name) else NodeRefusal.CAP

    def _target_refusal(self, name: str) -> NodeBarrier | NodeRefusal | None:
        """Return the reason why no pod moves to a node; None if pods may move there."""
        if (barrier := target_barrier(self._look.nodes.get(name, _UNKNOWN))) is not None:
            return barrier
        if name in self._look.unknown_nodes:
            return NodeRefusal.UNKNOWN_REQUESTS
        if (refusal := self._measure_refusal(name)) is not None:
            return refusal
        if self._cooldowns.target_until(name) > self._look.now:
            return NodeRefusal.COOLDOWN
        return None if self._caps.allows_target(name) else NodeRefusal.CAP

    def _measure_refusal(self, name: str) -> NodeRefusal | None:
        """Return a reason to distrust a node's load: it is not measured, or deviates from its pods' use."""
        measured = self._measured.get(name)
        if measured is None:
            return NodeRefusal.NOT_MEASURED
        disagreement = abs(measured - self._recent[self._look.table.row(name)])
        return NodeRefusal.DISAGREES if disagreement > self._rules.nodes.max_disagreement else None


def _peaks(use: tuple[Float64s, Float64s], capacity: Float64s) -> Float64s:
    """Return the highest CPU or memory load of each node in the past, percent, shape (nodes,)."""
    shares = [100 * of.max(axis=1) / np.maximum(kind, 1e-9) for of, kind in zip(use, capacity, strict=True)]
    return np.asarray(np.maximum(*shares))
