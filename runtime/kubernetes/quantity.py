"""Kubernetes quantities: ``100m``, ``1.5Gi``, ``2e3``.

Exact integer arithmetic with the rounding of Kubernetes: away from zero, and digits after the ninth decimal are rounded
when the text is parsed (k8s.io/apimachinery, ``resource.Quantity``).
"""

import re
from functools import lru_cache
from typing import Final

_QUANTITY = re.compile(
    r"""(?P<sign>[+-]?)
        (?P<whole>[0-9]*) (?:\.(?P<fraction>[0-9]*))?
        (?P<suffix>[numkMGTPE]|[KMGTPE]i|[eE](?P<exponent>[+-]?[0-9]+))?""",
    re.VERBOSE | re.ASCII,
)
_DECIMAL_EXPONENTS = {None: 0, "n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY_FACTORS = {suffix + "i": 1024 ** (power + 1) for power, suffix in enumerate("KMGTPE")}
_NANO = 10**9
MAX_INT64: Final = 2**63 - 1
"""Largest amount: larger quantities count as this one, where Kubernetes caps or wraps them."""
_MAX_LENGTH = 64


def value(text: str | float) -> int:
    """Return the quantity in whole units (cores, bytes), rounded up as Kubernetes' ``Value()`` does.

    Args:
        text: a quantity in the syntax of Kubernetes, or a number.

    Raises:
        ValueError: the text is not a quantity.
    """
    return _round_away(nano_value(text), _NANO)


def milli_value(text: str | float) -> int:
    """Return the quantity in thousandths (millicores), rounded up as Kubernetes' ``MilliValue()`` does.

    Raises:
        ValueError: the text is not a quantity.
    """
    return _round_away(nano_value(text), _NANO // 1000)


def nano_value(text: str | float) -> int:
    """Return the quantity in billionths: exact, because Kubernetes itself rounds quantities to billionths.

    Raises:
        ValueError: the text is not a quantity.
    """
    written = text if isinstance(text, str) else repr(text)
    if len(written) > _MAX_LENGTH:
        raise ValueError(f"not a quantity: {written[:_MAX_LENGTH]!r}")
    return _nano_value(written)


@lru_cache(maxsize=4096)  # the pods of a cluster have few different amounts
def _nano_value(written: str) -> int:
    match = _QUANTITY.fullmatch(written)
    if match is None or not (match["whole"] or match["fraction"] is not None):  # like Go, accept "." as zero
        raise ValueError(f"not a quantity: {written!r}")
    # The value is mantissa * factor * 10**power; decimals of the mantissa lower the power.
    fraction = match["fraction"] or ""
    mantissa = int(match["whole"] + fraction or "0")
    # Beyond +-100 the result is the 64-bit limit or one billionth for any exponent.
    power = max(-100, min(100, int(match["exponent"]))) if match["exponent"] else 0
    factor = _BINARY_FACTORS.get(match["suffix"], 1)
    if factor == 1 and not match["exponent"]:
        power = _DECIMAL_EXPONENTS[match["suffix"]]
    power += 9 - len(fraction)
    nano = mantissa * factor * 10**power if power >= 0 else _round_away(mantissa * factor, 10**-power)
    nano = min(nano, MAX_INT64 * _NANO)
    return -nano if match["sign"] == "-" else nano


def _round_away(number: int, divisor: int) -> int:
    """Divide, round away from zero, and limit the result to 64 bits."""
    size = min(-(-abs(number) // divisor), MAX_INT64)
    return size if number >= 0 else -size
