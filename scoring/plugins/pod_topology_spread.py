"""PodTopologySpread: spread the pods that a selector counts over topology domains.

Filter, for each constraint with ``DoNotSchedule``:

    pods in the node's domain + (1 if the pod matches the selector) - fewest pods in a domain <= maxSkew

Score, for the constraints with ``ScheduleAnyway``, over the n feasible nodes that have all topology keys:

    raw   = round(sum of (pods in the node's domain * ln(domains + 2) + maxSkew - 1))
    score = trunc(100 * (highest raw + lowest raw - raw) / highest raw)         100 for all nodes if every raw is 0

The domains are those of the feasible nodes, n for the key ``kubernetes.io/hostname``. Feasible nodes without a topology
key have the raw score -1 here and the score 0. A pod without constraints of its own has default constraints. The rows
to score must be the feasible nodes. Source: the plugin podtopologyspread of kube-scheduler.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np

from runtime.kubernetes.constraints import NodeRequirement
from runtime.kubernetes.objects import Pod
from runtime.kubernetes.scheduling_rules import LabelSelector, SpreadConstraint
from scoring.arguments import ArgumentError, check_arguments
from scoring.arrays import Bools, Float64s, Int64s
from scoring.go_math import rounded_score
from scoring.normalization import MAX_NODE_SCORE
from scoring.plugins.base import EVERY_ROW, Rows, Terms, WithoutNodeTerms
from scoring.plugins.filtering import ClusterEvent, FilterPlugin, FilterVerdict
from scoring.table.node_table import NodeTable
from scoring.table.placed_rules import PodCriterion, SelectorSources

HOSTNAME = "kubernetes.io/hostname"
SYSTEM_DEFAULTS = (
    SpreadConstraint(3, HOSTNAME, required=False),
    SpreadConstraint(5, "topology.kubernetes.io/zone", required=False),
)
_TOO_SKEWED = "node(s) didn't match pod topology spread constraints"
_NO_LABEL = f"{_TOO_SKEWED} (missing required label)"
_IGNORED = -1
_MAX_CACHED_CONSTRAINTS = 10_000
_SELECTING_OWNERS = frozenset({"ReplicationController", "ReplicaSet", "StatefulSet"})
# Labels that differ between the pods of one owner, so no selector of an owner has them.
_LABELS_OF_ONE_POD = frozenset({
    "apps.kubernetes.io/pod-index", "controller-revision-hash", "statefulset.kubernetes.io/pod-name",
})  # fmt: skip


@dataclass(frozen=True)
class PodTopologySpread(WithoutNodeTerms, FilterPlugin):
    """Arguments of PodTopologySpread.

    Attributes:
        default_constraints: constraints, without selectors, for pods that have no constraints themselves.
        defaulting_type: ``System`` for kube-scheduler's own default constraints, ``List`` for ``default_constraints``.
    """

    default_constraints: tuple[SpreadConstraint, ...] = ()
    defaulting_type: Literal["System", "List"] = "System"

    name: ClassVar[str] = "PodTopologySpread"
    normalizes: ClassVar[bool] = True
    requeued_by: ClassVar[frozenset[ClusterEvent]] = frozenset({
        ClusterEvent.NODE_ADDED, ClusterEvent.NODE_CHANGED, ClusterEvent.POD_ASSIGNED, ClusterEvent.POD_CHANGED,
        ClusterEvent.POD_GONE,
    })  # fmt: skip

    def __post_init__(self) -> None:
        check_arguments(self)
        if self.default_constraints and self.defaulting_type == "System":
            raise ArgumentError(type(self).__name__, "defaulting_type", "must be 'List' if constraints are set")

    def filter(self, pod: Pod, nodes: NodeTable, rows: Rows = EVERY_ROW) -> FilterVerdict | None:
        """Return on which nodes the required constraints hold; None for a pod without required constraints."""
        constraints = self._constraints(pod, nodes.selector_sources, required=True)
        if not constraints:
            return None
        eligible = _with_all_keys(nodes, constraints)
        allowed = np.ones(len(nodes), np.bool_)
        unlabelled = np.zeros(len(nodes), np.bool_)
        for constraint in constraints:
            topology = nodes.rows.topology(constraint.topology_key)
            counts = _matching(pod, nodes, constraint)
            counted = _both(eligible, _included(pod, nodes, constraint))
            in_domain = topology.on_nodes(counts if counted is None else np.where(counted, counts, 0))
            domains = topology.domains(topology.codes if counted is None else topology.codes[counted])
            # The fewest pods in a domain: every domain that counts has a node that counts.
            fewest = (
                0
                if domains < constraint.min_domains
                else int((in_domain if counted is None else in_domain[counted]).min())
            )
            itself = constraint.selector is not None and constraint.selector.matches(pod.labels)
            balanced = in_domain <= constraint.max_skew - int(itself) + fewest
            if not topology.is_complete:
                unlabelled |= allowed & ~topology.has_label  # the first constraint that fails gives the reason
                balanced &= topology.has_label
            allowed &= balanced
        numbers = np.arange(len(nodes))[rows]

        def why(index: int) -> tuple[str, ...]:
            return (_NO_LABEL if unlabelled[numbers[index]] else _TOO_SKEWED,)

        return FilterVerdict(allowed[rows], why, unlabelled[rows])

    def skips(self, pod: Pod) -> bool:
        """Return true if the pod's constraints, or the defaults for a pod without constraints, are all required."""
        if pod.scheduling.spread:
            return all(constraint.required for constraint in pod.scheduling.spread)
        return all(constraint.required for constraint in self._defaults)

    def equal_score(self, pod: Pod, nodes: NodeTable) -> int | None:
        """Return 0 for a pod without constraints."""
        return None if self._constraints(pod, nodes.selector_sources, required=False) else 0

    def pod_terms(self, pods: Sequence[Pod], node: Terms, nodes: NodeTable, rows: Rows) -> Terms:  # noqa: ARG002
        """Return the weighted number of pods in the domains of each node, and -1 for nodes that are not scored."""
        return {"score": np.array([self._raw(pod, nodes, rows) for pod in pods])}

    def normalize(self, scores: Int64s) -> Int64s:
        """Return scores from 0 to 100, shape (nodes,)."""
        if scores.size and scores.min() != _IGNORED:
            return _normalized(scores)
        scored = scores != _IGNORED
        normalized = np.zeros_like(scores)
        if scored.any():
            normalized[scored] = _normalized(scores[scored])
        return normalized

    def line(self, terms: Mapping[str, Any]) -> str:
        """Return the weighted number of pods as a sentence."""
        if terms["score"] == _IGNORED:
            return "the node lacks a topology key, or the pod has no constraints"
        return f"matching pods in the node's domains count {terms['score']}"

    @property
    def _defaults(self) -> tuple[SpreadConstraint, ...]:
        return SYSTEM_DEFAULTS if self.defaulting_type == "System" else self.default_constraints

    def _constraints(self, pod: Pod, sources: SelectorSources, *, required: bool) -> tuple[SpreadConstraint, ...]:
        """Return the pod's own constraints, or the defaults with the selector of its Services and owner."""
        own = pod.scheduling.spread
        if own:
            return tuple([constraint for constraint in own if constraint.required == required])
        defaults = tuple([constraint for constraint in self._defaults if constraint.required == required])
        if not defaults:
            return ()
        key = defaults, pod.namespace, tuple(pod.labels.items()), pod.owner
        known = sources.default_constraints.get(key)
        if known is None:
            if len(sources.default_constraints) >= _MAX_CACHED_CONSTRAINTS:
                sources.default_constraints.clear()
            selector = default_selector(pod, sources)
            chosen = () if selector is None else defaults
            known = tuple([replace(constraint, selector=selector) for constraint in chosen])
            sources.default_constraints[key] = known
        return known

    def _raw(self, pod: Pod, nodes: NodeTable, rows: Rows) -> Int64s:
        constraints = self._constraints(pod, nodes.selector_sources, required=False)
        size = len(nodes) if isinstance(rows, slice) else len(rows)
        if not constraints:
            return np.full(size, _IGNORED, np.int64)
        # With kube-scheduler's own defaults, nodes without a zone are still spread by their host name.
        needs_all_keys = bool(pod.scheduling.spread) or self.defaulting_type != "System"
        complete = _with_all_keys(nodes, constraints) if needs_all_keys else None
        scored = None if complete is None else complete[rows]
        total: Float64s = np.zeros(size)
        matching: dict[int, Int64s] = {}  # by the identity of the selector, which default constraints share
        for constraint in constraints:
            topology = nodes.rows.topology(constraint.topology_key)
            counts = matching.get(id(constraint.selector))
            if counts is None:
                counts = matching[id(constraint.selector)] = _matching(pod, nodes, constraint)
            if constraint.topology_key == HOSTNAME:
                domains = size if scored is None else int(np.count_nonzero(scored))
            else:
                codes = topology.codes if isinstance(rows, slice) else topology.codes.take(rows)
                domains = topology.domains(codes if scored is None else codes[scored])
                counted = _both(complete, _included(pod, nodes, constraint))
                counts = topology.on_nodes(counts if counted is None else np.where(counted, counts, 0))
            # In the order of kube-scheduler's floating-point operations.
            part = counts[rows] * math.log(domains + 2) + float(constraint.max_skew - 1)
            if not topology.is_complete:
                part[~topology.has_label[rows]] = 0.0
            total += part
        raw = rounded_score(total)
        return raw if scored is None else np.where(scored, raw, _IGNORED)


