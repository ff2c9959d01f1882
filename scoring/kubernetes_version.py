"""Kubernetes versions to choose from, because some scores of kube-scheduler changed between versions.

The version selects only rules of kube-scheduler. Features that an older API server lacks, such as pod-level resources
before 1.34, need no rule here: the objects from such a server do not have their fields.
"""

import re
from typing import Final

KUBERNETES_VERSIONS: Final = ("1.33", "1.34", "1.35", "1.36")
"""Versions whose scoring rules are implemented, oldest first."""
LATEST_VERSION: Final = KUBERNETES_VERSIONS[-1]

_WRITTEN = re.compile(r"v?(\d+\.\d+)(\.\d+.*)?")


def known_version(written: str) -> str:
    """Return a Kubernetes version as ``major.minor``, after checking that its scoring rules are implemented.

    Args:
        written: version such as ``1.36``, or as the API server reports it: ``v1.36.3``.

    Raises:
        ValueError: the version is malformed, or its rules are not implemented.
    """
    match = _WRITTEN.fullmatch(str(written))
    if match is None or match[1] not in KUBERNETES_VERSIONS:
        raise ValueError(f"Kubernetes version {written!r} is not known: choose one of {', '.join(KUBERNETES_VERSIONS)}")
    return match[1]


def at_least(version: str, other: str) -> bool:
    """Return whether ``version`` is the same as ``other`` or newer; both must be in :data:`KUBERNETES_VERSIONS`."""
    return KUBERNETES_VERSIONS.index(version) >= KUBERNETES_VERSIONS.index(other)
