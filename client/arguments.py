"""Checks of what callers pass: a wrong number is told where it is given, not by a thread that died of it."""

from numbers import Integral, Real
from typing import Any

_LONGEST_SECONDS = 31_536_000  # a year: no clock and no socket refuses it
_MOST_RETRIES = 100


def seconds(name: str, value: Any) -> float:
    """Return a length of time.

    Raises:
        ValueError: it is not a number above 0 and up to a year.
    """
    if _is(Real, value) and 0 < value <= _LONGEST_SECONDS:
        return float(value)
    raise ValueError(f"{name} must be a number of seconds above 0 and up to {_LONGEST_SECONDS}, not {value!r}")


def retries(value: Any) -> int:
    """Return a number of further tries.

    Raises:
        ValueError: it is not a whole number from 0 to 100.
    """
    if _is(Integral, value) and 0 <= value <= _MOST_RETRIES:
        return int(value)
    raise ValueError(f"retries must be a whole number from 0 to {_MOST_RETRIES}, not {value!r}")


def _is(kind: type, value: Any) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)  # numpy's numbers are fine
