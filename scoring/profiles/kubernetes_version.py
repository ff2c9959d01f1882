"""Which Kubernetes version's rules hold, for scores of kube-scheduler that changed between versions.

Only what the scheduler itself decides is chosen here. What an API server of an older version does not know, such as
resources of a pod as a whole before 1.34, is not in the objects that it sends.
"""

import re
from typing import Final

KUBERNETES_VERSIONS: Final = ("1.33", "1.34", "1.35", "1.36")
"""The versions whose rules are known, oldest first."""
LATEST_VERSION: Final = KUBERNETES_VERSIONS[-1]

_WRITTEN = re.compile(r"v?(\d+\.\d+)(\.\d+.*)?")


def known_version(written: str) -> str:
    """Return the version as ``major.minor``.

    Args:
        written: ``1.36``, or as the API server says it: ``v1.36.3``.

    Raises:
        ValueError: its rules are not known here.
    """
    match = _WRITTEN.fullmatch(str(written))
    if match is None or match[1] not in KUBERNETES_VERSIONS:
        raise ValueError(f"Kubernetes version {written!r} is not known: choose one of {', '.join(KUBERNETES_VERSIONS)}")
    return match[1]


def at_least(version: str, other: str) -> bool:
    """Say whether a known version is another known one or newer."""
    return KUBERNETES_VERSIONS.index(version) >= KUBERNETES_VERSIONS.index(other)
