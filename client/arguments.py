"""Validation of arguments, so that an invalid number raises at the call and not later in a background thread."""

from collections.abc import Collection
from numbers import Integral, Real
from typing import Any

from runtime.errors import quoted

_MAX_SECONDS = 31_536_000  # one year, which every clock and socket accepts
_MAX_RETRIES = 100


def seconds(name: str, value: Any) -> float:
    """Return a number of seconds after checking it.

    Raises:
        ValueError: the value is not a number above 0 and up to one year.
    """
    if _is(Real, value) and 0 < value <= _MAX_SECONDS:
        return float(value)
    raise ValueError(f"{name} must be a number of seconds above 0 and up to {_MAX_SECONDS}, not {value!r}")


def retries(value: Any) -> int:
    """Return a number of retries after checking it.

    Raises:
        ValueError: the value is not a whole number from 0 to 100.
    """
    if _is(Integral, value) and 0 <= value <= _MAX_RETRIES:
        return int(value)
    raise ValueError(f"retries must be a whole number from 0 to {_MAX_RETRIES}, not {value!r}")


def _is(kind: type, value: Any) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)  # accepts numbers of numpy


def check_text(argument: str, value: object) -> None:
    """Raise a TypeError unless an argument is a string."""
    if not isinstance(value, str):
        raise TypeError(f"{argument}: must be a string, got {quoted(value)}")


def check_texts(**arguments: object) -> None:
    """Raise a TypeError unless each argument is a string or None."""
    for name, value in arguments.items():
        if value is not None:
            check_text(name, value)


def check_names(argument: str, names: object) -> None:
    """Raise a TypeError unless an argument is a collection of names: a string would be read as one name per letter."""
    if isinstance(names, str) or not isinstance(names, Collection):
        raise TypeError(f"{argument}: must be a list of names, such as ['node-1'], got {quoted(names)}")
