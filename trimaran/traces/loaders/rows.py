"""Rows of files of any length, one at a time: plain, in gzip or in a tar archive; what cannot be read is counted."""

import csv
import gzip
import io
import json
import math
import re
import sys
import tarfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any, TextIO, TypeVar

import click

ARCHIVES = (".tar.gz", ".tgz", ".tar")
_TOLD_EVERY = 50_000
_TEXT: dict[str, Any] = {"encoding": "utf-8-sig", "errors": "replace", "newline": ""}
_DAMAGED = (OSError, EOFError, zlib.error, tarfile.TarError)
Row = TypeVar("Row")
Parsed = TypeVar("Parsed")


class LoadError(Exception):
    """A data set cannot be read; the message names the file or folder, and what to do."""


def number(text: str | float) -> float:
    """Return a finite number, or raise ValueError."""
    try:
        made = float(text)
    except ValueError:
        raise ValueError(f"{text!r} is no number") from None
    if not math.isfinite(made):
        raise ValueError(f"{text} is no number")
    return made


def amount(text: str | float) -> float:
    """Return a finite number that is not negative, or raise ValueError."""
    made = number(text)
    if made < 0:
        raise ValueError(f"{text} is less than nothing")
    return made


def amount_or_nan(text: str) -> float:
    """Return an amount, or not-a-number where nothing is written."""
    return amount(text) if text else math.nan


class Source:
    """A folder with a data set's files, as they were downloaded or unpacked, also in folders of their own.

    Args:
        folder: where they are.
        title: what data set it should be, for errors.

    Attributes:
        bad: how many rows of each file could not be read.
        examples: the first of each, and why.
    """

    def __init__(self, folder: Path, title: str) -> None:
        if not folder.is_dir():
            raise LoadError(f"{folder}: is no folder; give the one with the files of {title}")
        self.folder, self.title = folder, title
        self.bad: Counter[str] = Counter()
        self.examples: dict[str, str] = {}
        self._show: Callable[[int], None] | None = None
        self._rows = 0

    def files(self, table: str) -> list[Path]:
        """Return a table's files by name: those whose name, or folder, begins with it, by number; packed or not.

        Raises:
            LoadError: there is none.
        """
        found = []
        for path in self.folder.rglob("*"):
            parts = path.relative_to(self.folder).parts
            if path.is_file() and not any(part.startswith(".") for part in parts):
                found += [path] if any(part.startswith(table) for part in parts) else []
        unpacked = {_without_suffixes(path): path for path in sorted(found, key=lambda path: -len(path.name))}
        if not found:
            wanted = f"no {table}*; {self.title} is read from files of that name" if table else "no files"
            raise LoadError(f"{self.folder}: has {wanted}")
        return sorted(
            unpacked.values(), key=lambda path: [int(part) if part.isdigit() else part for part in _split(path)]
        )

    def reading(self, table: str, files: Sequence[Path] = ()) -> Iterator[Path]:
        """Yield a table's files, or these of them, and show with one bar how far they are read.

        Raises:
            LoadError: there are none, or they have no rows.
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
        """Yield what is made of each row of comma-separated values; None passes a row over.

        Raises:
            LoadError: the file is damaged, or none of its rows can be read.
        """
        with self._text(path) as lines:
            yield from self._parsed(path, filter(None, csv.reader(lines)), parse)

    def records(self, path: Path, parse: Callable[[Mapping[str, Any]], Parsed | None]) -> Iterator[Parsed]:
        """Yield what is made of each object: of JSON a line (``.json``), or of a row under a header.

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
                made = parse(row)
            except (ValueError, LookupError, TypeError, csv.Error) as error:
                bad += 1
                why = why or f"the first is row {good + bad}: {_reason(error)}"
                continue
            except _DAMAGED as error:
                raise LoadError(f"{path}: is damaged at row {good + bad + 1}: {error}; download it again") from None
            good += 1
            if made is not None:
                yield made
        self._rows += good + bad
        if bad and not good:
            raise LoadError(f"{path}: is no file of {self.title}: no row can be read; {why}")
        if bad:
            self.bad[name] += bad
            self.examples.setdefault(name, why)

    @contextmanager
    def _text(self, path: Path) -> Iterator[Iterator[str]]:
        """Open a file; how far it is read is shown, where there is a bar."""
        with ExitStack() as stack:
            try:
                raw = stack.enter_context(path.open("rb"))
                texts = _texts(raw, path.name, stack)
            except OSError as error:
                raise LoadError(f"{path}: cannot be read: {error.strerror or error}") from None
            except _DAMAGED:
                raise LoadError(f"{path}: is no whole tar archive; download it again") from None

            def lines() -> Iterator[str]:
                for text in texts:
                    for number, line in enumerate(text, 1):
                        if self._show and number % _TOLD_EVERY == 0:
                            self._show(raw.tell())
                        yield line

            yield lines()


def _reason(error: Exception) -> str:
    """Say what is wrong with a row."""
    if isinstance(error, KeyError):
        return f"it has no field {error.args[0]}"
    if isinstance(error, IndexError):
        return "it has too few columns"
    return "it has no value where one is needed" if isinstance(error, TypeError) else str(error)


def _without_suffixes(path: Path) -> str:
    """Return what names a file however it is packed."""
    return re.sub(r"(\.(csv|json|tar|tgz|gz))+$", "", str(path))


def _texts(raw: IO[bytes], name: str, stack: ExitStack) -> Iterator[TextIO]:
    """Return what is in a file as text: itself, unpacked, or each file of an archive."""
    if name.endswith(ARCHIVES):
        archive = stack.enter_context(tarfile.open(fileobj=raw, mode="r:*"))  # noqa: SIM115  the stack is one
        members = (stream for member in archive if (stream := archive.extractfile(member)) is not None)
        return (io.TextIOWrapper(stream, **_TEXT) for stream in members)
    if name.endswith(".gz"):
        return iter([stack.enter_context(gzip.open(raw, "rt", **_TEXT))])
    return iter([stack.enter_context(io.TextIOWrapper(raw, **_TEXT))])


def _object(line: str) -> dict[str, Any]:
    made = json.loads(line)
    if not isinstance(made, dict):
        raise ValueError("it is no object")  # noqa: TRY004  a bad row, as others
    return made


def _split(path: Path) -> list[str]:
    return re.split(r"(\d+)", path.name)
