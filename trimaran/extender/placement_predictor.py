"""Where kube-scheduler will put a pod, as far as that can be known: it chooses by the sum of our scores and its own."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from scoring import MetricsTable, Node, NodeTable, Pod, Profile
from scoring.arrays import Int64s
from scoring.profiles.normalization import inverted
from trimaran.extender.answer import ScoredCandidates
from trimaran.extender.profiles import SCORE_FACTOR

_SOFT = "PreferNoSchedule"


@dataclass(frozen=True)
class InTreePlugins:
    """What kube-scheduler adds by itself to an extender's scores.

    Attributes:
        profile: its plugins that :mod:`scoring` has.
        taint_weight: that of TaintToleration, which counts soft taints; 0 where it does not score.
    """

    profile: Profile
    taint_weight: int = 0


class PlacementPredictor:
    """Says which candidate gets the highest sum. For one thread, and one table.

    What is not known here (topology spread, affinity to other pods, preferred node affinity) is taken to be the same
    for all.

    Args:
        weight: the extender's.
        in_tree: what kube-scheduler adds by itself, by the scheduler's name.
        dice: draws among equals, as kube-scheduler does.
    """

    def __init__(self, weight: int, in_tree: Mapping[str, InTreePlugins], dice: random.Random) -> None:
        self._factor = weight * SCORE_FACTOR
        self._in_tree = in_tree
        self._dice = dice
        self._totals: dict[str, _Totals] = {}
        self._nodes: Sequence[Node] = ()  # of which those with soft taints are
        self._tainted: Mapping[str, Node] = {}

    def node(self, pod: Pod, scheduler_name: str, answer: ScoredCandidates, table: NodeTable) -> str:
        """Return the name of the node; "" where all of them are gone meanwhile.

        Args:
            pod: the pending pod.
            scheduler_name: whose profile adds what.
            answer: what was answered.
            table: the cluster, as it was then or is now.
        """
        names, points, rows = _candidates(answer, table)
        if not names:
            return ""
        sums = points * self._factor
        in_tree = self._in_tree.get(scheduler_name)
        if in_tree is not None:
            sums += self._totals_of(in_tree.profile, table).among(pod, rows)
            sums += in_tree.taint_weight * self._soft_taints(pod, names, table)
        equal = (sums == sums.max()).nonzero()[0]
        return names[int(equal[self._dice.randrange(equal.size)])]

    def _totals_of(self, profile: Profile, table: NodeTable) -> "_Totals":
        found = self._totals.get(profile.scheduler_name)
        if found is None or found.nodes is not table:
            found = self._totals[profile.scheduler_name] = _Totals(profile, table)
        return found

    def _soft_taints(self, pod: Pod, names: Sequence[str], table: NodeTable) -> Int64s | int:
        """Return TaintToleration's score of each node, 0 to 100, shape (nodes,); 0 where no node has soft taints.

        Source: k8s.io/kubernetes/pkg/scheduler/framework/plugins/tainttoleration.
        """
        if table.nodes is not self._nodes:  # they are replaced when one changes
            self._nodes = table.nodes
            self._tainted = {
                node.name: node for node in table.nodes if any(taint.effect == _SOFT for taint in node.taints)
            }
        if not self._tainted:
            return 0
        counts = np.zeros(len(names), np.int64)
        for place, name in enumerate(names):
            if name in self._tainted:
                taints = self._tainted[name].taints
                counts[place] = sum(
                    taint.effect == _SOFT and not any(each.tolerates(taint) for each in pod.tolerations)
                    for taint in taints
                )
        return inverted(counts)


class _Totals:
    """A profile's totals on a table. Pods that ask for the same come one after the other: replicas of a workload.

    So those of all nodes are kept for such pods, and only nodes that changed are scored anew, unless a plugin
    normalizes.

    Attributes:
        nodes: the table.
    """

    def __init__(self, profile: Profile, nodes: NodeTable) -> None:
        self.nodes = nodes
        self._prepared = profile.prepare(nodes, MetricsTable.empty(nodes))
        self._normalizes = any(weighted.plugin.normalizes for weighted in profile.plugins)
        self._before: object = None  # what the pod before asked for
        self._kept: tuple[object, int, Int64s] | None = None  # the nodes and their table's version, and the totals

    def among(self, pod: Pod, rows: Int64s) -> Int64s:
        """Return a pod's totals on some nodes, shape (k,)."""
        asks = pod.known_requests
        if asks is None or asks is not self._before or self._normalizes:
            self._before, self._kept = asks, None
            return self._prepared.total(pod, among=rows)
        nodes, kept = self.nodes, self._kept
        if kept is None or kept[0] is not nodes.rows:
            totals = self._prepared.total(pod)
        else:
            totals, changed = kept[2], nodes.changed_rows(kept[1])
            if changed.size:
                totals[changed] = self._prepared.total(pod, among=changed)
        self._kept = nodes.rows, nodes.version, totals
        found: Int64s = totals.take(rows)
        return found


def _candidates(answer: ScoredCandidates, table: NodeTable) -> tuple[Sequence[str], Int64s, Int64s]:
    """Return the candidates that are still there, their points and their rows."""
    names, basis = answer.names, answer.basis
    if basis is not None and basis.scores.table_names is table.names:  # nobody has joined or left since
        rows = basis.scores.rows
        if rows is not None and len(rows) == len(names):
            return names, basis.points, rows
    known, rows = table.known_rows(names)
    points = answer.points if len(known) == len(names) else [answer.scores[name] for name in known]
    return known, np.array(points, np.int64), rows
