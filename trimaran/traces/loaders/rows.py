"""Streaming of rows from plain, gzip and tar files of any size; unreadable rows are counted."""

import csv
import gzip
import io
import math
import re
import sys
import tarfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any, TextIO, TypeVar

import click

from runtime.errors import quoted
from runtime.parsing import parse_json

ARCHIVES = (".tar.gz", ".tgz", ".tar")
_PROGRESS_ROWS = 50_000
_TEXT: dict[str, Any] = {"encoding": "utf-8-sig", "errors": "replace", "newline": ""}
_DAMAGED = (OSError, EOFError, zlib.error, tarfile.TarError)
Row = TypeVar("Row")
Parsed = TypeVar("Parsed")


class LoadError(Exception):
    """Error in a data set; the message names the file or folder, and the remedy."""


def number(text: str | float) -> float:
    """Parse a finite number.

    Raises:
        ValueError: the text is not a finite number.
    """
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"{quoted(text)} is not a number") from None
    if not math.isfinite(value):
        raise ValueError(f"{text} is not a finite number")
    return value


def amount(text: str | float) -> float:
    """Parse a finite number of 0 or more.

    Raises:
        ValueError: the text is not such a number.
    """
    value = number(text)
    if value < 0:
        raise ValueError(f"{text} is negative")
    return value


def by_numbers(path: Path) -> list[int | str]:
    """Return a key that sorts names by the numbers in them."""
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", path.name)]


def amount_or_nan(text: str) -> float:
    """Parse an amount as :func:`amount` does; NaN if the text is empty."""
    return amount(text) if text else math.nan


