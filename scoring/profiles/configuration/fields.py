"""Reading a mapping field by field, with a note of what became of every key."""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, Literal, TypeVar

T = TypeVar("T")
Word = TypeVar("Word", bound=str)
Status = Literal["honored", "changed", "ignored", "unknown"]


@dataclass(frozen=True, slots=True)
class ConfigNote:
    """What became of one key of a configuration.

    Attributes:
        path: where the key is, such as ``TargetLoadPackingArgs.targetUtilization``.
        status: ``honored`` as it is; ``changed``, taken but not as written; ``ignored``, without effect on scores;
            ``unknown``, ignored too, but nothing has such a key.
        detail: why, for all but the first.
    """

    path: str
    status: Status
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.status:8} {self.path}" + (f": {self.detail}" if self.detail else "")


@dataclass
class FieldReader:
    """Takes fields out of a mapping. What nobody took is unknown, and said to be.

    Attributes:
        path: the mapping's own path, the start of every message.
        fields: the mapping.
        notes: what became of the keys read so far.
    """

    path: str
    fields: Mapping[str, Any]
    notes: list[ConfigNote] = field(default_factory=list)
    _taken: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        if not isinstance(self.fields, Mapping):
            raise ValueError(f"{self.path}: must be a mapping, got {str(self.fields)[:80]!r}")  # noqa: TRY004  a user's mistake

    def raw(self, key: str) -> Any:
        """Take a field as it is; None when absent or null. The caller notes what becomes of it."""
        self._taken.add(key)
        return self.fields.get(key)

    def number(self, key: str, default: float, *, negative_is_default: bool = False) -> float:
        """Take a number that is not negative.

        Args:
            key: the field.
            default: its value when absent.
            negative_is_default: a negative value means the default, as upstream; else it is refused.

        Raises:
            ValueError: it is no number, NaN, infinite, or negative; the message has the field's path.
        """
        value = self.raw(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.error(key, f"must be a number, got {value!r}")
        return self.limited(key, float(value), default, negative_is_default=negative_is_default)

    def limited(self, key: str, value: float, default: float, *, negative_is_default: bool = False) -> float:
        """Check a number that was read, and note it. Arguments and errors as for :meth:`number`."""
        if not isfinite(value):
            raise self.error(key, f"must be finite, got {value}")
        if value < 0:
            if not negative_is_default:
                raise self.error(key, f"must not be negative, got {value:g}")
            return self.changed(key, default, f"{value:g} is below 0, {default:g} is used, as upstream")
        return self.honored(key, value)

    def integer(self, key: str, default: int, *, at_most: int | None = None, negative_is_default: bool = True) -> int:
        """Take a whole number; 0 and below mean the default, as upstream.

        Args:
            key: the field.
            default: its value when absent, or 0.
            at_most: a larger one is refused.
            negative_is_default: a negative one means the default too; else it is refused.

        Raises:
            ValueError: it is no whole number, above ``at_most``, or refused for being negative; the message has the
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
        """Take one of some words; the first is the default.

        Raises:
            ValueError: it is none of them; the message has the field's path.
        """
        value = self.raw(key)
        if value is None:
            return choices[0]
        for choice in choices:
            if value == choice:
                return self.honored(key, choice)
        raise self.error(key, f"must be one of {', '.join(map(repr, choices))}, got {value!r}")

    def flag(self, key: str) -> bool:
        """Take true or false; false is the default.

        Raises:
            ValueError: it is neither; the message has the field's path.
        """
        value = self.raw(key)
        if value is None:
            return False
        if not isinstance(value, bool):
            raise self.error(key, f"must be true or false, got {value!r}")
        return self.honored(key, value)

    def nested(self, key: str) -> "FieldReader | None":
        """Take a mapping inside; None when absent. Its notes come into this reader's when it is finished.

        Raises:
            ValueError: it is no mapping; the message has the field's path.
        """
        value = self.raw(key)
        return None if value is None else FieldReader(f"{self.path}.{key}", value, self.notes)

    def honored(self, key: str, value: T) -> T:
        """Note that a key counts as written, and return the value."""
        self.notes.append(ConfigNote(f"{self.path}.{key}", "honored"))
        return value

    def changed(self, key: str, value: T, why: str) -> T:
        """Note that a key counts, but not as written, and return the value that does."""
        self.notes.append(ConfigNote(f"{self.path}.{key}", "changed", why))
        return value

    def ignored(self, key: str, why: str) -> None:
        """Take a key that has no effect on scores."""
        if key in self.fields:
            self._taken.add(key)
            self.notes.append(ConfigNote(f"{self.path}.{key}", "ignored", why))

    def finish(self) -> None:
        """Note the keys that nobody took."""
        for key in self.fields:
            if key not in self._taken:
                close = difflib.get_close_matches(str(key), self._taken, n=1)
                hint = f"; did you mean {close[0]}?" if close else ""
                self.notes.append(ConfigNote(f"{self.path}.{key}", "unknown", f"there is no such key{hint}"))

    def error(self, key: str, problem: str) -> ValueError:
        """Return the error that says what is wrong with a field."""
        return ValueError(f"{self.path}.{key}: {problem}")
