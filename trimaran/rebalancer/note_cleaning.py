"""Removal of target annotations that belong to no open move, such as after a process was killed."""

from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass
from typing import Final

from runtime.kubernetes.objects import Pod
from trimaran.rebalancer.mover import PodMover

_MOST_A_CYCLE: Final = 10  # requests
_MIN_SECONDS, _MAX_SECONDS = 5.0, 300.0


@dataclass(frozen=True, slots=True)
class _Pause:
    """Pause of a namespace after requests for its pods.

    Attributes:
        seconds: length of the pause.
        ends_at: end of the pause, on the clock that never jumps.
    """

    seconds: float
    ends_at: float


class NoteCleaner:
    """Removal of target annotations within a budget, since tenants may write them on their pods again and again.

    A cycle sends at most 10 requests, and stops at the first that fails. Then a namespace pauses for 5 seconds, and
    after each further cycle for twice as long, up to 5 minutes. Five minutes without requests reset its pause.

    Args:
        uptime: clock that never jumps, seconds.
    """

    def __init__(self, uptime: Callable[[], float]) -> None:
        self._uptime = uptime
        self._pauses: dict[str, _Pause] = {}

    def clean(self, noted: Iterable[Pod], moving: Container[str], mover: PodMover) -> None:
        """Remove the annotations of the given pods.

        Args:
            noted: the pods with the annotation.
            moving: UIDs of the pods of open moves, which keep the annotation.
            mover: writer of annotations; its ``leads`` returns whether this process may still write.
        """
        now = self._uptime()
        self._pauses = {name: each for name, each in self._pauses.items() if now < each.ends_at + _MAX_SECONDS}
        left = [
            each
            for each in noted
            if each.uid not in moving and not each.terminating and self._is_due(each.namespace, now)
        ]
        left.sort(key=lambda pod: pod.namespace in self._pauses)  # namespaces without earlier requests come first
        asked: set[str] = set()
        for pod in left[:_MOST_A_CYCLE]:
            if not mover.leads():
                break
            asked.add(pod.namespace)
            if mover.evictor.note(pod.namespace, pod.name, pod.uid, None):
                break
        for namespace in asked:
            before = self._pauses.get(namespace)
            seconds = _MIN_SECONDS if before is None else min(2 * before.seconds, _MAX_SECONDS)
            self._pauses[namespace] = _Pause(seconds, now + seconds)

    def _is_due(self, namespace: str, now: float) -> bool:
        pause = self._pauses.get(namespace)
        return pause is None or now >= pause.ends_at
