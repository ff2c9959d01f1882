"""Checks of arguments by the types of the fields that they are assigned to.

A dataclass declares in its annotations which values are valid: a ``Literal`` lists the words, and ``Annotated`` adds
constraints to a type:

    formula: Literal["trimaran", "kep"] = "trimaran"
    target: Annotated[float, Between(0, 100, above=True)] = 100.0

Its base class :class:`CheckedArguments`, or its own ``__post_init__``, calls :func:`check_arguments`. The reader of a
KubeSchedulerConfiguration reports the same errors under the names of the keys in the file. Checks run when an object is
created, never when a pod is scored.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cache
from numbers import Integral, Real
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from runtime.errors import quoted

LARGEST_FLOAT = sys.float_info.max
LARGEST_INT = 2**63 - 1
_SHOWN_CHARACTERS = 80

Problems = Iterator[tuple[str, str]]
"""Problems of a value: path inside the value, such as ``[0].weight``, "" for the value itself; and the explanation."""
Constraint = Callable[[Any], Problems]
"""Constraint in ``Annotated``: yields the problems of a value that has the annotated type."""


class ArgumentError(ValueError):
    """Invalid argument of a plugin, or of another object with checked arguments.

    Attributes:
        argument: path of the argument, such as ``risk_limit_weights.cpu``.
        problem: valid values, and the invalid one.
    """

    def __init__(self, owner: str, argument: str, problem: str) -> None:
        super().__init__(f"{owner}.{argument}: {problem}")
        self.argument = argument
        self.problem = problem


@dataclass(frozen=True, slots=True)
class Between:
    """Constraint: a number in a range.

    Attributes:
        lowest: smallest valid number.
        highest: largest valid number.
        above: the number must be above ``lowest``.
    """

    lowest: float
    highest: float = LARGEST_FLOAT
    above: bool = False

    def __call__(self, value: float) -> Problems:
        """Yield a problem if the number is outside the range."""
        if self.lowest < value <= self.highest or (value == self.lowest and not self.above):
            return
        if not abs(value) <= LARGEST_FLOAT:  # NaN or infinite
            yield "", f"must be finite, got {shown(value)}"
        elif self.highest >= LARGEST_INT:
            yield "", f"must be {'above' if self.above else 'at least'} {self.lowest:g}, got {shown(value)}"
        elif self.lowest == self.highest:
            yield "", f"must be {self.lowest:g}, got {shown(value)}"
        else:
            bounds = f"above {self.lowest:g} and at most" if self.above else f"from {self.lowest:g} to"
            yield "", f"must be {bounds} {self.highest:,.12g}, got {shown(value)}"


FINITE = Between(-LARGEST_FLOAT)


def not_empty(value: tuple[Any, ...] | str) -> Problems:
    """Constraint: at least one element or character."""
    if not value:
        yield "", f"must not be empty, got {quoted(value)}"


@dataclass(frozen=True, slots=True)
class Distinct:
    """Constraint: no two elements with the same name.

    Attributes:
        name: returns the name of an element.
    """

    name: Callable[[Any], str]

    def __call__(self, value: tuple[Any, ...]) -> Problems:
        """Yield a problem for the second of two elements with the same name."""
        names = [self.name(element) for element in value]
        for index, name in enumerate(names):
            if name in names[:index]:
                yield f"[{index}]", f"{name} is listed twice"


def check_arguments(checked: Any) -> None:
    """Check the fields of a dataclass by their annotations.

    Raises:
        ArgumentError: a value is not valid; the message names class and field, the valid values and the value.
    """
    for name, kind in _kinds(checked.__class__).items():
        for path, problem in problems_of(getattr(checked, name), kind):
            raise ArgumentError(type(checked).__name__, name + path, problem)


class CheckedArguments:
    """Base class of dataclasses whose fields are checked when an object is created."""

    __slots__ = ()

    def __post_init__(self) -> None:
        check_arguments(self)


def problems_of(value: Any, kind: Any) -> Problems:
    """Yield the problems of a value, none if it is valid.

    Args:
        value: the value.
        kind: annotation that declares the valid values.
    """
    check = _CHECKS.get(get_origin(kind))
    if check is not None:
        yield from check(value, get_args(kind))
    elif kind in _SCALARS:
        valid, description = _SCALARS[kind]
        if not valid(value):
            yield "", f"must be {description}, got {shown(value)}"
    elif not isinstance(value, kind):
        yield "", f"must be a {kind.__name__}, got {shown(value)}"


def shown(value: object) -> str:
    """Return a value as text for an error message, shortened."""
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."


def _of_annotated(value: Any, arguments: tuple[Any, ...]) -> Problems:
    kind, *constraints = arguments
    problems = list(problems_of(value, kind))
    yield from problems or [problem for constraint in constraints for problem in constraint(value)]


def _of_literal(value: Any, words: tuple[Any, ...]) -> Problems:
    if not isinstance(value, str) or value not in words:
        yield "", f"must be one of {', '.join(map(repr, words))}, got {shown(value)}"


def _of_mapping(value: Any, kinds: tuple[Any, ...]) -> Problems:
    if not isinstance(value, Mapping):
        yield "", f"must be a mapping, got {shown(value)}"
        return
    for key, element in value.items():
        for path, problem in problems_of(element, kinds[1]):
            yield f".{key}{path}", problem


def _of_tuple(value: Any, kinds: tuple[Any, ...]) -> Problems:
    if not isinstance(value, tuple):
        yield "", f"must be a tuple, got {shown(value)}"
        return
    if kinds[-1] is Ellipsis:
        kinds = kinds[:1] * len(value)
    if len(value) != len(kinds):
        yield "", f"must have {len(kinds)} elements, got {shown(value)}"
        return
    for index, (element, kind) in enumerate(zip(value, kinds, strict=True)):
        for path, problem in problems_of(element, kind):
            yield f"[{index}]{path}", problem


def _of_union(value: Any, kinds: tuple[Any, ...]) -> Problems:
    problems = [list(problems_of(value, kind)) for kind in kinds]
    if all(problems):
        yield from problems[0]


def _is_number(kind: type, value: Any) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)  # accepts numbers of numpy


_CHECKS: Mapping[Any, Callable[[Any, tuple[Any, ...]], Problems]] = {
    Annotated: _of_annotated,
    Literal: _of_literal,
    Mapping: _of_mapping,
    tuple: _of_tuple,
    Union: _of_union,
    UnionType: _of_union,
}
_SCALARS: Mapping[Any, tuple[Callable[[Any], bool], str]] = {
    bool: (lambda value: isinstance(value, bool), "true or false"),
    int: (lambda value: _is_number(Integral, value), "a whole number"),
    float: (lambda value: _is_number(Real, value), "a number"),
    str: (lambda value: isinstance(value, str), "a string"),
}


@cache
def _kinds(checked: type) -> Mapping[str, Any]:
    """Return the annotations of a dataclass's arguments, by name; other fields are its state."""
    kinds = get_type_hints(checked, include_extras=True)
    return {each.name: kinds[each.name] for each in fields(checked) if each.init}