class DatasetFiles:
    """Files of a data set in a folder and its subfolders, packed or unpacked.

    Args:
        folder: path of the folder.
        title: name of the expected data set, for error messages.

    Attributes:
        bad: number of unreadable rows by file.
        examples: first unreadable row and its error, by file.
        notes: what a format assumes about these files, for the user.
    """

    def __init__(self, folder: Path, title: str) -> None:
        if not folder.is_dir():
            raise LoadError(f"{folder}: is not a folder; give the folder with the files of {title}")
        self.folder, self.title = folder, title
        self.bad: dict[str, int] = {}
        self.examples: dict[str, str] = {}
        self.notes: set[str] = set()
        self._show: Callable[[int], None] | None = None
        self._rows = 0

    def files(self, table: str) -> list[Path]:
        """Return the files of a table, ordered by the numbers in their names.

        A file belongs to a table if its name, or the name of one of its folders, begins with the table's name. An
        unpacked file is preferred to its packed copy.

        Raises:
            LoadError: the table has no files.
        """
        matches = []
        for path in self.folder.rglob("*"):
            parts = path.relative_to(self.folder).parts
            if path.is_file() and not any(part.startswith(".") for part in parts):
                matches += [path] if any(part.startswith(table) for part in parts) else []
        unpacked = {_without_suffixes(path): path for path in sorted(matches, key=lambda path: -len(path.name))}
        if not matches:
            missing = f"no {table}*; {self.title} is read from files of that name" if table else "no files"
            raise LoadError(f"{self.folder}: has {missing}")
        return sorted(unpacked.values(), key=by_numbers)

    def reading(self, table: str, files: Sequence[Path] = ()) -> Iterator[Path]:
        """Yield the given files, or all files of a table, with one progress bar for all of them.

        Raises:
            LoadError: the table has no files or no rows.
        """
        files = files or self.files(table)
        self._rows = 0
        sizes = [path.stat().st_size for path in files]
        with click.progressbar(length=max(sum(sizes), 1), label=table or self.folder.name, file=sys.stderr) as bar:
            done = 0

            def show(read: int) -> None:
                bar.update(done + read - bar.pos)

            self._show = show
            for path, size in zip(files, sizes, strict=True):
                yield path
                show(size)
                done += size
            self._show = None
        if not self._rows:
            raise LoadError(f"{files[0] if len(files) == 1 else self.folder / table}: is empty; download it again")

    def rows(self, path: Path, parse: Callable[[list[str]], Parsed | None]) -> Iterator[Parsed]:
        """Yield the parsed rows of a CSV file; rows that ``parse`` returns None for are skipped.

        Raises:
            LoadError: the file is damaged, or none of its rows can be read.
        """
        with self._text(path) as lines:
            yield from self._parsed(path, filter(None, csv.reader(lines)), parse)

    def records(self, path: Path, parse: Callable[[Mapping[str, Any]], Parsed | None]) -> Iterator[Parsed]:
        """Yield the parsed records of a file: JSON lines (``.json``), or CSV with a header.

        Raises:
            LoadError: the file is damaged, or none of its rows can be read.
        """
        with self._text(path) as lines:
            if ".json" in path.name:
                yield from self._parsed(path, filter(str.strip, lines), lambda line: parse(_object(line)))
            else:
                yield from self._parsed(path, csv.DictReader(lines), parse)

    def _parsed(self, path: Path, rows: Iterator[Row], parse: Callable[[Row], Parsed | None]) -> Iterator[Parsed]:
        name, good, bad, why = str(path.relative_to(self.folder)), 0, 0, ""
        while True:
            try:
                row = next(rows, None)
                if row is None:
                    break
                parsed = parse(row)
            except (ValueError, LookupError, TypeError, csv.Error) as error:
                bad += 1
                why = why or f"the first is row {good + bad}: {_reason(error)}"
                continue
            except _DAMAGED as error:
                raise LoadError(f"{path}: is damaged at row {good + bad + 1}: {error}; download it again") from None
            good += 1
            if parsed is not None:
                yield parsed
        self._rows += good + bad
        if bad and not good:
            raise LoadError(f"{path}: is not a file of {self.title}: no row can be read; {why}")
        if bad:
            self.bad[name] = bad  # not a sum: with a history, tasks are read twice
            self.examples.setdefault(name, why)

    @contextmanager
    def _text(self, path: Path) -> Iterator[Iterator[str]]:
        """Open a file as lines of text, and update the progress bar while they are read."""
        with ExitStack() as stack:
            try:
                raw = stack.enter_context(path.open("rb"))
                texts = _texts(raw, path.name, stack)
            except OSError as error:
                raise LoadError(f"{path}: cannot be read: {error.strerror or error}") from None
            except _DAMAGED:
                raise LoadError(f"{path}: is not a complete tar archive; download it again") from None

            def lines() -> Iterator[str]:
                for text in texts:
                    for number, line in enumerate(text, 1):
                        if self._show and number % _PROGRESS_ROWS == 0:
                            self._show(raw.tell())
                        yield line

            yield lines()


def _reason(error: Exception) -> str:
    """Return the reason why a row cannot be read."""
    if isinstance(error, KeyError):
        return f"no field {error.args[0]}"
    if isinstance(error, IndexError):
        return "too few columns"
    return "a required value is missing" if isinstance(error, TypeError) else str(error)


def _without_suffixes(path: Path) -> str:
    """Return a path without the suffixes of formats and packing."""
    return re.sub(r"(\.(csv|json|tar|tgz|gz))+$", "", str(path))


def _texts(raw: IO[bytes], name: str, stack: ExitStack) -> Iterator[TextIO]:
    """Return the text streams of a file: one, or each member of a tar archive."""
    if name.endswith(ARCHIVES):
        archive = stack.enter_context(tarfile.open(fileobj=raw, mode="r:*"))  # noqa: SIM115  the stack closes it
        members = (stream for member in archive if (stream := archive.extractfile(member)) is not None)
        return (io.TextIOWrapper(stream, **_TEXT) for stream in members)
    if name.endswith(".gz"):
        return iter([stack.enter_context(gzip.open(raw, "rt", **_TEXT))])
    return iter([stack.enter_context(io.TextIOWrapper(raw, **_TEXT))])


def _object(line: str) -> dict[str, Any]:
    record = parse_json(line)
    if not isinstance(record, dict):
        raise ValueError("not a JSON object")  # noqa: TRY004  an unreadable row
    return record
