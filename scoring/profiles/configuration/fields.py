"""Reader for the fields of a configuration that records, for every key, a note on its effect."""

import difflib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Literal, TypeGuard, TypeVar

from runtime.errors import quoted
from scoring.arguments import FINITE, ArgumentError, Between, problems_of

T = TypeVar("T")
Status = Literal["honored", "changed", "ignored", "unknown"]
_SAME_NAMES: Final[Mapping[str, str]] = {}


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


class UnknownPlugin(ValueError):
    """A configuration names a plugin that its reader does not have.

    Attributes:
        name: name of the plugin.
    """

    def __init__(self, message: str, name: str = "") -> None:
        super().__init__(message)
        self.name = name

    def with_remedy(self, allow_with: str) -> "UnknownPlugin":
        """Return the error with a hint at the option that accepts the plugin, such as ``--allow``; "" for no hint."""
        if not allow_with:
            return self
        remedy = f"A plugin of your own scheduler is accepted with {allow_with}{self.name}"
        return UnknownPlugin(
            f"{str(self).removesuffix('.')}{'' if str(self).endswith('?') else '.'} {remedy}", self.name
        )


def refuse_unknown(notes: Iterable[ConfigNote]) -> None:
    """Refuse unknown keys, as kube-scheduler does.

    Raises:
        ValueError: a note is about an unknown key; the message begins with its path.
    """
    for note in notes:
        if note.status == "unknown":
            raise ValueError(f"{note.path}: {note.detail}")


def is_list(value: Any) -> TypeGuard[Sequence[Any]]:
    """Return whether a value is a list of YAML or JSON."""
    return isinstance(value, Sequence) and not isinstance(value, str)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the end of an error's sentence: a question with the most similar known name, if there is one."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {close[0]}?" if close else "."


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

    def value(self, key: str, default: Any) -> Any:
        """Return the value of a field, or the default if the field is absent or null.

        The value is not checked: the object that :meth:`build` builds from it checks its arguments.
        """
        value = self.raw(key)
        return default if value is None else self.honored(key, value)

    def number(self, key: str, default: float, valid: Between) -> Any:
        """Return the value of a field, or the default if it is absent, null or a number outside a range, as upstream.

        Args:
            key: name of the field.
            default: result if the field is absent, null, or a number outside the range.
            valid: range of the numbers that upstream uses.
        """
        value = self.raw(key)
        if value is not None and not any(problems_of(value, Annotated[float, FINITE])):
            for _, problem in valid(value):
                return self.changed(key, default, f"{problem}; {default:g} is used, as upstream")
        return self.value(key, default)

    def weight(self) -> Any:
        """Return the value of the field ``weight``; 0 stands for 1, as in kube-scheduler."""
        value = self.raw("weight")
        return self.changed("weight", 1, "0 counts as 1, as upstream") if value == 0 else self.value("weight", 1)

    def check(self, key: str, value: T, kind: Any) -> T:
        """Return a value after checking it.

        Args:
            key: name of the field.
            value: value of the field.
            kind: annotation that declares the valid values; see :mod:`scoring.arguments`.

        Raises:
            ValueError: the value is not valid; the message has the field's path.
        """
        for path, problem in problems_of(value, kind):
            raise self.error(key + path, problem)
        return value

    def build(self, kind: Callable[..., T], keys: Mapping[str, str] = _SAME_NAMES, **arguments: Any) -> T:
        """Build an object that checks its arguments.

        Args:
            kind: class of the object.
            keys: key in the file by argument, for arguments with another name in the file.
            **arguments: arguments of the class.

        Raises:
            ValueError: an argument is not valid; the message has the path of its key.
        """
        try:
            return kind(**arguments)
        except ArgumentError as error:
            name = re.split(r"[.\[]", error.argument, maxsplit=1)[0]
            path = error.argument.removeprefix(name)
            raise self.error(keys.get(name, camel(name)) + path, error.problem) from None

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
            raise self.error(key, f"must be a list, got {quoted(listed)}")
        self.honored(key, None)
        return [FieldReader(f"{self.path}.{key}[{i}]", entry, self.notes) for i, entry in enumerate(listed)]

    def honored(self, key: str, value: T) -> T:
        """Record that a key's value applies unchanged, and return the value."""
        self.notes.append(ConfigNote(f"{self.path}.{key}", "honored"))
        return value

    def changed(self, key: str, value: T, why: str) -> T:
        """Record that a value other than the configured one applies, and return the value that applies.

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
                detail = f"there is no such key{did_you_mean(str(key), self._read)}".removesuffix(".")
                self.notes.append(ConfigNote(f"{self.path}.{key}", "unknown", detail))

    def error(self, key: str, problem: str) -> ValueError:
        """Return an error whose message is the field's path and a problem."""
        return ValueError(f"{self.path}.{key}: {problem}")


def camel(name: str) -> str:
    """Return the key of an argument in a configuration: ``target_load`` is ``targetLoad`` there."""
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))
