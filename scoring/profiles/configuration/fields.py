"""Reader for the fields of a configuration that records, for every key, a note on its effect."""

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
    """Reader for the fields of a mapping, such as a plugin's arguments. :meth:`finish` reports the keys never read.

    Attributes:
        path: path of the mapping in the file, with which every message starts.
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
        """Return the value of a field without checks, or None if the field is absent or null.

        The caller must record the note on the key.
        """
        self._read.add(key)
        return self.fields.get(key)

    def number(self, key: str, default: float, *, negative_is_default: bool = False) -> float:
        """Return the value of a field that must be a number of at least 0.

        Args:
            key: name of the field.
            default: result if the field is absent or null.
            negative_is_default: use the default instead of a negative value, as upstream does.

        Raises:
            ValueError: the value is not a number, is NaN or infinite, or is negative and ``negative_is_default`` is not
                set; the message has the field's path.
        """
        value = self.raw(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.error(key, f"must be a number, got {value!r}")
        return self.limited(key, float(value), default, negative_is_default=negative_is_default)

    def limited(self, key: str, value: float, default: float, *, negative_is_default: bool = False) -> float:
        """Check a number that was already read, record the note on its key, and return the number or the default.

        The other arguments and the errors are the same as for :meth:`number`.
        """
        if not isfinite(value):
            raise self.error(key, f"must be finite, got {value}")
        if value < 0:
            if not negative_is_default:
                raise self.error(key, f"must not be negative, got {value:g}")
            return self.changed(key, default, f"{value:g} is below 0, {default:g} is used, as upstream")
        return self.honored(key, value)

    def integer(self, key: str, default: int, *, at_most: int | None = None, negative_is_default: bool = True) -> int:
        """Return the value of a field that must be an integer; 0 stands for the default, as upstream.

        Args:
            key: name of the field.
            default: result if the field is absent, null or 0.
            at_most: largest accepted value; None accepts all.
            negative_is_default: use the default instead of a negative value, as upstream does.

        Raises:
            ValueError: the value is not an integer, is above ``at_most``, or is negative and ``negative_is_default`` is
                not set; the message has the field's path.
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
        """Return the value of a field that must be one of several words; the first word is the default.

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
        """Return the value of a field that must be a boolean; the default is False.

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
        """Return a reader of a nested mapping, or None if the field is absent or null.

        Both readers add to the same list of notes.

        Raises:
            ValueError: the value is not a mapping; the message has the field's path.
        """
        value = self.raw(key)
        return None if value is None else FieldReader(f"{self.path}.{key}", value, self.notes)

    def entries(self, key: str) -> "list[FieldReader]":
        """Return a reader for each mapping of a list; an empty list if the field is absent or null.

        All readers add to the same list of notes.

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
        """Record that a value other than the configured one applies, and return it.

        Args:
            key: name of the field.
            value: value that applies.
            why: explanation for the user.
        """
        self.notes.append(ConfigNote(f"{self.path}.{key}", "changed", why))
        return value

    def ignored(self, key: str, why: str) -> None:
        """Mark a key as read, and record that it has no effect on scores; do nothing if the key is absent.

        Args:
            key: name of the field.
            why: explanation for the user.
        """
        if key in self.fields:
            self._read.add(key)
            self.notes.append(ConfigNote(f"{self.path}.{key}", "ignored", why))

    def finish(self) -> None:
        """Add a note for each key that was not read: it is unknown. The note suggests a similar known key."""
        for key in self.fields:
            if key not in self._read:
                close = difflib.get_close_matches(str(key), self._read, n=1)
                hint = f"; did you mean {close[0]}?" if close else ""
                self.notes.append(ConfigNote(f"{self.path}.{key}", "unknown", f"there is no such key{hint}"))

    def error(self, key: str, problem: str) -> ValueError:
        """Return an error whose message is the field's path and a problem."""
        return ValueError(f"{self.path}.{key}: {problem}")
