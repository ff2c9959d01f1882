"""PodTopologySpread as kube-scheduler scores by default: pods of one owner on different nodes.

With c the owner's pods on a node, n the number of nodes that passed the filters:

    s     = round(c * log(n + 2) + 2)                       (maxSkew 3, whose score is 3 - 1)
    score = 100 * (highest s + lowest s - s) / highest s    truncated

Only pods of services, replica sets and stateful sets spread by default; jobs' do not. Zones are left out: traces have
none. Source: k8s.io/kubernetes/pkg/scheduler/framework/plugins/podtopologyspread, systemDefaultConstraints.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import log
from typing import Any, ClassVar

import numpy as np

from runtime.kubernetes.objects import Owner, Pod
from scoring.arrays import Int64s
from scoring.normalization import MAX_NODE_SCORE
from scoring.plugins.base import Rows, Terms, WithoutNodeTerms
from scoring.table.node_table import NodeTable
from trimaran.simulator.cluster import JOB

_MAX_SKEW = 3


@dataclass(frozen=True)
class PodTopologySpread(WithoutNodeTerms):
    """Spread an owner's pods over nodes.

    Attributes:
        replicas: how many pods of an owner each node has, by owner and node name; followed as it changes.
    """

    replicas: Mapping[Owner, Mapping[str, int]] = field(hash=False)

    name: ClassVar[str] = "PodTopologySpread"
    normalizes: ClassVar[bool] = True

    def pod_terms(self, pods: Sequence[Pod], node: Terms, nodes: NodeTable, rows: Rows) -> Terms:  # noqa: ARG002
        """Return the owner's pods on each node, and the score before it is normalized."""
        replicas = np.zeros((len(pods), len(nodes)), np.int64)
        for place, pod in enumerate(pods):
            found = None if pod.owner is None else self.replicas.get(pod.owner)
            if found:
                replicas[place, nodes.rows_of(found)] = np.fromiter(found.values(), np.int64, len(found))
        replicas = replicas[:, rows]
        weight = log(replicas.shape[1] + 2)
        score = np.floor(replicas * weight + (_MAX_SKEW - 1) + 0.5).astype(np.int64)
        return {"replicas": replicas, "score": score}

    def normalize(self, scores: Int64s) -> Int64s:
        """Return 100 where the owner has the fewest pods."""
        if not scores.size:
            return scores
        highest = scores.max()
        result: Int64s = MAX_NODE_SCORE * (highest + scores.min() - scores) // highest
        return result

    def skips(self, pod: Pod) -> bool:
        """Say whether nothing spreads this pod."""
        return pod.owner is None or pod.owner.kind == JOB

    def line(self, terms: Mapping[str, Any]) -> str:
        """Say how many of the owner's pods are there."""
        return f"{terms['replicas']} pods of this owner are there"
