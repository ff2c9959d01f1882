"""Durations in the syntax of Prometheus: ``90s``, ``15m``, ``1h30m``, ``6h``, ``1d``."""

import re

_UNIT_SECONDS = {"w": 604800, "d": 86400, "h": 3600, "m": 60, "s": 1}
_DURATION = re.compile("".join(rf"(?:([0-9]{{1,9}}){unit})?" for unit in _UNIT_SECONDS), re.ASCII)


def seconds(text: str) -> int:
    """Return the length of a duration in seconds.

    Raises:
        ValueError: the text is not a duration, or is zero.
    """
    match = _DURATION.fullmatch(text)
    parts = match.groups() if match else ()
    total = sum(int(part or 0) * unit for part, unit in zip(parts, _UNIT_SECONDS.values(), strict=bool(parts)))
    if not total:
        raise ValueError(f"not a duration such as 15m, 90s or 1h30m: {text[:40]!r}")
    return total
