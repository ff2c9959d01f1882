"""Validation of arguments, so that an invalid number raises at the call and not later in a background thread."""

from numbers import Integral, Real
from typing import Any

_MAX_SECONDS = 31_536_000  # one year, which every clock and socket accepts
_MAX_RETRIES = 100


def seconds(name: str, value: Any) -> float:
    """Return a valid number of seconds.

    Raises:
        ValueError: the value is not a number above 0 and up to one year.
    """
    if _is(Real, value) and 0 < value <= _MAX_SECONDS:
        return float(value)
    raise ValueError(f"{name} must be a number of seconds above 0 and up to {_MAX_SECONDS}, not {value!r}")


def retries(value: Any) -> int:
    """Return a valid number of retries.

    Raises:
        ValueError: the value is not a whole number from 0 to 100.
    """
    if _is(Integral, value) and 0 <= value <= _MAX_RETRIES:
        return int(value)
    raise ValueError(f"retries must be a whole number from 0 to {_MAX_RETRIES}, not {value!r}")


def _is(kind: type, value: Any) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)  # accepts numbers of numpy
