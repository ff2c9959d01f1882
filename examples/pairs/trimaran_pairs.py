"""Pairs: pods with the same value of a label are bound once two of them have a node."""

from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from scoring import Pod
from scoring.arguments import Between
from trimaran.scheduler.framework.extension_points import PermitPlugin, ReservePlugin, Wait, WaitingPods


@dataclass(frozen=True)
class Pairs(ReservePlugin, PermitPlugin):
    """Reserve takes note of each pod that has a node; Permit lets it wait for its partner, ``wait_seconds`` at most."""

    label: str = "pair"
    wait_seconds: Annotated[float, Between(0, 900)] = 60.0
    placed: dict[str, str] = field(default_factory=dict, init=False, compare=False)  # value of the label, by uid

    name: ClassVar[str] = "Pairs"

    def reserve(self, pod: Pod, node_name: str) -> None:  # noqa: ARG002
        """Take note of a pod with the label."""
        if self.label in pod.labels:
            self.placed[pod.uid] = pod.labels[self.label]

    def unreserve(self, pod: Pod, node_name: str) -> None:  # noqa: ARG002
        """Forget a pod that lost its node."""
        self.placed.pop(pod.uid, None)

    def permit(self, pod: Pod, node_name: str, waiting: WaitingPods, now: float) -> Wait | None:  # noqa: ARG002
        """Return that the pod waits; None once its partner has a node, too, which then need not wait any more."""
        pair = self.placed.get(pod.uid)
        partners = [uid for uid, other in self.placed.items() if other == pair and uid != pod.uid]
        for uid in partners:
            waiting.allow(uid, self.name)
        return Wait(self.wait_seconds) if pair is not None and not partners else None

    def pod_gone(self, uid: str) -> None:
        """Forget a pod that was deleted or has finished."""
        self.placed.pop(uid, None)
