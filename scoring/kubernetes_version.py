"""Kubernetes versions whose rules are implemented, for scores of kube-scheduler that changed between versions.

The version selects only rules of the scheduler itself. Features that an older API server lacks, such as pod-level
resources before 1.34, are absent from the objects that it sends and need no rule here.
"""

import re
from typing import Final

KUBERNETES_VERSIONS: Final = ("1.33", "1.34", "1.35", "1.36")
"""Versions whose rules are implemented, oldest first."""
LATEST_VERSION: Final = KUBERNETES_VERSIONS[-1]

_WRITTEN = re.compile(r"v?(\d+\.\d+)(\.\d+.*)?")


def known_version(written: str) -> str:
    """Return the version as ``major.minor``.

    Args:
        written: version such as ``1.36``, or as the API server reports it: ``v1.36.3``.

    Raises:
        ValueError: the rules of the version are not implemented.
    """
    match = _WRITTEN.fullmatch(str(written))
    if match is None or match[1] not in KUBERNETES_VERSIONS:
        raise ValueError(f"Kubernetes version {written!r} is not known: choose one of {', '.join(KUBERNETES_VERSIONS)}")
    return match[1]


def at_least(version: str, other: str) -> bool:
    """Return whether a known version is the same as another known version or newer."""
    return KUBERNETES_VERSIONS.index(version) >= KUBERNETES_VERSIONS.index(other)
