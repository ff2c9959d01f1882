"""Exceptions that all packages share.

TrimaranError
├── SettingsError   one or more settings are invalid
└── ServerError     the server cannot listen on its address

``watcher.errors`` and ``client.errors`` define subclasses of TrimaranError.
"""

import contextlib
from collections.abc import Iterator, Sequence

from runtime import masking

_LONGEST_VALUE = 1000  # characters
_LONGEST_PROBLEM = 5000  # characters; a name that was given may have megabytes, too


class TrimaranError(Exception):
    """Root of the project's exceptions. Secrets in the message are redacted."""

    def __init__(self, message: str = "") -> None:
        super().__init__(masking.redact(message))


def error_text(error: BaseException) -> str:
    """Return the type and text of an error of any origin; the type alone if its text cannot be made."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001  of a plugin's own class of errors: handling the error must not fail for its text
        return type(error).__name__


def quoted(value: object) -> str:
    """Return a value as a message quotes it: its ``repr``, cut at 1,000 characters.

    The value may be a file's or an object's, and have megabytes.
    """
    try:
        written = repr(value)
    except (ValueError, RecursionError):  # an integer with thousands of digits, or a value that is nested as deep
        return f"a huge {type(value).__name__}"
    return written if len(written) <= _LONGEST_VALUE else f"{written[:_LONGEST_VALUE]}... ({len(written)} characters)"


class SettingsError(TrimaranError):
    """One or more settings are invalid; ``problems`` has one line for each."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(masking.to_line(each)[:_LONGEST_PROBLEM] for each in problems)
        count = "1 setting" if len(self.problems) == 1 else f"{len(self.problems)} settings"
        super().__init__("\n  ".join([f"{count} cannot be used:", *self.problems]))


class SettingsProblems:
    """Collector of the problems that several steps find, so that all of them are reported at once."""

    def __init__(self) -> None:
        self._problems: list[str] = []

    @contextlib.contextmanager
    def collect(self) -> Iterator[None]:
        """Collect the problems of a SettingsError that the block raises, and continue after the block."""
        try:
            yield
        except SettingsError as error:
            self._problems += error.problems

    def raise_any(self) -> None:
        """Raise a SettingsError with all problems, if there are any."""
        if self._problems:
            raise SettingsError(self._problems)


class ServerError(TrimaranError):
    """The server cannot listen on its address."""
