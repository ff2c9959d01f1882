"""Rows of files of any length, one at a time: plain, in gzip or in a tar archive; what cannot be read is counted."""

import csv
import gzip
import io
import json
import re
import sys
import tarfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any, TextIO, TypeVar

import click

_ARCHIVES = (".tar.gz", ".tgz", ".tar")
_TOLD_EVERY = 50_000
_TEXT: dict[str, Any] = {"encoding": "utf-8", "errors": "replace", "newline": ""}
Row = TypeVar("Row")
Parsed = TypeVar("Parsed")


class LoadError(Exception):
    """A data set cannot be read; the message names the file or folder, and what to do."""


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

    def files(self, table: str, *, needed: bool = True) -> list[Path]:
        """Return a table's files by name: those whose name, or folder, begins with it, by number; packed or not.

        Raises:
            LoadError: there is none, though it is needed.
        """
        found = []
        for path in self.folder.rglob("*"):
            parts = path.relative_to(self.folder).parts
            if path.is_file() and not any(part.startswith(".") for part in parts):
                found += [path] if any(part.startswith(table) for part in parts) else []
        unpacked = {_without_suffixes(path): path for path in sorted(found, key=lambda path: -len(path.name))}
        if needed and not found:
            raise LoadError(f"{self.folder}: has no {table}*; {self.title} is read from files of that name")
        return sorted(
            unpacked.values(), key=lambda path: [int(part) if part.isdigit() else part for part in _split(path)]
        )

    def reading(self, table: str, *, needed: bool = True) -> Iterator[Path]:
        """Yield a table's files, and show with one bar how far they are read.

        Raises:
            LoadError: as of :meth:`files`.
        """
        files = self.files(table, needed=needed)
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

    def rows(self, path: Path, parse: Callable[[list[str]], Parsed | None]) -> Iterator[Parsed]:
        """Yield what is made of each row of comma-separated values; None passes a row over.

        Raises:
            LoadError: the file is damaged.
        """
        with self._text(path) as lines:
            yield from self._parsed(path, csv.reader(lines), parse)

    def records(self, path: Path, parse: Callable[[Mapping[str, Any]], Parsed | None]) -> Iterator[Parsed]:
        """Yield what is made of each object: of JSON a line (``.json``), or of a row under a header.

        Raises:
            LoadError: the file is damaged.
        """
        with self._text(path) as lines:
            if ".json" in path.name:
                yield from self._parsed(path, lines, lambda line: parse(_object(line)))
            else:
                yield from self._parsed(path, csv.DictReader(lines), parse)

    def _parsed(self, path: Path, rows: Iterator[Row], parse: Callable[[Row], Parsed | None]) -> Iterator[Parsed]:
        number = 0
        while True:
            number += 1
            try:
                row = next(rows, None)
                if row is None:
                    return
                made = parse(row)
            except (ValueError, LookupError, TypeError, csv.Error) as error:
                self.bad[path.name] += 1
                self.examples.setdefault(path.name, f"the first is row {number}: {error}")
                continue
            except (OSError, EOFError, zlib.error, tarfile.TarError) as error:
                raise LoadError(f"{path}: is damaged at row {number}: {error}; download it again") from None
            if made is not None:
                yield made

    @contextmanager
    def _text(self, path: Path) -> Iterator[Iterator[str]]:
        """Open a file; how far it is read is shown, where there is a bar."""
        with ExitStack() as stack:
            try:
                raw = stack.enter_context(path.open("rb"))
                texts = _texts(raw, path.name, stack)
            except (OSError, tarfile.TarError) as error:
                raise LoadError(f"{path}: cannot be read: {error}") from None

            def lines() -> Iterator[str]:
                for text in texts:
                    for number, line in enumerate(text, 1):
                        if self._show and number % _TOLD_EVERY == 0:
                            self._show(raw.tell())
                        yield line

            yield lines()


def _without_suffixes(path: Path) -> str:
    """Return what names a file however it is packed."""
    return re.sub(r"(\.(csv|json|tar|tgz|gz))+$", "", str(path))


def _texts(raw: IO[bytes], name: str, stack: ExitStack) -> Iterator[TextIO]:
    """Return what is in a file as text: itself, unpacked, or each file of an archive."""
    if name.endswith(_ARCHIVES):
        archive = stack.enter_context(tarfile.open(fileobj=raw, mode="r:*"))  # noqa: SIM115  the stack is one
        members = (stream for member in archive if (stream := archive.extractfile(member)) is not None)
        return (io.TextIOWrapper(stream, **_TEXT) for stream in members)
    if name.endswith(".gz"):
        return iter([stack.enter_context(gzip.open(raw, "rt", **_TEXT))])
    return iter([stack.enter_context(io.TextIOWrapper(raw, **_TEXT))])


def _object(line: str) -> dict[str, Any]:
    made = json.loads(line)
    if not isinstance(made, dict):
        raise TypeError("it is no object")
    return made


def _split(path: Path) -> list[str]:
    return re.split(r"(\d+)", path.name)
