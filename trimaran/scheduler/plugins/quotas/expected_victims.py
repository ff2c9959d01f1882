"""Victims of preemption that have not left yet. Their resources are promised to the pods for which they leave."""

from collections.abc import Iterable

from runtime.kubernetes.objects import Pod
from scoring.table.node_table import NodeTable
from trimaran.scheduler.framework.extension_points import PREEMPTION_SECONDS


class ExpectedVictims:
    """Victims by pending pod: expected while the pod is nominated to a node, and for 10 s after the preemption."""

    def __init__(self) -> None:
        # By the uid of the pending pod: the uids of its victims, and the time at which they were chosen.
        self._by_uid: dict[str, tuple[frozenset[str], float]] = {}

    def replace(self, pod: Pod, victims: Iterable[Pod], now: float) -> None:
        """Replace the expected victims of a pending pod."""
        self._by_uid[pod.uid] = frozenset(each.uid for each in victims), now

    def update(self, nodes: NodeTable, now: float) -> None:
        """Forget victims that have left, and those whose deletion may have failed."""
        index, nominated = nodes.occupancy.pod_index(), nodes.occupancy.nominated
        self._by_uid = {
            uid: (present, since)
            for uid, (victims, since) in self._by_uid.items()
            if (uid in nominated or now < since + PREEMPTION_SECONDS)
            and (present := frozenset(each for each in victims if index.get(each) is not None))
        }

    def is_awaited_by(self, pod: Pod, now: float) -> bool:
        """Return whether a pod has victims that were chosen only a short time ago."""
        return pod.uid in self._by_uid and now < self._by_uid[pod.uid][1] + PREEMPTION_SECONDS

    def recheck_at(self, now: float) -> float | None:
        """Return the next time at which victims may no longer be expected, seconds; None without victims.

        No event reports this: a deletion may fail, or the pending pod gets another node first.
        """
        ends = (since + PREEMPTION_SECONDS for _, since in self._by_uid.values())
        return min((end if end > now else now + PREEMPTION_SECONDS for end in ends), default=None)

    def of_others(self, pod: Pod) -> frozenset[str]:
        """Return the uids of the victims of all other pods."""
        return frozenset[str]().union(*(victims for uid, (victims, _) in self._by_uid.items() if uid != pod.uid))
