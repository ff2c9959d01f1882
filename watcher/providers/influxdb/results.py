"""Parsers of InfluxDB's responses: JSON of 1.x and annotated CSV of 2.x, with the same result."""

import csv
import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import orjson

from watcher.errors import ProviderAnswerError

_NUMBERS = (int, float)
_NO_TAGS = frozenset({"", "result", "table", "_value", "_time"})


class InfiniteValueError(ProviderAnswerError):
    """InfluxDB 1.x could not encode its response, because a value is infinite."""


@dataclass(slots=True)
class QueryResult:
    """Parsed response to a query.

    Attributes:
        series: the tags of each series, and its numeric columns; ``time`` is in Unix seconds.
        partial: whether InfluxDB reports that rows are missing from the response.
    """

    series: list[tuple[Mapping[str, Any], dict[str, float]]] = field(default_factory=list)
    partial: bool = False


def read_influxql(body: bytes) -> QueryResult:
    """Parse a response of ``/query``.

    Raises:
        InfiniteValueError: a value is infinite, so there is no response.
        ProviderAnswerError: the response is an error, or not a response of ``/query``.
    """
    try:
        document = orjson.loads(body)
    except ValueError:
        if b"unsupported value" in body[:1000]:
            raise InfiniteValueError("a value in the response is infinite") from None
        raise ProviderAnswerError("the response is not JSON; is provider.address right?") from None
    results = document.get("results") if isinstance(document, dict) else None
    if not isinstance(results, list):
        raise ProviderAnswerError(_error_text(document) or "the response has no results; is provider.address right?")
    parsed = QueryResult()
    for result in results:
        if not isinstance(result, dict):
            raise ProviderAnswerError("a result in the response is not an object")
        if "error" in result:
            raise ProviderAnswerError(_error_text(result) or "the query failed")
        series = result.get("series") or []
        if not isinstance(series, list):
            raise ProviderAnswerError("the series in the response are not a list")
        parsed.partial = parsed.partial or bool(result.get("partial"))
        for entry in series:
            parsed.partial = parsed.partial or (isinstance(entry, dict) and bool(entry.get("partial")))
            parsed.series.append(_series(entry))
    return parsed


def read_flux(body: bytes) -> QueryResult:
    """Parse the annotated CSV of ``/api/v2/query``; each named result of the script becomes a column.

    Raises:
        ProviderAnswerError: the response is an error, or not annotated CSV.
    """
    columns_by_tags: dict[tuple[tuple[str, str], ...], dict[str, float]] = {}
    try:
        for row in _records(body.decode("utf-8")):
            if "error" in row and "reference" in row:
                raise ProviderAnswerError(row["error"][:300] or "the query failed")
            if "result" not in row or "_value" not in row:
                raise ProviderAnswerError("the response is not annotated CSV; is provider.address right?")
            tags = tuple((name, text) for name, text in row.items() if name not in _NO_TAGS and text)
            value, at = _number(row["_value"]), _time(row.get("_time", ""))
            if value is not None:
                columns = columns_by_tags.setdefault(tuple(sorted(tags)), {})
                columns[row["result"]] = value
                if at is not None:
                    columns["time"] = at
    except (UnicodeDecodeError, csv.Error):
        raise ProviderAnswerError("the response is not annotated CSV; is provider.address right?") from None
    return QueryResult([(dict(tags), columns) for tags, columns in columns_by_tags.items()])


def _series(series: Any) -> tuple[Mapping[str, Any], dict[str, float]]:
    try:
        tags, columns, rows = series.get("tags") or {}, series["columns"], series["values"]
        row = rows[0] if rows else []
        # type() instead of isinstance(): a boolean is an int, and type() is faster for thousands of values
        numbers = {name: value for name, value in zip(columns, row, strict=True) if type(value) in _NUMBERS}
        return dict(tags), numbers
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        raise ProviderAnswerError("a series in the response has an unexpected shape") from None


def _records(text: str) -> Iterator[dict[str, str]]:
    """Yield the records of all tables in annotated CSV: column name to text, with the table's default values.

    A table begins with annotation rows or after an empty line. The next row has the column names.
    """
    names: list[str] | None = None
    defaults: list[str] = []
    for row in csv.reader(io.StringIO(text, newline="")):
        if not row:
            names, defaults = None, []
        elif row[0].startswith("#"):
            names = None
            if row[0] == "#default":
                defaults = row
        elif names is None:
            names = row
            if "result" not in names and "error" not in names:
                yield {}  # not CSV of InfluxDB, such as a proxy's page
        else:
            defaults_by_name = dict(zip(names, defaults, strict=False))
            yield {
                **defaults_by_name,
                **{name: text for name, text in zip(names, row, strict=False) if text or name not in defaults_by_name},
            }


def _error_text(document: Any) -> str:
    return str(document.get("error") or "")[:300] if isinstance(document, dict) else ""


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _time(text: str) -> float | None:
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None
