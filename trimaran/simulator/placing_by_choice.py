"""Placing of queued pods one after the other: the filter with node sampling, then a choice by a chooser."""

from collections.abc import Iterable, Iterator, Sequence

from runtime.kubernetes.objects import Pod
from trimaran.scheduler.framework.node_sampling import NodeSampling
from trimaran.simulator.cluster import Cluster
from trimaran.simulator.policy import Chooser, Placement, Placing
from trimaran.traces.events import Amounts


class PlacingByChoice(Placing):
    """Placing by a chooser, which gets the feasible nodes of each pod.

    Args:
        cluster: the simulated cluster.
        chooser: chooses among the feasible nodes.
        percent_of_nodes: percentage of the nodes for which feasibility is checked; 0 means kube-scheduler's rule.
    """

    def __init__(self, cluster: Cluster, chooser: Chooser, percent_of_nodes: int) -> None:
        self._cluster, self._chooser = cluster, chooser
        self._sampling = NodeSampling(percent_of_nodes)

    def admit(self, number: int) -> Pod:
        """Return a pod that enters the queue, with the requests that the policy has given it."""
        return self._chooser.admit(number)

    def place(self, numbers: Sequence[int]) -> Iterator[Placement]:
        """Try to place queued pods in the given order; yield the placements."""
        cluster = self._cluster
        # Nodes only fill up during this loop, so a pod with requests at least as large as a failed pod's cannot fit.
        too_large: list[Amounts] = []
        for number in numbers:
            queued = cluster.queue[number]
            if queued.ready > cluster.minute or _is_at_least(queued.requests, too_large):
                continue
            candidates = self._sampling.candidates(cluster.nodes.feasible(queued.pod))
            if candidates.size:
                yield Placement(number, self._chooser.choose(number, queued.pod, candidates))
                continue
            # Keep only the smallest failed requests.
            smaller = [amounts for amounts in too_large if not _is_at_least(amounts, [queued.requests])]
            too_large = [*smaller, queued.requests]


def _is_at_least(requests: Amounts, others: Iterable[Amounts]) -> bool:
    """Return whether requests are at least as large as one of the others, in both CPU and memory."""
    cpu, memory = requests
    for other in others:  # noqa: SIM110  a generator would cost more than the comparisons
        if cpu >= other[0] and memory >= other[1]:
            return True
    return False
