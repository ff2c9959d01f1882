"""Note on a pod that is about to be evicted: the node planned for its replacement.

The rebalancer writes the note as annotations of the pod before it evicts the pod. So every process that watches pods
sees the note before the pod is deleted, and can remember it for the replacement.

    rebalancer.trimaran.io/target          node-7
    rebalancer.trimaran.io/target-source   node-3                   the node that the pod leaves
    rebalancer.trimaran.io/target-until    2026-11-25T13:50:00Z     end of the note's validity
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from runtime.kubernetes.k8s_fields import unix_seconds

TARGET: Final = "rebalancer.trimaran.io/target"
SOURCE: Final = "rebalancer.trimaran.io/target-source"
UNTIL: Final = "rebalancer.trimaran.io/target-until"
_LONGEST: Final = 253  # characters of a node's name; an annotation may have 256 KiB


@dataclass(frozen=True, slots=True)
class TargetNote:
    """Node planned for the replacement of a pod.

    Attributes:
        target: name of the node.
        source: name of the node that the pod leaves.
        until: Unix time until which the note is valid.
    """

    target: str
    source: str
    until: float

    @classmethod
    def read(cls, annotations: Mapping[str, Any]) -> "TargetNote | None":
        """Read the note in a pod's annotations; None if it is incomplete or does not name a valid node."""
        target, source, until = (annotations.get(name) for name in (TARGET, SOURCE, UNTIL))
        try:
            seconds = unix_seconds(until, UNTIL)
        except ValueError:
            return None
        if seconds is None or not all(isinstance(name, str) and 0 < len(name) <= _LONGEST for name in (target, source)):
            return None
        return cls(str(target), str(source), seconds)

    def annotations(self) -> dict[str, str]:
        """Return the annotations of the note."""
        until = datetime.fromtimestamp(self.until, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return {TARGET: self.target, SOURCE: self.source, UNTIL: until}


REMOVED: Final[Mapping[str, None]] = dict.fromkeys((TARGET, SOURCE, UNTIL))
"""Annotations in a merge patch that removes a note."""


def is_noted(annotations: Mapping[str, Any]) -> bool:
    """Return whether any annotation of a note is present."""
    return any(name in annotations for name in REMOVED)
