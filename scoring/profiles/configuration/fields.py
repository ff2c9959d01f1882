"""Reader of a mapping's fields that records a note for every key."""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, Literal, TypeGuard, TypeVar

T = TypeVar("T")
Word = TypeVar("Word", bound=str)
Status = Literal["honored", "changed", "ignored", "unknown"]


@dataclass(frozen=True, slots=True)
class ConfigNote:
    """Effect of one key of a configuration.

    Attributes:
        path: path of the key, such as ``TargetLoadPackingArgs.targetUtilization``.
        status: ``honored``: the value applies unchanged; ``changed``: another value applies; ``ignored``: the key has
            no effect on scores; ``unknown``: no such key exists.
        detail: explanation, for all statuses but ``honored``.
    """

    path: str
    status: Status
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.status:8} {self.path}" + (f": {self.detail}" if self.detail else "")


def is_list(value: Any) -> TypeGuard[Sequence[Any]]:
    """Return whether a value is a list, as YAML and JSON have it."""
    return isinstance(value, Sequence) and not isinstance(value, str)


@dataclass
class FieldReader:
    """Reader of the fields of a mapping. Keys that were never read are reported as unknown.

    Attributes:
        path: path of the mapping, the start of every message.
        fields: the mapping.
        notes: notes on the keys read so far.
    """

    path: str
    fields: Mapping[str, Any]
    notes: list[ConfigNote] = field(default_factory=list)
    _read: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        if not isinstance(self.fields, Mapping):
            raise ValueError(f"{self.path}: must be a mapping, got {str(self.fields)[:80]!r}")  # noqa: TRY004  a user's mistake

    def raw(self, key: str) -> Any:
        """Read a field without checks; None if absent or null. The caller must record the note."""
        self._read.add(key)
        return self.fields.get(key)

    def number(self, key: str, default: float, *, negative_is_default: bool = False) -> float:
        """Read a number that is not negative.

        Args:
            key: name of the field.
            default: value if the field is absent.
            negative_is_default: use the default for a negative value, as upstream; otherwise refuse it.

        Raises:
            ValueError: the value is not a number, NaN, infinite or negative; the message has the field's path.
        """
        value = self.raw(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.error(key, f"must be a number, got {value!r}")
        return self.limited(key, float(value), default, negative_is_default=negative_is_default)

    def limited(self, key: str, value: float, default: float, *, negative_is_default: bool = False) -> float:
        """Check a number that was read and record its note. Arguments and errors are the same as for :meth:`number`."""
        if not isfinite(value):
            raise self.error(key, f"must be finite, got {value}")
        if value < 0:
            if not negative_is_default:
                raise self.error(key, f"must not be negative, got {value:g}")
            return self.changed(key, default, f"{value:g} is below 0, {default:g} is used, as upstream")
        return self.honored(key, value)

    def integer(self, key: str, default: int, *, at_most: int | None = None, negative_is_default: bool = True) -> int:
        """Read a whole number; 0 and, by default, negative numbers select the default, as upstream.

        Args:
            key: name of the field.
            default: value if the field is absent or 0.
            at_most: largest accepted value.
            negative_is_default: use the default for a negative value; otherwise refuse it.

        Raises:
            ValueError: the value is not a whole number, above ``at_most``, or negative and refused; the message has the
                field's path.
        """
        value = self.raw(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.error(key, f"must be a whole number, got {value!r}")
        if value < 0 and not negative_is_default:
            raise self.error(key, f"must not be negative, got {value}")
        if value <= 0:
            return self.changed(key, default, f"{value} is not above 0, {default} is used, as upstream")
        if at_most is not None and value > at_most:
            raise self.error(key, f"must be at most {at_most}, got {value}")
        return self.honored(key, value)

    def choice(self, key: str, choices: tuple[Word, ...]) -> Word:
        """Read one of several words; the first is the default.

        Raises:
            ValueError: the value is not one of the words; the message has the field's path.
        """
        value = self.raw(key)
        if value is None:
            return choices[0]
        for choice in choices:
            if value == choice:
                return self.honored(key, choice)
        raise self.error(key, f"must be one of {', '.join(map(repr, choices))}, got {value!r}")

    def flag(self, key: str) -> bool:
        """Read a boolean; the default is False.

        Raises:
            ValueError: the value is not a boolean; the message has the field's path.
        """
        value = self.raw(key)
        if value is None:
            return False
        if not isinstance(value, bool):
            raise self.error(key, f"must be true or false, got {value!r}")
        return self.honored(key, value)

    def nested(self, key: str) -> "FieldReader | None":
        """Read a nested mapping; None if absent. Its reader adds notes to those of this reader.

        Raises:
            ValueError: the value is not a mapping; the message has the field's path.
        """
        value = self.raw(key)
        return None if value is None else FieldReader(f"{self.path}.{key}", value, self.notes)

    def entries(self, key: str) -> "list[FieldReader]":
        """Read a list of mappings; empty if absent. Their readers add notes to those of this reader.

        Raises:
            ValueError: the value is not a list of mappings; the message has the field's path.
        """
        listed = self.raw(key)
        if listed is None:
            return []
        if not is_list(listed):
            raise self.error(key, f"must be a list, got {listed!r}")
        self.honored(key, None)
        return [FieldReader(f"{self.path}.{key}[{i}]", entry, self.notes) for i, entry in enumerate(listed)]

    def honored(self, key: str, value: T) -> T:
        """Record that a key's value applies unchanged, and return the value."""
        self.notes.append(ConfigNote(f"{self.path}.{key}", "honored"))
        return value

    def changed(self, key: str, value: T, why: str) -> T:
        """Record that another value applies than the key's, and return the value that applies."""
        self.notes.append(ConfigNote(f"{self.path}.{key}", "changed", why))
        return value

    def ignored(self, key: str, why: str) -> None:
        """Mark a key as read, and record that it has no effect on scores."""
        if key in self.fields:
            self._read.add(key)
            self.notes.append(ConfigNote(f"{self.path}.{key}", "ignored", why))

    def finish(self) -> None:
        """Record a note for every key that was not read."""
        for key in self.fields:
            if key not in self._read:
                close = difflib.get_close_matches(str(key), self._read, n=1)
                hint = f"; did you mean {close[0]}?" if close else ""
                self.notes.append(ConfigNote(f"{self.path}.{key}", "unknown", f"there is no such key{hint}"))

    def error(self, key: str, problem: str) -> ValueError:
        """Return an error for a field, with the field's path."""
        return ValueError(f"{self.path}.{key}: {problem}")
