"""KubeSchedulerConfiguration files: opened, bounded and parsed in one place, with errors of one form.

An error names the file and, if the file has the key, the line: ``scheduler.yaml, line 9: profiles[0].plugins: ...``.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from runtime.parsing import parse_yaml, read_bounded
from scoring.profiles.configuration.fields import ConfigNote, UnknownPlugin
from trimaran.yaml_lines import KeyLines


@dataclass(frozen=True)
class SchedulerFile:
    """Content of a KubeSchedulerConfiguration file.

    Attributes:
        path: path of the file.
        document: the parsed file.
        text: the file's text.
    """

    path: Path
    document: Mapping[str, Any]
    text: bytes

    @cached_property
    def lines(self) -> KeyLines:
        """Line numbers of the keys."""
        return KeyLines.of(self.text, self.document)

    def unknown_keys(self, notes: Iterable[ConfigNote]) -> list[str]:
        """Return a warning for each note about an unknown key, in the form of the errors."""
        return [
            f"{self.path}{f', line {line}' if line else ''}: {note.path} is ignored: {note.detail}"
            for note, line in self.lines.located(notes)
            if note.status == "unknown"
        ]


@contextmanager
def scheduler_file(path: Path, allow_with: str = "") -> Iterator[SchedulerFile]:
    """Yield the content of a KubeSchedulerConfiguration file; ``-`` is standard input.

    A ValueError that the ``with`` block raises about a key gets the file's name and the line of the key.

    Args:
        path: the file.
        allow_with: the caller's option that allows a plugin, such as ``--allow``, which errors about an unknown plugin
            mention; "" if there is none.

    Raises:
        ValueError: the file cannot be read, is not a mapping in YAML, or the ``with`` block refuses its content.
    """
    file = _read(path)
    try:
        yield file
    except ValueError as error:
        message = error.with_remedy(allow_with) if isinstance(error, UnknownPlugin) else error
        line = file.lines.line_of(str(error).partition(":")[0])
        raise ValueError(f"{path}{f', line {line}' if line else ''}: {message}") from error


def _read(path: Path) -> SchedulerFile:
    try:
        with nullcontext(sys.stdin.buffer) if str(path) == "-" else path.open("rb") as opened:
            text = read_bounded(opened)
        document = parse_yaml(text)
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    if not isinstance(document, dict):
        raise ValueError(f"{path}: must be a YAML mapping with a KubeSchedulerConfiguration")  # noqa: TRY004  a user's mistake
    return SchedulerFile(path, document, text)
