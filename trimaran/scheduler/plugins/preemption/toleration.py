"""PreemptionToleration: preemption that spares pods for a time, or from preemptors whose priority is too low.

Annotations of a pod's PriorityClass say from which preemptors the pod is protected, and how long:

    preemption-toleration.scheduling.x-k8s.io/minimum-preemptable-priority   default: value of the class + 1
    preemption-toleration.scheduling.x-k8s.io/toleration-seconds             default: 0; negative: forever

A pod is spared if the preemptor's priority is below the minimum, and the seconds are negative or have not passed since
the pod was scheduled. In all else the plugin is DefaultPreemption.
Source: kubernetes-sigs/scheduler-plugins v0.33.5, pkg/preemptiontoleration.
"""

import random
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

from runtime.kubernetes.disruption_budgets import DisruptionBudget
from runtime.kubernetes.k8s_fields import decoder, get, get_texts, get_whole, int64
from runtime.kubernetes.objects import Pod
from scoring.plugins.filtering import FilterPlugin
from trimaran.scheduler.plugins.preemption.default_preemption import DefaultPreemption, PreemptionOptions

_PREFIX: Final = "preemption-toleration.scheduling.x-k8s.io/"


@dataclass(frozen=True)
class PriorityClass:
    """Protection of the pods of a PriorityClass.

    Attributes:
        least_preemptor: lowest priority of preemptors that may delete the pods; None if an annotation is not a number,
            so that no pod is protected.
        seconds: time after its scheduling for which a pod is protected; negative for no limit.
    """

    least_preemptor: int | None
    seconds: int = 0

    @classmethod
    @decoder("priorityclass")
    def from_k8s(cls, document: Mapping[str, Any]) -> Self:
        """Read a PriorityClass.

        Raises:
            ValueError: the value is not a number, or an annotation not a text.
        """
        metadata = get(document, "metadata")
        where = f"priorityclass {get(metadata, 'name')}"
        annotations, value = get_texts(metadata, "annotations", where), get_whole(document, "value", where)
        least = int64(annotations.get(f"{_PREFIX}minimum-preemptable-priority", str(value + 1)))
        seconds = int64(annotations.get(f"{_PREFIX}toleration-seconds", "0"))
        return cls(None) if seconds is None else cls(least, seconds)

    def protects(self, preemptor_priority: int, scheduled_at: float | None, now: float) -> bool:
        """Return whether a pod of the class is protected.

        Args:
            preemptor_priority: priority of the pending pod.
            scheduled_at: time at which the pod got its node, Unix seconds; None if it has none yet.
            now: Unix seconds.
        """
        if self.least_preemptor is None or preemptor_priority >= self.least_preemptor:
            return False
        return self.seconds < 0 or scheduled_at is None or scheduled_at + self.seconds > now


class PreemptionToleration(DefaultPreemption):
    """Preemption that honours the toleration of PriorityClasses.

    Args:
        filters: as for DefaultPreemption.
        budgets: as for DefaultPreemption.
        dice: as for DefaultPreemption.
        options: arguments of the plugin, which are those of DefaultPreemption.
        class_of: returns a PriorityClass by its name; None if there is none.
        clock: returns Unix seconds.
    """

    name = "PreemptionToleration"

    def __init__(
        self,
        filters: Sequence[FilterPlugin],
        budgets: Callable[[], Collection[DisruptionBudget]],
        dice: random.Random,
        options: PreemptionOptions,
        class_of: Callable[[str], PriorityClass | None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(filters, budgets, dice, options)
        self._class_of, self._clock = class_of, clock

    def may_be_victim(self, other: Pod, pod: Pod) -> bool:
        """Return whether a running pod may be deleted for a pending pod."""
        if not super().may_be_victim(other, pod):
            return False
        protection = self._class_of(other.priority_class) if other.priority_class else None
        return protection is None or not protection.protects(pod.priority, other.scheduled_at, self._clock())
