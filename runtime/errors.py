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
_LONGEST_PROBLEM = 5000  # characters; a setting's name may have megabytes, too


class TrimaranError(Exception):
    """Root of the project's exceptions. Secrets in the message are redacted."""

    def __init__(self, message: str = "") -> None:
        super().__init__(masking.redact(message))


def error_text(error: BaseException) -> str:
    """Return the type and text of an error; the type alone if the text cannot be formatted."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001  str() of a plugin's exception may raise, while the exception is handled
        return type(error).__name__


def quoted(value: object) -> str:
    """Return the ``repr`` of a value for a message, cut at 1,000 characters: values in files may have megabytes."""
    try:
        written = repr(value)
    except (ValueError, RecursionError):  # an integer with thousands of digits, or thousands of nested levels
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
