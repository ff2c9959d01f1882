"""Interning of equal field values, so that pods of one owner share their containers and requests in memory.

A hundred thousand pods belong to some hundreds of owners. Pods of one owner differ in little but name and uid, but each
decoded pod has its own objects for all fields. Replacing equal objects by one shared object saves most of the memory.
"""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from operator import attrgetter
from typing import Any, TypeVar

from scoring import ResourceList

Value = TypeVar("Value")
_MOST = 50_000
_PLAIN = frozenset({str, int, float, bool, type(None)})


class Interner:
    """Cache of immutable values that replaces a value by the first equal value seen. Not thread-safe."""

    def __init__(self) -> None:
        self._first: dict[Hashable, Any] = {}

    def __len__(self) -> int:
        return len(self._first)

    def intern(self, value: Value, *, unique_fields: frozenset[str]) -> Value:
        """Replace the fields of a new frozen dataclass by equal shared values, but not ``unique_fields``; return it."""
        if len(self._first) >= _MOST:
            self._first.clear()  # frees the values of deleted owners; values in use stay alive in their pods
        kind: Any = type(value)
        for name in _names(kind):
            if name not in unique_fields:
                field_value = getattr(value, name)
                if field_value is getattr(kind, name, self):  # the default of the class, which all values share
                    continue
                field_type: Any = type(field_value)
                if not _is_hashable(field_type):
                    continue
                interned = self._first.setdefault(_key(field_value), field_value)
                if interned is not field_value:
                    # No other code has the new dataclass yet. A changed copy would take a sixth of the decoding time.
                    object.__setattr__(value, name, interned)
        return value


def _key(value: Any) -> Hashable:
    """Return a cache key that includes types, since equal values may not be interchangeable: 1 == True."""
    kind: Any = type(value)
    if kind in _PLAIN:
        return kind, value
    if kind is ResourceList:  # its own hash covers rounded amounts only
        return kind, value.exact_key
    if kind is tuple:
        return (kind, *[_key(item) for item in value])
    if kind is dict:
        return (kind, *[(_key(name), _key(item)) for name, item in value.items()])
    if _is_dataclass(kind):
        return (kind, *[_key(part) for part in _values(kind)(value)])
    if isinstance(value, Mapping):
        return (kind, *[(_key(name), _key(item)) for name, item in value.items()])
    return kind, value


@cache
def _is_hashable(kind: Hashable) -> bool:
    return issubclass(kind, Hashable)  # type: ignore[arg-type]


@cache
def _is_dataclass(kind: Hashable) -> bool:
    return is_dataclass(kind)


@cache
def _values(kind: Hashable) -> Callable[[Any], tuple[Any, ...]]:
    """Return a function that returns the values of all fields of a dataclass, in a third of the time of getattr."""
    names = _names(kind)
    return attrgetter(*names) if len(names) > 1 else lambda value: tuple(getattr(value, name) for name in names)


@cache
def _names(kind: Hashable) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))  # type: ignore[arg-type]
