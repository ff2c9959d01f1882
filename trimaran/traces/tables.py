"""Reading and writing of CSV tables; errors name the file and the row."""

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np

from runtime.kubernetes.objects import MAX_AMOUNT
from scoring.arrays import Int64s

_MAX_SHOWN = 200  # characters of a header in an error message


class TraceError(Exception):
    """Error in a trace's files; the message names the file, the problem and the remedy."""


@dataclass(frozen=True)
class Table:
    """Columns of a CSV table, as text.

    Attributes:
        path: path of the file.
        columns: values by column.
        rows: row numbers in the file, by index of the value; the header is row 1, and empty rows count.
    """

    path: Path
    columns: Mapping[str, list[str]]
    rows: Sequence[int]

    def __getitem__(self, column: str) -> list[str]:
        return self.columns[column]

    def location(self, index: int) -> str:
        """Return file and row of a value, for error messages."""
        return f"{self.path}: row {self.rows[index]}"

    def whole_numbers(
        self, column: str, *, minimum: int = 0, maximum: int = MAX_AMOUNT, empty: int | None = None
    ) -> Int64s:
        """Return a column of whole numbers.

        Args:
            column: name of the column.
            minimum: smallest valid number.
            maximum: largest valid number.
            empty: number that an empty value stands for; None to refuse empty values.

        Raises:
            TraceError: a value is not a whole number or is out of range; the message names the row.
        """
        numbers = []
        for index, text in enumerate(self.columns[column]):
            if not text and empty is not None:
                numbers.append(empty)
                continue
            try:
                number = float(text)
            except ValueError:
                number = float("nan")
            if not isfinite(number) or number != int(number) or not minimum <= number <= maximum:
                raise TraceError(
                    f"{self.location(index)}: {column} must be a whole number from {minimum} to {maximum}, got {text!r}"
                )
            numbers.append(int(number))
        return np.array(numbers, np.int64)

    def names(self, column: str) -> tuple[str, ...]:
        """Return a column of unique names.

        Raises:
            TraceError: a name is empty or a duplicate; the message names the row.
        """
        indexes: dict[str, int] = {}
        for index, name in enumerate(self.columns[column]):
            if not name:
                raise TraceError(f"{self.location(index)}: {column} is empty")
            if name in indexes:
                raise TraceError(f"{self.location(index)}: {column} {name!r} is also in row {self.rows[indexes[name]]}")
            indexes[name] = index
        return tuple(indexes)


def read_table(
    path: Path, columns: Sequence[str], optional: Sequence[str] = (), *, may_be_empty: bool = False
) -> Table:
    """Read a CSV table. Other columns, empty rows and spaces after commas are ignored.

    Args:
        path: path of the file.
        columns: required columns.
        optional: optional columns; a missing column has empty values.
        may_be_empty: accept a file without a header as a table without rows.

    Raises:
        TraceError: the file cannot be read, a column is missing, or a row and the header differ in length.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file, skipinitialspace=True)
            header = next(reader, list(columns) if may_be_empty else [])
            missing = [name for name in columns if name not in header]
            if missing:
                expected, actual = ",".join((*columns, *optional)), repr(",".join(header)[:_MAX_SHOWN])
                raise TraceError(f"{path}: has no column {missing[0]}: its header is {actual}; columns are {expected}")
            rows = {number: row for number, row in enumerate(reader, 2) if row}
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise TraceError(f"{path}: is not a valid CSV file: {error}") from None
    for number, row in rows.items():
        if len(row) != len(header):
            raise TraceError(f"{path}: row {number} has {len(row)} values, the header has {len(header)}")
    positions = {name: header.index(name) for name in (*columns, *optional) if name in header}
    values = {name: [row[position] for row in rows.values()] for name, position in positions.items()}
    return Table(path, {name: [""] * len(rows) for name in optional} | values, tuple(rows))


def write_table(path: Path, header: Sequence[str], columns: Iterable[Iterable[Any]]) -> None:
    """Write a CSV table from its columns."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(zip(*columns, strict=True))
