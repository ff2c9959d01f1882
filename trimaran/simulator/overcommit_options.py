"""Click parameter types for overcommit factors, the divisors of pod requests."""

from typing import Any

import click

from trimaran.traces.trace import MAX_OVERCOMMIT, MIN_OVERCOMMIT

_RANGE = f"from {MIN_OVERCOMMIT:g} to {MAX_OVERCOMMIT:g}"


class Overcommit(click.ParamType[tuple[float, float]]):
    """Factor for both resources, or one factor for CPU and one for memory."""

    name = "factor[,factor]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[float, float]:
        """Return the factors for CPU and for memory."""
        factors = _numbers(str(value))
        if not 1 <= len(factors) <= 2:
            self.fail(f"{value!r}: must be one number {_RANGE}, or two for CPU and memory", param, ctx)
        return factors[0], factors[-1]


class Factors(click.ParamType[tuple[float, ...]]):
    """List of factors."""

    name = "factor,..."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[float, ...]:
        """Return the factors."""
        factors = _numbers(str(value))
        if not factors:
            self.fail(f"{value!r}: must be numbers {_RANGE}, separated by commas", param, ctx)
        return factors


def _numbers(text: str) -> tuple[float, ...]:
    """Parse comma-separated factors; return an empty tuple if any is invalid."""
    try:
        numbers = tuple(float(part) for part in text.split(","))
    except ValueError:
        return ()
    return numbers if all(MIN_OVERCOMMIT <= number <= MAX_OVERCOMMIT for number in numbers) else ()
