"""Exceptions that all packages share.

TrimaranError
├── SettingsError   one or more settings are invalid
└── ServerError     the server cannot listen on its address

``watcher.errors`` and ``client.errors`` define subclasses of TrimaranError.
"""

from collections.abc import Sequence

from runtime import masking


class TrimaranError(Exception):
    """Root of the project's exceptions. Secrets in the message are redacted."""

    def __init__(self, message: str = "") -> None:
        super().__init__(masking.redact(message))


class SettingsError(TrimaranError):
    """One or more settings are invalid; ``problems`` has one line for each."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(map(masking.to_line, problems))
        count = "1 setting" if len(self.problems) == 1 else f"{len(self.problems)} settings"
        super().__init__("\n  ".join([f"{count} cannot be used:", *self.problems]))


class ServerError(TrimaranError):
    """The server cannot listen on its address."""
