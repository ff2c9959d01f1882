"""Arguments of the scheduler's plugins in a KubeSchedulerConfiguration."""

from collections.abc import Sequence

from runtime.errors import quoted
from scoring.profiles.configuration.fields import FieldReader, refuse_unknown


def whole_number(reader: FieldReader, key: str, default: int, least: int = 0, most: int | None = None) -> int:
    """Return an argument of a plugin that must be a whole number; the default if the argument is absent.

    Args:
        reader: reader of the arguments.
        key: name of the argument.
        default: value of an absent argument.
        least: least valid value.
        most: largest valid value; None for no limit.

    Raises:
        ValueError: the value is not valid; the message begins with its path.
    """
    value = reader.value(key, default)
    if type(value) is not int or value < least or (most is not None and value > most):
        bounds = f"of at least {least}" if most is None else f"between {least} and {most}"
        raise reader.error(key, f"must be a whole number {bounds}, got {quoted(value)}")
    return value


def finish(reader: FieldReader, *ignored: str) -> None:
    """Refuse the arguments that were not read.

    Args:
        reader: reader of the arguments.
        ignored: arguments without an effect here.

    Raises:
        ValueError: there is an unknown argument; the message begins with its path.
    """
    for key in ("apiVersion", "kind", *ignored):
        reader.raw(key)
    reader.finish()
    refuse_unknown(reader.notes)


def word(reader: FieldReader, key: str, words: Sequence[str]) -> str:
    """Return an argument of a plugin that must be one of ``words``; the first word if the argument is absent.

    Raises:
        ValueError: the value is not one of ``words``; the message begins with its path.
    """
    value = reader.value(key, words[0])
    if value not in words:
        raise reader.error(key, f"must be one of {', '.join(words)}; got {quoted(value)}")
    return str(value)


def text(reader: FieldReader, key: str, default: str) -> str:
    """Return an argument of a plugin that must be a non-empty text; the default if the argument is absent.

    Raises:
        ValueError: the value is not a text, or empty; the message begins with its path.
    """
    value = reader.value(key, default)
    if not isinstance(value, str) or not value:
        raise reader.error(key, f"must be a text that is not empty, got {quoted(value)}")
    return value
