"""Where kube-scheduler will put a pod, as far as that can be known: it chooses by the sum of our scores and its own."""

import random
from collections.abc import Mapping

import numpy as np

from extender.profiles import SCORE_FACTOR
from scoring import MetricsTable, NodeTable, Pod, PreparedProfile, Profile


class Likeliest:
    """Says which candidate gets the highest sum. For one thread, and one table.

    What is not known here (topology spread, affinity to other pods, soft taints) is taken to be the same for all.

    Args:
        weight: the extender's.
        in_tree: what kube-scheduler adds by itself, by the scheduler's name.
        dice: draws among equals, as kube-scheduler does.
    """

    def __init__(self, weight: int, in_tree: Mapping[str, Profile], dice: random.Random) -> None:
        self._factor = weight * SCORE_FACTOR
        self._in_tree = in_tree
        self._dice = dice
        self._prepared: dict[str, PreparedProfile] = {}

    def node(self, pod: Pod, scheduler_name: str, scores: Mapping[str, int], table: NodeTable) -> str:
        """Return the name of the node; "" where all of them are gone meanwhile.

        Args:
            pod: the pending pod.
            scheduler_name: whose profile adds what.
            scores: what was answered, by the candidates' names.
            table: the cluster, as it was when that was answered.
        """
        profile = self._in_tree.get(scheduler_name)
        if profile is None:
            most = max(scores.values())
            return self._dice.choice([name for name, score in scores.items() if score == most])
        names = [name for name in scores if name in table]
        if not names:
            return ""
        sums = np.fromiter((scores[name] for name in names), np.int64) * self._factor
        sums += self._prepare(profile, table).score(pod, among=names).total
        return names[self._dice.choice(np.flatnonzero(sums == sums.max()).tolist())]

    def _prepare(self, profile: Profile, table: NodeTable) -> PreparedProfile:
        """Return the profile prepared for a table, which it then follows."""
        prepared = self._prepared.get(profile.scheduler_name)
        if prepared is None or prepared.nodes is not table:
            prepared = profile.prepare(table, MetricsTable.empty(table))
            self._prepared[profile.scheduler_name] = prepared
        return prepared
