"""Tables of comma-separated values at the boundary: what is wrong is refused with the file, and the row."""

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np

from runtime.kubernetes.objects import MOST
from scoring.arrays import Int64s

_TOLD = 200  # characters, of a header that is refused


class TraceError(Exception):
    """A trace cannot be read; the message names the file, what is wrong and what to do."""


@dataclass(frozen=True)
class Table:
    """The columns of a table as text.

    Attributes:
        path: the file's.
        columns: the values by column.
        rows: the number of each value's row in the file, where the header is the first; empty ones are counted.
    """

    path: Path
    columns: Mapping[str, list[str]]
    rows: Sequence[int]

    def __getitem__(self, column: str) -> list[str]:
        return self.columns[column]

    def where(self, place: int) -> str:
        """Return the file and the row of a value, for what is refused."""
        return f"{self.path}: row {self.rows[place]}"

    def whole_numbers(self, column: str, *, least: int = 0, most: int = MOST, empty: int | None = None) -> Int64s:
        """Return a column of whole numbers.

        Args:
            column: which.
            least: what a number is at least.
            most: what a number is at most.
            empty: what an empty value is; None refuses it.

        Raises:
            TraceError: a value is none, or out of range; the message names the row.
        """
        numbers = []
        for place, text in enumerate(self.columns[column]):
            if not text and empty is not None:
                numbers.append(empty)
                continue
            try:
                number = float(text)
            except ValueError:
                number = float("nan")
            if not isfinite(number) or number != int(number) or not least <= number <= most:
                raise TraceError(
                    f"{self.where(place)}: {column} must be a whole number from {least} to {most}, got {text!r}"
                )
            numbers.append(int(number))
        return np.array(numbers, np.int64)

    def names(self, column: str) -> tuple[str, ...]:
        """Return a column of names, each of which is there once.

        Raises:
            TraceError: one is empty, or there twice; the message names the row.
        """
        first: dict[str, int] = {}
        for place, name in enumerate(self.columns[column]):
            if not name:
                raise TraceError(f"{self.where(place)}: {column} is empty")
            if name in first:
                raise TraceError(f"{self.where(place)}: {column} {name!r} is in row {self.rows[first[name]]}, too")
            first[name] = place
        return tuple(first)


def read_table(
    path: Path, columns: Sequence[str], optional: Sequence[str] = (), *, may_be_empty: bool = False
) -> Table:
    """Read a table; other columns than those asked for are left out, and so are empty rows, and spaces after commas.

    Args:
        path: the table's.
        columns: those that it must have.
        optional: those that it may have; where one is missing its values are empty.
        may_be_empty: whether a file without even a header is a table without rows.

    Raises:
        TraceError: it cannot be read, lacks a column, or a row is not as long as the header.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file, skipinitialspace=True)
            header = next(reader, list(columns) if may_be_empty else [])
            missing = [name for name in columns if name not in header]
            if missing:
                wanted, there = ",".join((*columns, *optional)), repr(",".join(header)[:_TOLD])
                raise TraceError(f"{path}: has no column {missing[0]}: its header is {there}; columns are {wanted}")
            rows = {number: row for number, row in enumerate(reader, 2) if row}
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise TraceError(f"{path}: is no table of comma-separated values: {error}") from None
    for number, row in rows.items():
        if len(row) != len(header):
            raise TraceError(f"{path}: row {number} has {len(row)} values, the header has {len(header)}")
    places = {name: header.index(name) for name in (*columns, *optional) if name in header}
    found = {name: [row[place] for row in rows.values()] for name, place in places.items()}
    return Table(path, {name: [""] * len(rows) for name in optional} | found, tuple(rows))


def write_table(path: Path, header: Sequence[str], columns: Iterable[Iterable[Any]]) -> None:
    """Write a table from its columns."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(zip(*columns, strict=True))
