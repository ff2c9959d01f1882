"""Prediction of kube-scheduler's choice for a pod: the node with the highest sum of extender and in-tree scores."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from scoring import MetricsTable, NodeTable, Pod, Profile
from scoring.arrays import Int64s
from scoring.normalization import inverted
from trimaran.extender.answer import ScoredCandidates
from trimaran.extender.profiles import ANSWER_FACTOR


@dataclass(frozen=True)
class InTreePlugins:
    """In-tree score plugins of kube-scheduler, whose scores are added to those of the extender.

    Attributes:
        profile: in-tree plugins that :mod:`scoring` implements, with their weights.
        taint_weight: weight of TaintToleration, which counts soft taints; 0 if it does not score.
    """

    profile: Profile
    taint_weight: int = 0


class PlacementPredictor:
    """Predictor of the node that kube-scheduler will choose for a pod. Not thread-safe.

    Scores of other in-tree plugins (topology spread, affinity to other pods, preferred node affinity) are not computed;
    they are assumed to be the same for all nodes.

    Args:
        rng: random number generator for the tie-break, which is random in kube-scheduler as well.
    """

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._totals: dict[str, _Totals] = {}

    def predict(self, pod: Pod, in_tree: InTreePlugins | None, answer: ScoredCandidates, table: NodeTable) -> str:
        """Return the name of the predicted node; "" if all candidates have been deleted.

        Args:
            pod: the pending pod.
            in_tree: in-tree plugins of the pod's scheduler; None if they are not known.
            answer: the extender's scores of the candidates.
            table: table of the cluster, from the time of the answer or later.
        """
        names, points, rows = _candidates(answer, table)
        if not names:
            return ""
        sums = points * ANSWER_FACTOR
        if in_tree is not None:
            sums += self._totals_of(in_tree.profile, table).for_rows(pod, rows)
            sums += in_tree.taint_weight * _soft_taints(pod, rows, table)
        equal = (sums == sums.max()).nonzero()[0]
        return names[int(equal[self._rng.randrange(equal.size)])]

    def _totals_of(self, profile: Profile, table: NodeTable) -> "_Totals":
        totals = self._totals.get(profile.scheduler_name)
        if totals is None or totals.nodes is not table or totals.profile is not profile:
            totals = self._totals[profile.scheduler_name] = _Totals(profile, table)
        return totals


def _soft_taints(pod: Pod, rows: Int64s, table: NodeTable) -> Int64s | int:
    """Return the score of TaintToleration for each row, 0 to 100, shape (rows,); 0 if no node has soft taints."""
    counts = table.rows.constraints.soft_taint_counts(pod.tolerations)
    return 0 if counts is None else inverted(counts.take(rows))


class _Totals:
    """Total scores of a profile, cached for consecutive pods with equal resource requests, such as replicas.

    For a replica of the previous pod only the nodes that have changed are scored again, unless a plugin of the profile
    normalizes its scores.

    Attributes:
        profile: the profile.
        nodes: table of the nodes to score.
    """

    def __init__(self, profile: Profile, nodes: NodeTable) -> None:
        self.profile, self.nodes = profile, nodes
        self._prepared = profile.prepare(nodes, MetricsTable.empty(nodes))
        self._normalizes = any(weighted.plugin.normalizes for weighted in profile.plugins)
        self._requests: object = None  # requests of the previous pod
        self._cache: tuple[object, int, Int64s] | None = None  # rows and version of the table, and the totals

    def for_rows(self, pod: Pod, rows: Int64s) -> Int64s:
        """Return the total score of a pod on the given rows of the table, shape (rows,)."""
        requests = pod.cached_requests
        # Another workload, or scores that depend on all candidates: score the rows, without the cache.
        if requests is None or requests is not self._requests or self._normalizes:
            self._requests, self._cache = requests, None
            return self._prepared.total(pod, among=rows)
        # A replica of the previous pod: score all nodes once, and afterwards only the changed ones.
        nodes, cache = self.nodes, self._cache
        if cache is None or cache[0] is not nodes.rows:
            totals = self._prepared.total(pod)
        else:
            totals, changed = cache[2], nodes.changed_rows(cache[1])
            if changed.size:
                totals[changed] = self._prepared.total(pod, among=changed)
        self._cache = nodes.rows, nodes.version, totals
        selected: Int64s = totals.take(rows)
        return selected


def _candidates(answer: ScoredCandidates, table: NodeTable) -> tuple[Sequence[str], Int64s, Int64s]:
    """Return the candidates that still exist: their names, their scores, and their rows in the table."""
    names, details = answer.names, answer.details
    if details is not None and details.scores.table_names is table.names:  # no node was added or removed since
        rows = details.scores.rows
        if rows is not None and len(rows) == len(names):
            return names, details.points, rows
    known, rows = table.known_rows(names)
    points = answer.points if len(known) == len(names) else [answer.scores[name] for name in known]
    return known, np.array(points, np.int64), rows
