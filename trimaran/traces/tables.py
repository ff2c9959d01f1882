"""Reading and writing of CSV tables; problems name the file and the row."""

import csv
import zipfile
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime.errors import quoted
from runtime.kubernetes.objects import MAX_AMOUNT
from scoring.arrays import Bools, Int64s
from trimaran.traces.problems import TraceError, TraceProblems, shortened

_MAX_SHOWN = 200  # characters of a header in an error message


@dataclass(frozen=True)
class Table:
    """Columns of a CSV table, as text.

    Attributes:
        path: path of the file.
        columns: values by column.
        rows: row numbers in the file, by index of the value; the header is row 1, and empty rows count.
        problems: where the methods report errors.
        misshapen: indexes of rows that differ in length from the header; their values are empty, and not reported.
        broken: indexes of rows that are unusable: their values may be placeholders.
    """

    path: Path
    columns: Mapping[str, list[str]]
    rows: Sequence[int]
    problems: TraceProblems
    misshapen: frozenset[int] = frozenset()
    broken: set[int] = field(default_factory=set)

    def __getitem__(self, column: str) -> list[str]:
        return self.columns[column]

    @property
    def sound(self) -> Bools:
        """Mask of the usable rows, shape (rows,)."""
        return np.array([index not in self.broken for index in range(len(self.rows))], np.bool_)

    def drop(self, texts: Mapping[int, str]) -> None:
        """Report an error for each of the given row indices, and mark the rows as unusable."""
        self.refuse(texts)
        self.broken.update(texts)

    def refuse(self, texts: Mapping[int, str]) -> None:
        """Report an error for each of the given row indices."""
        self.problems.refuse(*self._located(texts))

    def warn(self, texts: Mapping[int, str]) -> None:
        """Report a warning for each of the given row indices."""
        self.problems.warn(*self._located(texts))

    def whole_numbers(
        self, column: str, *, minimum: int = 0, maximum: int = MAX_AMOUNT, empty: int | None = None
    ) -> Int64s:
        """Return a column of whole numbers; report values that are not whole numbers or are out of range.

        Args:
            column: name of the column.
            minimum: smallest valid number, which stands in for an invalid value.
            maximum: largest valid number.
            empty: number that an empty value stands for; None to refuse empty values.
        """
        numbers, invalid = [], {}
        for index, text in enumerate(self.columns[column]):
            number = _whole(text, minimum, maximum) if text or empty is None else empty
            if number is None and index not in self.misshapen:
                invalid[index] = f"{column} must be a whole number from {minimum} to {maximum}, got {quoted(text)}"
            numbers.append(minimum if number is None else number)
        self.drop(invalid)
        return np.array(numbers, np.int64)

    def names(self, column: str) -> tuple[str, ...]:
        """Return a column of names; report names that are empty or duplicates."""
        first: dict[str, int] = {}
        invalid = {}
        for index, name in enumerate(self.columns[column]):
            if index in self.misshapen:
                continue
            if not name:
                invalid[index] = f"{column} is empty"
            elif first.setdefault(name, index) != index:
                invalid[index] = f"{column} {name!r} is also in row {self.rows[first[name]]}"
        self.drop(invalid)
        return tuple(self.columns[column])

    def _located(self, texts: Mapping[int, str]) -> list[str]:
        """Return messages with file and row."""
        return shortened(self.path, [f"row {self.rows[index]}: {text}" for index, text in texts.items()])


def read_table(
    path: Path,
    columns: Sequence[str],
    optional: Sequence[str] = (),
    *,
    problems: TraceProblems,
    may_be_empty: bool = False,
) -> Table | None:
    """Read a CSV table. Empty rows and spaces after commas are ignored; unknown columns are ignored with a warning.

    Args:
        path: path of the file.
        columns: required columns.
        optional: optional columns; a missing column has empty values.
        problems: where errors are reported: rows that differ in length from the header, unknown columns.
        may_be_empty: accept a file without a header as a table without rows.

    Returns:
        The table; None, with an error reported, if the file cannot be read or a column is missing.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file, skipinitialspace=True)
            header = next(reader, list(columns) if may_be_empty else [])
            rows = {number: row for number, row in enumerate(reader, 2) if row}
    except OSError as error:
        problems.refuse(f"{path}: cannot be read: {error.strerror}")
        return None
    except (UnicodeDecodeError, csv.Error) as error:
        problems.refuse(f"{path}: is not a valid CSV file: {error}")
        return None
    missing = [name for name in columns if name not in header]
    if missing:
        expected, actual = ",".join((*columns, *optional)), repr(",".join(header)[:_MAX_SHOWN])
        problems.refuse(f"{path}: has no column {missing[0]}: its header is {actual}; columns are {expected}")
        return None
    problems.check_names(path, "column", header, (*columns, *optional))
    positions = {name: header.index(name) for name in (*columns, *optional) if name in header}
    lengths = [len(row) for row in rows.values()]
    misshapen = {index: length for index, length in enumerate(lengths) if length != len(header)}
    values = {
        name: ["" if index in misshapen else row[position] for index, row in enumerate(rows.values())]
        for name, position in positions.items()
    }
    empty = {name: [""] * len(rows) for name in optional}
    table = Table(path, empty | values, tuple(rows), problems, frozenset(misshapen))
    table.drop({index: f"has {length} values, the header has {len(header)}" for index, length in misshapen.items()})
    return table


def _whole(text: str, minimum: int, maximum: int) -> int | None:
    """Return the whole number that a text is; None if it is not a whole number in the range."""
    try:
        number = float(text)
    except ValueError:
        return None
    return int(number) if minimum <= number <= maximum and number.is_integer() else None


def write_table(path: Path, header: Sequence[str], columns: Iterable[Iterable[Any]]) -> None:
    """Write a CSV table from its columns."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(zip(*columns, strict=True))


def read_arrays(path: Path, names: Sequence[str], problems: TraceProblems) -> list[NDArray[Any]]:
    """Return the named arrays of an .npz archive.

    Raises:
        TraceError: the file cannot be read, is not an archive of arrays, or lacks an array.
    """
    expected = f"{path}: must be an .npz archive written by numpy.savez, with the arrays {', '.join(names)}"
    try:
        with path.open("rb") as file:
            if not zipfile.is_zipfile(file):  # numpy would read other files as pickles
                raise TraceError(expected)
            file.seek(0)
            with np.load(file, allow_pickle=False) as archive:
                missing = [name for name in names if name not in archive]
                if missing:
                    raise TraceError(f"{expected}: has no array {missing[0]}")
                problems.check_names(path, "array", archive.files, names)
                return [archive[name] for name in names]
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise TraceError(f"{expected}: {error}") from None
