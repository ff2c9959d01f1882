"""Autoscalers that act on workloads, as reasons against lower requests; without the client that lists them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from runtime.kubernetes.workloads import Workload

ALL_CONTAINERS: Final = "*"
Scaled = tuple[Workload, str, str]
"""Workload, container ("*" for all) and resource that an autoscaler acts on."""
Reasons = Mapping[Scaled, tuple[str, ...]]
"""Reasons against a lower request."""


@dataclass(frozen=True, slots=True)
class KnownAutoscalers:
    """Autoscalers at one time, as reasons against lower requests.

    Attributes:
        scaled: reasons by HPAs.
        owned: reasons by VPAs. An entry of a container, even an empty one, replaces the entry of all containers.
        unchecked: kinds of autoscalers that could not be listed, with the reason.
    """

    scaled: Reasons = field(default_factory=dict)
    owned: Reasons = field(default_factory=dict)
    unchecked: tuple[str, ...] = ("HPA and VPA (the Kubernetes API is not known)",)

    def of(self, workload: Workload, container: str, resource: str) -> tuple[str, ...]:
        """Return the reasons against a lower request of a container."""
        every, one = (workload, ALL_CONTAINERS, resource), (workload, container, resource)
        return (*self.scaled.get(every, ()), *self.scaled.get(one, ()), *self.owned.get(one, self.owned.get(every, ())))
