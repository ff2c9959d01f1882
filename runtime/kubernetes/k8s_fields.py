"""Fields of Kubernetes objects in any of their three forms.

These are the API server's JSON (dicts with camelCase keys), the ``to_dict()`` of the kubernetes client (snake_case
keys), and the client's objects.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from difflib import get_close_matches
from functools import cache, lru_cache, wraps
from typing import Any, ParamSpec, TypeVar

from runtime.errors import quoted

Arguments = ParamSpec("Arguments")
Read = TypeVar("Read")
_INTEGER = re.compile(r"[+-]?[0-9]{1,100}", re.ASCII)
_SIMILARITY = 0.85  # of a misspelled name: one wrong letter in seven; the names of one object's fields differ more
_RARE_YEAR = re.compile(r"(-[0-9]{3,4}|0000|[0-9]{5,6})-[0-9]{2}-[0-9]{2}T[0-9:.]+Z", re.ASCII)


def decoder(kind: str) -> Callable[[Callable[Arguments, Read]], Callable[Arguments, Read]]:
    """Return a decorator for functions that read an object: all errors become ValueErrors that name the object.

    A field of an unexpected type can raise many types of errors. No API server sends such an object, but if one does,
    the thread that reads all objects must not end.

    Args:
        kind: kind of the object in messages.
    """

    def decorate(read: Callable[Arguments, Read]) -> Callable[Arguments, Read]:
        @wraps(read)
        def checked(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Read:
            try:
                return read(*args, **kwargs)
            except (TypeError, AttributeError, LookupError, ArithmeticError, RecursionError) as error:
                metadata = next((found for each in args if (found := get(each, "metadata")) is not None), None)
                names = [get(metadata, key) for key in ("namespace", "name")]
                name = "/".join(each[:253] for each in names if isinstance(each, str))
                raise ValueError(f"{kind} {name}: has a field of an unexpected type: {error}") from error

        return checked

    return decorate


def get(owner: Any, camel_name: str) -> Any:
    """Return a field of a dict (in either spelling) or of an object of the kubernetes client; None if it is missing."""
    if owner is None:
        return None
    if type(owner) is dict or isinstance(owner, Mapping):  # the first check is fast, and true for nearly all objects
        if camel_name in owner:
            return owner[camel_name]
        snake = _snake(camel_name)
        return None if snake == camel_name else owner.get(snake)
    return getattr(owner, _snake(camel_name), None)


def get_text(owner: Any, camel_name: str, where: str) -> str:
    """Return a field with a text; "" if it is missing.

    Raises:
        ValueError: the field is not a text.
    """
    value = get(owner, camel_name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise ValueError(f"{where}.{camel_name}: must be a string, got {quoted(value)}")  # noqa: TRY004  a user's mistake
    return value


def get_whole(owner: Any, camel_name: str, where: str, default: int = 0, bits: int = 32) -> int:
    """Return a field with a whole number; the default if it is missing.

    Args:
        owner: object that has the field.
        camel_name: name of the field.
        where: path of the owner, for the message.
        default: number for a missing field.
        bits: size of the field's signed integer in Kubernetes; the API server refuses larger numbers.

    Raises:
        ValueError: the field is not a whole number of this size.
    """
    value = get(owner, camel_name)
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool) or not -(2 ** (bits - 1)) <= value < 2 ** (bits - 1):
        raise ValueError(f"{where}.{camel_name}: must be a whole number of {bits} bits, got {quoted(value)}")
    return value


def int64(text: str) -> int | None:
    """Parse a whole number as Go does; return None if the text is not a whole number of 64 bits."""
    number = int(text) if _INTEGER.fullmatch(text) else None
    return number if number is not None and -(2**63) <= number < 2**63 else None


def get_list(owner: Any, camel_name: str, where: str) -> Sequence[Any]:
    """Return a list field; empty if it is missing.

    Raises:
        ValueError: the field is not a list.
    """
    value = get(owner, camel_name)
    if not value:
        return ()
    if not isinstance(value, list | tuple):
        raise ValueError(f"{where}.{camel_name}: must be a list, got {str(value)[:80]!r}")  # noqa: TRY004  a user's mistake
    return value


def get_texts(owner: Any, camel_name: str, where: str) -> dict[str, str]:
    """Return a field that maps texts to texts, such as labels; empty if it is missing.

    Raises:
        ValueError: the field is not a mapping, or one of its values is not a text.
    """
    value = get(owner, camel_name)
    if not value:
        return {}
    if not isinstance(value, Mapping) or not all(isinstance(value, str) for value in value.values()):
        raise ValueError(f"{where}.{camel_name}: must be a mapping of strings, got {str(value)[:80]!r}")
    return dict(value)


def unix_seconds(moment: Any, where: str) -> float | None:
    """Return a time in Unix seconds; None if there is none.

    Raises:
        ValueError: the text is not a time.
    """
    if isinstance(moment, str):
        try:
            moment = datetime.fromisoformat(moment)
        except ValueError:
            # Kubernetes also has years that datetime lacks, such as 0000: they saturate.
            if not (year := _RARE_YEAR.match(moment)):
                raise ValueError(f"{where} has an invalid time: {quoted(moment)}; use 2030-01-31T12:00:00Z") from None
            moment = datetime.max.replace(tzinfo=UTC) if int(year[1]) > 0 else datetime.min.replace(tzinfo=UTC)
    try:
        return moment.timestamp() if isinstance(moment, datetime) else None
    except (ValueError, OverflowError):  # near the first or last year, without a time zone
        raise ValueError(f"{where} has an invalid time: {moment}") from None


def check_spelling(owner: Any, names: frozenset[str], where: str) -> None:
    """Check that no key of a dict is a misspelled field, whose value would be ignored silently.

    Other unknown keys pass, because newer versions of Kubernetes have more fields. Objects from an API server need no
    check: it drops misspelled fields.

    Args:
        owner: the object with the fields.
        names: names of the fields that are read, in camelCase.
        where: path of the object, for the message.

    Raises:
        ValueError: a key is misspelled, or the owner is a text, a number or a list, and so has no fields.
    """
    if isinstance(owner, str | int | float | list):
        raise ValueError(f"{where}: must be a mapping, got {quoted(owner)}")  # noqa: TRY004  a user's mistake
    if type(owner) is dict and (found := _misspelled(tuple(owner), names)):
        raise ValueError(f"{where}.{found[0]}: is not a field; did you mean {found[1]}?")


@lru_cache(4096)  # nearly all pods have one of a few combinations of keys
def _misspelled(keys: tuple[object, ...], names: frozenset[str]) -> tuple[object, str] | None:
    """Return the first misspelled key and its correct spelling; None if no key is misspelled."""
    valid = names | {_snake(name) for name in names}
    by_lower = {name.lower(): name for name in names}
    for key in keys:
        if key not in valid and (close := get_close_matches(str(key)[:100].lower(), by_lower, 1, _SIMILARITY)):
            return key, by_lower[close[0]]
    return None


@cache
def _snake(camel_name: str) -> str:
    return "".join("_" + letter.lower() if letter.isupper() else letter for letter in camel_name)
