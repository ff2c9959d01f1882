"""InterPodAffinity: affinity and anti-affinity between pods, required (filter) and preferred (score).

The pods in a topology domain are those on nodes with the same value of the term's topology key. For each term that
selects pods in the node's domain, counting every such pod,

    raw = + weight    preferred affinity of the pending pod
          - weight    preferred anti-affinity of the pending pod
          + weight    preferred affinity of a placed pod that selects the pending pod; its required affinity counts with
                      the weight hardPodAffinityWeight
          - weight    preferred anti-affinity of a placed pod that selects the pending pod

    score = trunc(100 * (raw - lowest raw) / (highest raw - lowest raw))        0 for all nodes if all are equal

Source: the plugin interpodaffinity of kube-scheduler.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np

from runtime.kubernetes.objects import Pod
from runtime.kubernetes.scheduling_rules import PodAffinityTerm
from scoring.arguments import Between, CheckedArguments
from scoring.arrays import Bools, Int64s
from scoring.normalization import MAX_NODE_SCORE
from scoring.plugins.base import EVERY_ROW, Rows, Terms, WithoutNodeTerms
from scoring.plugins.filtering import ClusterEvent, FilterPlugin, FilterVerdict
from scoring.table.node_table import NodeTable
from scoring.table.placed_rules import PlacedTerm

_NO_AFFINITY = "node(s) didn't match pod affinity rules"
_ANTI_AFFINITY = "node(s) didn't match pod anti-affinity rules"
_PLACED_ANTI_AFFINITY = "node(s) didn't satisfy existing pods anti-affinity rules"


@dataclass(frozen=True)
class InterPodAffinity(CheckedArguments, WithoutNodeTerms, FilterPlugin):
    """Arguments of InterPodAffinity.

    Attributes:
        hard_pod_affinity_weight: weight of the required affinity of placed pods in the score.
        ignore_preferred_terms_of_existing_pods: score only pods that have preferred terms themselves.
    """

    hard_pod_affinity_weight: Annotated[int, Between(0, 100)] = 1
    ignore_preferred_terms_of_existing_pods: bool = False

    name: ClassVar[str] = "InterPodAffinity"
    normalizes: ClassVar[bool] = True
    requeued_by: ClassVar[frozenset[ClusterEvent]] = frozenset({
        ClusterEvent.NODE_ADDED, ClusterEvent.NODE_CHANGED, ClusterEvent.POD_ASSIGNED, ClusterEvent.POD_CHANGED,
        ClusterEvent.POD_GONE, ClusterEvent.OTHER_CHANGED,
    })  # fmt: skip

    def filter(self, pod: Pod, nodes: NodeTable, rows: Rows = EVERY_ROW) -> FilterVerdict | None:
        """Return the nodes on which the required terms of the pod and of placed pods hold; None without such terms."""
        rules, placed, sources = pod.scheduling, nodes.placed_rules, nodes.selector_sources
        repelled: Bools | None = None
        for each in placed.terms_matching(pod, sources.namespace_labels):
            if each.role == "required_anti":
                repelled = _either(repelled, _in_domains(nodes, each.term.topology_key, placed.pods_with(each)))
        repelling: Bools | None = None
        for term in rules.required_anti_affinity_terms:
            counts = placed.pods_matching([sources.criterion(term)])
            repelling = _either(repelling, _in_domains(nodes, term.topology_key, counts))
        terms = rules.required_affinity_terms
        attracted = _attracted(pod, nodes, terms) if terms else None
        if repelled is None and repelling is None and attracted is None:
            return None
        allowed = np.ones(len(nodes), np.bool_) if attracted is None else attracted.copy()
        for refused in (repelled, repelling):
            if refused is not None:
                allowed &= ~refused
        numbers = np.arange(len(nodes))[rows]

        def why(index: int) -> tuple[str, ...]:
            row = numbers[index]
            if attracted is not None and not attracted[row]:
                return (_NO_AFFINITY,)
            return (_ANTI_AFFINITY if repelling is not None and repelling[row] else _PLACED_ANTI_AFFINITY,)

        unresolvable = np.zeros(len(nodes), np.bool_) if attracted is None else ~attracted
        return FilterVerdict(allowed[rows], why, unresolvable[rows])

    def skips(self, pod: Pod) -> bool:
        """Return true if the terms of placed pods are ignored and the pod has no preferred terms."""
        return self.ignore_preferred_terms_of_existing_pods and not _has_preferred_terms(pod)

    def equal_score(self, pod: Pod, nodes: NodeTable) -> int | None:
        """Return 0 if the pod has no preferred terms, and no placed pod has a term that counts for it."""
        return None if _has_preferred_terms(pod) or any(self._placed_terms(pod, nodes)) else 0

    def pod_terms(self, pods: Sequence[Pod], node: Terms, nodes: NodeTable, rows: Rows) -> Terms:  # noqa: ARG002
        """Return the sum of the weights of the terms that hold for each pod and node."""
        sums = np.zeros((len(pods), len(nodes)), np.int64)
        for index, pod in enumerate(pods):
            for weight, topology_key, counts in self._weighted_counts(pod, nodes):
                sums[index] += weight * nodes.rows.topology(topology_key).on_nodes(counts)
        return {"score": sums[:, rows]}

    def normalize(self, scores: Int64s) -> Int64s:
        """Return scores from 0 to 100, shape (nodes,)."""
        if not scores.size:
            return scores
        lowest, highest = scores.min(), scores.max()
        if lowest == highest:
            return np.zeros_like(scores)
        # In the order of kube-scheduler's floating-point operations.
        share = (scores - lowest).astype(np.float64) / float(highest - lowest)
        normalized: Int64s = (float(MAX_NODE_SCORE) * share).astype(np.int64)
        return normalized

    def line(self, terms: Mapping[str, Any]) -> str:
        """Return the sum of the weights as a sentence."""
        return f"affinity to the pods in the node's domains: total weight {terms['score']}"

    def _weighted_counts(self, pod: Pod, nodes: NodeTable) -> Iterator[tuple[int, str, Int64s]]:
        """Yield the weight, the topology key and the number of pods on each node of every term that selects pods."""
        rules, placed, sources = pod.scheduling, nodes.placed_rules, nodes.selector_sources
        for sign, terms in ((1, rules.preferred_affinity_terms), (-1, rules.preferred_anti_affinity_terms)):
            for weight, term in terms:
                yield sign * weight, term.topology_key, placed.pods_matching([sources.criterion(term)])
        for weight, each in self._placed_terms(pod, nodes):
            yield weight, each.term.topology_key, placed.pods_with(each)

    def _placed_terms(self, pod: Pod, nodes: NodeTable) -> Iterator[tuple[int, PlacedTerm]]:
        """Yield the weight of every term of placed pods that selects the pod and counts for its score."""
        for each in nodes.placed_rules.terms_matching(pod, nodes.selector_sources.namespace_labels):
            weight = {
                "required": self.hard_pod_affinity_weight, "preferred": each.weight, "preferred_anti": -each.weight,
            }.get(each.role, 0)  # fmt: skip
            if weight:
                yield weight, each


def _has_preferred_terms(pod: Pod) -> bool:
    return bool(pod.scheduling.preferred_affinity_terms or pod.scheduling.preferred_anti_affinity_terms)


def _attracted(pod: Pod, nodes: NodeTable, terms: Sequence[PodAffinityTerm]) -> Bools:
    """Return a mask of the nodes on which the pod's required affinity holds, shape (nodes,).

    A placed pod counts only if it matches all terms. If no domain has such a pod, a pending pod that matches its own
    terms may run on every node with the topology keys, so that the first pod of a group can start.
    """
    criteria = [nodes.selector_sources.criterion(term) for term in terms]
    counts = nodes.placed_rules.pods_matching(criteria)
    has_labels = np.ones(len(nodes), np.bool_)
    holds = np.ones(len(nodes), np.bool_)
    is_alone = True
    for key in dict.fromkeys(term.topology_key for term in terms):
        topology = nodes.rows.topology(key)
        in_domain = topology.on_nodes(counts)
        has_labels &= topology.has_label
        holds &= in_domain > 0
        is_alone &= not in_domain.any()
    if is_alone and all(criterion.matches(pod.namespace, pod.labels) for criterion in criteria):
        return has_labels
    return holds


def _in_domains(nodes: NodeTable, topology_key: str, counts: Int64s) -> Bools | None:
    """Return a mask of the nodes in whose domain there are counted pods, shape (nodes,); None if there are none."""
    if not counts.any():
        return None
    return nodes.rows.topology(topology_key).on_nodes(counts) > 0


def _either(mask: Bools | None, other: Bools | None) -> Bools | None:
    return other if mask is None else mask if other is None else mask | other
