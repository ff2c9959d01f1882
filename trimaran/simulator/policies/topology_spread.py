"""kube-scheduler's PodTopologySpread with its default constraints: it spreads an owner's pods over nodes.

With c the number of the owner's pods on a node, and n the number of feasible nodes:

    s     = round(c * log(n + 2) + 2)                       (maxSkew 3, whose score is 3 - 1)
    score = 100 * (highest s + lowest s - s) / highest s    truncated

By default only pods of services, replica sets and stateful sets are spread, not those of jobs. Zones are not simulated,
because traces have none.
Source: k8s.io/kubernetes/pkg/scheduler/framework/plugins/podtopologyspread, systemDefaultConstraints.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import log
from typing import Any, ClassVar

import numpy as np

from runtime.kubernetes.objects import Pod
from runtime.kubernetes.workloads import Owner
from scoring.arrays import Int64s
from scoring.normalization import MAX_NODE_SCORE
from scoring.plugins.base import Rows, Terms, WithoutNodeTerms
from scoring.table.node_table import NodeTable
from trimaran.traces.trace import JOB

_MAX_SKEW = 3


@dataclass(frozen=True)
class OwnerSpread(WithoutNodeTerms):
    """kube-scheduler's PodTopologySpread over hostnames, without zones: prefers nodes with few of the owner's pods.

    Attributes:
        replicas: number of an owner's pods on each node, by owner and node name. This is the cluster's own mapping and
            not a copy, so scores always use the current counts.
    """

    replicas: Mapping[Owner, Mapping[str, int]] = field(hash=False)

    name: ClassVar[str] = "PodTopologySpread"
    normalizes: ClassVar[bool] = True

    def pod_terms(self, pods: Sequence[Pod], node: Terms, nodes: NodeTable, rows: Rows) -> Terms:  # noqa: ARG002
        """Return the number of pods of the pod's owner on each node, and each node's score before normalization."""
        replicas = np.zeros((len(pods), len(nodes)), np.int64)
        for index, pod in enumerate(pods):
            by_node = None if pod.owner is None else self.replicas.get(pod.owner)
            if by_node:
                replicas[index, nodes.rows_of(by_node)] = np.fromiter(by_node.values(), np.int64, len(by_node))
        replicas = replicas[:, rows]
        weight = log(replicas.shape[1] + 2)
        score = np.floor(replicas * weight + (_MAX_SKEW - 1) + 0.5).astype(np.int64)
        return {"replicas": replicas, "score": score}

    def normalize(self, scores: Int64s) -> Int64s:
        """Return normalized scores; nodes with the fewest of the owner's pods get the highest."""
        if not scores.size:
            return scores
        highest = scores.max()
        return np.asarray(MAX_NODE_SCORE * (highest + scores.min() - scores) // highest)

    def skips(self, pod: Pod) -> bool:
        """Return whether the pod has no owner or belongs to a job, so that it is not spread."""
        return pod.owner is None or pod.owner.kind == JOB

    def line(self, terms: Mapping[str, Any]) -> str:
        """Return the text that explains a node's score, with the number of the owner's pods on the node."""
        return f"{terms['replicas']} pods of this owner are there"
