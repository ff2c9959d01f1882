"""One object for all that are equal: the pods of one owner differ in their names, and share everything else.

A hundred thousand pods are of some hundreds of owners. Their containers and amounts are read anew from each object;
kept once, they take little memory.
"""

from collections.abc import Hashable, Mapping
from dataclasses import fields, is_dataclass, replace
from functools import cache
from typing import Any, TypeVar

from scoring import ResourceList

Value = TypeVar("Value")
_MOST = 50_000
_PLAIN = frozenset({str, int, float, bool, type(None)})


class Shared:
    """Remembers values that never change, and gives the first of equal ones for each. For one thread at a time."""

    def __init__(self) -> None:
        self._first: dict[Hashable, Any] = {}

    def __len__(self) -> int:
        return len(self._first)

    def within(self, whole: Value, *, apart: frozenset[str]) -> Value:
        """Return an equal frozen dataclass whose fields are shared, but for those that differ in each, as its name."""
        if len(self._first) >= _MOST:
            self._first.clear()  # what is used stays where it is; what owners that are gone have left is freed
        changed = {}
        kind: Any = type(whole)
        for name in _names(kind):
            if name not in apart:
                value = getattr(whole, name)
                of: Any = type(value)
                shared = self._first.setdefault(_key(value), value) if _is_hashable(of) else value
                if shared is not value:
                    changed[name] = shared
        return replace(whole, **changed) if changed else whole  # type: ignore[type-var]


def _key(value: Any) -> Hashable:
    """Return what is equal for values that may stand for each other; equality alone is not: 1 == True."""
    kind = type(value)
    if kind in _PLAIN:
        return kind, value
    if kind is ResourceList:  # whose hash is of rounded amounts only
        return (kind, *[(name, value.amount(name), value.nano(name)) for name in value])
    if kind is tuple:
        return (kind, *map(_key, value))
    if is_dataclass(kind):
        return (kind, *[_key(getattr(value, name)) for name in _names(kind)])
    if isinstance(value, Mapping):
        return (kind, *[(_key(name), _key(item)) for name, item in value.items()])
    return kind, value


@cache
def _is_hashable(kind: Hashable) -> bool:
    return issubclass(kind, Hashable)  # type: ignore[arg-type]


@cache
def _names(kind: Hashable) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))  # type: ignore[arg-type]
