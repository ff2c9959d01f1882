"""InfluxDB's answers: JSON of 1.x and annotated CSV of 2.x, both read into the same rows."""

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


class Unwritable(ProviderAnswerError):
    """InfluxDB 1.x could not write its answer, because a value in it is infinite."""


@dataclass(slots=True)
class QueryResult:
    """What a query brought.

    Attributes:
        series: the tags of each series, and its columns that are numbers; ``time`` is in unix seconds.
        partial: whether InfluxDB says that this is not all.
    """

    series: list[tuple[Mapping[str, Any], dict[str, float]]] = field(default_factory=list)
    partial: bool = False


def read_influxql(body: bytes) -> QueryResult:
    """Read what ``/query`` answers.

    Raises:
        Unwritable: a value is infinite, so that there is no answer.
        ProviderAnswerError: it is an error, or nothing that ``/query`` answers.
    """
    try:
        document = orjson.loads(body)
    except ValueError:
        if b"unsupported value" in body[:1000]:
            raise Unwritable("a value in the answer is infinite") from None
        raise ProviderAnswerError("the answer is not JSON; is provider.address right?") from None
    results = document.get("results") if isinstance(document, dict) else None
    if not isinstance(results, list):
        raise ProviderAnswerError(_said(document) or "the answer has no results; is provider.address right?")
    answer = QueryResult()
    for result in results:
        if not isinstance(result, dict):
            raise ProviderAnswerError("a result in the answer is no object")
        if "error" in result:
            raise ProviderAnswerError(_said(result) or "the query failed")
        series = result.get("series") or []
        if not isinstance(series, list):
            raise ProviderAnswerError("the series in the answer are no list")
        answer.partial = answer.partial or bool(result.get("partial"))
        for each in series:
            answer.partial = answer.partial or (isinstance(each, dict) and bool(each.get("partial")))
            answer.series.append(_series(each))
    return answer


def read_flux(body: bytes) -> QueryResult:
    """Read the annotated CSV of ``/api/v2/query``; each of its results is a column.

    Raises:
        ProviderAnswerError: it is an error, or no annotated CSV.
    """
    found: dict[tuple[tuple[str, str], ...], dict[str, float]] = {}
    try:
        for row in _records(body.decode("utf-8")):
            if "error" in row and "reference" in row:
                raise ProviderAnswerError(row["error"][:300] or "the query failed")
            if "result" not in row or "_value" not in row:
                raise ProviderAnswerError("the answer is no annotated CSV; is provider.address right?")
            tags = tuple((name, word) for name, word in row.items() if name not in _NO_TAGS and word)
            value, at = _number(row["_value"]), _time(row.get("_time", ""))
            if value is not None:
                columns = found.setdefault(tuple(sorted(tags)), {})
                columns[row["result"]] = value
                if at is not None:
                    columns["time"] = at
    except (UnicodeDecodeError, csv.Error):
        raise ProviderAnswerError("the answer is no annotated CSV; is provider.address right?") from None
    return QueryResult([(dict(tags), columns) for tags, columns in found.items()])


def _series(series: Any) -> tuple[Mapping[str, Any], dict[str, float]]:
    try:
        tags, columns, rows = series.get("tags") or {}, series["columns"], series["values"]
        row = rows[0] if rows else []
        # type(), as a boolean is an int, and as there are thousands of these
        numbers = {name: value for name, value in zip(columns, row, strict=True) if type(value) in _NUMBERS}
        return dict(tags), numbers
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        raise ProviderAnswerError("a series in the answer has not the shape of one") from None


def _records(text: str) -> Iterator[dict[str, str]]:
    """Yield each record of each table, by column, defaults filled in.

    A table begins with annotations or after an empty line; then comes the row of names.
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
                yield {}  # a page of something else
        else:
            given = dict(zip(names, defaults, strict=False))
            yield {**given, **{name: word for name, word in zip(names, row, strict=False) if word or name not in given}}


def _said(document: Any) -> str:
    return str(document.get("error") or "")[:300] if isinstance(document, dict) else ""


def _number(word: str) -> float | None:
    try:
        return float(word)
    except ValueError:
        return None


def _time(word: str) -> float | None:
    try:
        return datetime.fromisoformat(word).timestamp()
    except ValueError:
        return None
