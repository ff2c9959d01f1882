"""Click parameter types for overcommit factors, the divisors of pod requests."""

import contextlib
from collections.abc import Sequence
from itertools import chain
from typing import Any

import click

from trimaran.traces.trace import MAX_OVERCOMMIT, MIN_OVERCOMMIT

_RANGE = f"from {MIN_OVERCOMMIT:g} to {MAX_OVERCOMMIT:g}"


class Factors(click.ParamType[tuple[float, ...]]):
    """Click parameter type: a comma-separated list of overcommit factors."""

    name = "factor,..."
    expected = f"numbers {_RANGE}, separated by commas"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[float, ...]:
        """Return the factors."""
        with contextlib.suppress(ValueError):
            factors = tuple(float(part) for part in str(value).split(","))
            if all(MIN_OVERCOMMIT <= factor <= MAX_OVERCOMMIT for factor in factors):
                return factors
        return self.fail(f"{value!r}: must be {self.expected}", param, ctx)


def each_once(
    _context: click.Context, _option: click.Parameter, lists: Sequence[tuple[float, ...]]
) -> tuple[float, ...]:
    """Return the factors of a repeatable option, each once: two replays with the same factor would be the same."""
    return tuple(dict.fromkeys(chain(*lists)))


class Overcommit(Factors):
    """Factor for both resources, or one factor for CPU and one for memory."""

    name = "factor[,factor]"
    expected = f"one number {_RANGE}, or two for CPU and memory"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[float, float]:
        """Return the factors for CPU and for memory."""
        factors = super().convert(value, param, ctx)
        if len(factors) > 2:
            self.fail(f"{value!r}: must be {self.expected}", param, ctx)
        return factors[0], factors[-1]
