"""Tables of comma-separated values at the boundary: what is wrong is refused with the file, and the row."""

import csv
from collections.abc import Iterable, Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np

from scoring.arrays import Int64s
from scoring.objects import MOST


class TraceError(Exception):
    """A trace cannot be read; the message names the file, what is wrong and what to do."""


def read_table(
    path: Path, columns: Sequence[str], optional: Sequence[str] = (), *, may_be_empty: bool = False
) -> dict[str, list[str]]:
    """Return the columns of a table as text, by their names; other columns are left out.

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
            reader = csv.reader(file)
            header = next(reader, list(columns) if may_be_empty else [])
            missing = [name for name in columns if name not in header]
            if missing:
                wanted = ", ".join((*columns, *optional))
                raise TraceError(f"{path}: has no column {missing[0]}; its columns are {wanted}")
            rows = [row for row in reader if row]
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise TraceError(f"{path}: is no table of comma-separated values: {error}") from None
    for number, row in enumerate(rows, 2):
        if len(row) != len(header):
            raise TraceError(f"{path}: row {number} has {len(row)} values, the header has {len(header)}")
    found = {name: header.index(name) for name in (*columns, *optional) if name in header}
    table = {name: [row[place] for row in rows] for name, place in found.items()}
    return {name: [""] * len(rows) for name in optional} | table


def whole_numbers(
    path: Path,
    table: Mapping[str, list[str]],
    column: str,
    *,
    least: int = 0,
    most: int = MOST,
    empty: int | None = None,
) -> Int64s:
    """Return a column of whole numbers.

    Args:
        path: the table's, for what is refused.
        table: its columns.
        column: which.
        least: what a number is at least.
        most: what a number is at most.
        empty: what an empty value is; None refuses it.

    Raises:
        TraceError: a value is none, or out of range; the message names the row.
    """
    numbers = []
    for row, text in enumerate(table[column], 2):
        if not text and empty is not None:
            numbers.append(empty)
            continue
        try:
            number = float(text)
        except ValueError:
            number = float("nan")
        if not isfinite(number) or number != int(number) or not least <= number <= most:
            raise TraceError(f"{path}: row {row}: {column} must be a whole number from {least} to {most}, got {text!r}")
        numbers.append(int(number))
    return np.array(numbers, np.int64)


def write_table(path: Path, header: Sequence[str], columns: Iterable[Iterable[Any]]) -> None:
    """Write a table from its columns."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(zip(*columns, strict=True))