def _normalized(raw: Int64s) -> Int64s:
    """Return 100 * (highest + lowest - raw) // highest; 100 if every raw score is 0."""
    highest, lowest = raw.max(), raw.min()
    if highest == 0:
        return np.full_like(raw, MAX_NODE_SCORE)
    if highest < raw.size:  # one division for each raw score, not for each node
        by_raw: Int64s = MAX_NODE_SCORE * (highest + lowest - np.arange(highest + 1)) // highest
        return by_raw.take(raw)
    return np.asarray(MAX_NODE_SCORE * (highest + lowest - raw) // highest)


def default_selector(pod: Pod, sources: SelectorSources) -> LabelSelector | None:
    """Return the selector for a pod's default constraints; None if nothing selects the pod.

    The selector combines those of the Services that select the pod and that of the pod's owner. If the sources lack the
    owner, the pod's labels are selected instead, except for labels of this pod only: an owner creates its pods from one
    template. Source: ``DefaultSelector`` of kube-scheduler's plugin helpers.
    """
    pairs: set[tuple[str, str]] = set()
    for selector in sources.service_selectors.get(pod.namespace) or ():
        if all(pod.labels.get(key) == value for key, value in selector.items()):
            pairs.update(selector.items())
    requirements: set[NodeRequirement] = set()
    owner = pod.owner
    if owner is not None and owner.kind in _SELECTING_OWNERS:
        known = sources.owner_selectors.get((pod.namespace, owner.kind, owner.name))
        if known is not None:
            requirements.update(known.requirements)
        else:
            pairs.update((key, value) for key, value in pod.labels.items() if key not in _LABELS_OF_ONE_POD)
    requirements.update(NodeRequirement(key, "In", (value,)) for key, value in pairs)
    return LabelSelector(tuple(requirements)) if requirements else None


def _matching(pod: Pod, nodes: NodeTable, constraint: SpreadConstraint) -> Int64s:
    """Return the number of pods on each node that a constraint counts, shape (nodes,), which must not be modified.

    Terminating pods do not count. A selector without requirements counts no pod, as in kube-scheduler.
    """
    if constraint.selector is None or not constraint.selector.requirements:
        return np.zeros(len(nodes), np.int64)
    criterion = PodCriterion(constraint.selector, (pod.namespace,))
    return nodes.placed_rules.pods_matching([criterion], terminating=False)


def _with_all_keys(nodes: NodeTable, constraints: Sequence[SpreadConstraint]) -> Bools | None:
    """Return a mask of the nodes that have the topology keys of all constraints, shape (nodes,); None for all nodes."""
    has_all: Bools | None = None
    for constraint in constraints:
        topology = nodes.rows.topology(constraint.topology_key)
        if not topology.is_complete:
            has_all = _both(has_all, topology.has_label)
    return has_all


def _both(mask: Bools | None, other: Bools | None) -> Bools | None:
    """Return the intersection of two masks, where None stands for all nodes."""
    return other if mask is None else mask if other is None else mask & other


def _included(pod: Pod, nodes: NodeTable, constraint: SpreadConstraint) -> Bools | None:
    """Return a mask of the nodes that the constraint's policies include, shape (nodes,); None for all nodes."""
    selected = nodes.rows.constraints.selected(pod) if constraint.honors_affinity else None
    tolerated = nodes.rows.constraints.tolerated(pod) if constraint.honors_taints else None
    return _both(selected, tolerated)
