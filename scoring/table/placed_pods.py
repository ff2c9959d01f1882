"""Pods that are or were on a node, with the time of their placement."""

from dataclasses import dataclass

from runtime.kubernetes.objects import Pod


@dataclass(frozen=True, slots=True)
class PlacedPod:
    """Pod on a node, with its placement time.

    Attributes:
        pod: the pod.
        placed_at: placement time, Unix seconds; infinity while the pod is assumed (not seen bound yet), -infinity if
            the time is unknown.
    """

    pod: Pod
    placed_at: float


@dataclass(frozen=True, slots=True)
class DepartedPod:
    """Pod that left its node.

    Attributes:
        pod: the pod.
        placed_at: placement time, Unix seconds; -infinity if unknown.
        left_at: time when the pod left, Unix seconds.
    """

    pod: Pod
    placed_at: float
    left_at: float
