"""What requests are divided by, as commands take it."""

from typing import Any

import click

from trimaran.traces.trace import LEAST_OVERCOMMIT, MOST_OVERCOMMIT

_RANGE = f"from {LEAST_OVERCOMMIT:g} to {MOST_OVERCOMMIT:g}"


class Overcommit(click.ParamType[tuple[float, float]]):
    """A factor for both resources, or one for CPU and one for memory."""

    name = "factor[,factor]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[float, float]:
        """Return the factors of CPU and of memory."""
        factors = _numbers(str(value))
        if not 1 <= len(factors) <= 2:
            self.fail(f"{value!r}: one number {_RANGE}, or two: for CPU and for memory", param, ctx)
        return factors[0], factors[-1]


class Factors(click.ParamType[tuple[float, ...]]):
    """Several factors."""

    name = "factor,..."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[float, ...]:
        """Return the factors."""
        factors = _numbers(str(value))
        if not factors:
            self.fail(f"{value!r}: numbers {_RANGE}, with commas between them", param, ctx)
        return factors


def _numbers(text: str) -> tuple[float, ...]:
    """Return factors with commas between them; none when any has no meaning."""
    try:
        numbers = tuple(float(part) for part in text.split(","))
    except ValueError:
        return ()
    return numbers if all(LEAST_OVERCOMMIT <= number <= MOST_OVERCOMMIT for number in numbers) else ()
