"""History of pods from a Prometheus, minute by minute; long ranges are queried in spans of bounded length."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from runtime import masking
from runtime.http.errors import TooLarge
from runtime.http.failures import Failure, FailureKind, describe
from runtime.http.session import UnexpectedResponse
from runtime.kubernetes.api import REQUEST_FAILURES
from runtime.kubernetes.objects import MAX_AMOUNT
from scoring.arrays import Float64s
from trimaran.traces.recording.prometheus import TIMEOUT_SECONDS, Prometheus

STEP_SECONDS = 60
_SPAN_MINUTES, _MIN_SPAN_MINUTES = 120, 5
_MAX_VALUES = 50_000_000  # values of a response, missing ones included: 400 MB
_MAX_WARNINGS = 10
_INVALID = (LookupError, TypeError, ValueError, OverflowError)
_HINTS = {
    FailureKind.NOT_JSON: "check the address",
    FailureKind.UNEXPECTED_RESPONSE: "check the address",
    FailureKind.REDIRECT: "check the address",
    FailureKind.UNREACHABLE: "check the address",
    FailureKind.UNTRUSTED_CERTIFICATE: "see --ca-file",
    FailureKind.TIMEOUT: "see --minutes-at-once",
    FailureKind.TOO_LARGE: "see --minutes-at-once",
}

Labels = Mapping[str, str]


class RecordingError(Exception):
    """Error of a recording; the message names the source and the remedy."""


class HistoryError(RecordingError):
    """Error of a query to the Prometheus; the message names its address, the reason and the remedy."""


class NoSeries(HistoryError):
    """The Prometheus has no use of containers in the time."""


@dataclass(frozen=True, eq=False)
class Span:
    """Values of series in a range of minutes.

    Attributes:
        start: first minute.
        end: minute after the last one.
        series: labels, and one value per minute, shape (end - start,); NaN if a value is missing.
    """

    start: int
    end: int
    series: list[tuple[Labels, Float64s]]


class PrometheusHistory:
    """Client of a Prometheus, or of another server with its query API, for a fixed time range.

    Args:
        prometheus: the server.
        begin: start of minute 0, Unix seconds.
        minutes: length of the range.
        span_minutes: length of a query's range; halved when the server refuses a query as too large.

    Attributes:
        span_minutes: length of a query's range.
        warnings: the server's warnings about answers that may be incomplete.
    """

    def __init__(self, prometheus: Prometheus, begin: int, minutes: int, span_minutes: int = _SPAN_MINUTES) -> None:
        self.begin, self.minutes = begin, minutes
        self.warnings: dict[str, None] = {}
        self._prometheus, self.span_minutes = prometheus, span_minutes

    def spans(self, promql: str) -> Iterator[Span]:
        """Yield the values of a PromQL expression, one span of minutes after another: the last value of each minute.

        Raises:
            HistoryError: the query failed.
        """
        start, length = 0, self.span_minutes
        while start < self.minutes:
            end = min(start + length, self.minutes)
            times = {"start": self._at(start + 1), "end": self._at(end), "step": STEP_SECONDS}
            try:
                result = self._ask("query_range", promql, times)
                if len(result) * (end - start) > _MAX_VALUES:
                    raise TooLarge(f"the answer has {len(result)} series of {end - start} minutes")
            except REQUEST_FAILURES as error:
                failure = describe(error)
                if not _is_too_large(failure) or length <= _MIN_SPAN_MINUTES:
                    raise self._failed(failure) from error
                length = max(length // 2, _MIN_SPAN_MINUTES)
                continue
            yield Span(start, end, [(item["metric"], self._values(item, start, end)) for item in result])
            start = end

    def latest(self, promql: Callable[[str], str]) -> Iterator[tuple[Labels, float]]:
        """Yield labels and value of each series at the end of each span; a series may occur in several spans.

        Values that are not finite, negative or too large are left out.

        Args:
            promql: function that returns the PromQL expression for a lookback, such as ``120m``.

        Raises:
            HistoryError: a query failed.
        """
        for start in range(0, self.minutes, self.span_minutes):
            end = min(start + self.span_minutes, self.minutes)
            try:
                result = self._ask("query", promql(f"{end - start}m"), {"time": self._at(end)})
                series = [(item["metric"], float(item["value"][1])) for item in result]
            except REQUEST_FAILURES as error:
                raise self._failed(describe(error)) from error
            except _INVALID:
                raise self._failed(describe(UnexpectedResponse("the answer has no valid values"))) from None
            yield from ((labels, value) for labels, value in series if 0 <= value <= MAX_AMOUNT)

    def _at(self, minute: int) -> int:
        return self.begin + minute * STEP_SECONDS

    def _ask(self, route: str, promql: str, times: Mapping[str, Any]) -> list[dict[str, Any]]:
        body = self._prometheus.get(route, {"query": promql, "timeout": f"{TIMEOUT_SECONDS:g}s", **times})
        result = body["data"]["result"] if isinstance(body, dict) and isinstance(body.get("data"), dict) else None
        if not isinstance(result, list) or not all(map(_is_series, result)):
            raise UnexpectedResponse("the answer has no list of series with printable labels")
        warnings = body.get("warnings")
        for warning in warnings if isinstance(warnings, list) else ():
            if len(self.warnings) < _MAX_WARNINGS:
                self.warnings[masking.to_line(warning, 300)] = None
        return result

    def _values(self, item: Mapping[str, Any], start: int, end: int) -> Float64s:
        values = np.full(end - start, math.nan)
        first = self._at(start + 1)
        try:
            for at, text in item["values"]:
                minute = round((float(at) - first) / STEP_SECONDS)
                if minute < 0:
                    raise ValueError("a time before the range")
                values[minute] = float(text)
        except _INVALID:
            raise self._failed(describe(UnexpectedResponse("the answer has no valid values"))) from None
        values[~(np.abs(values) <= MAX_AMOUNT)] = math.nan
        return values

    def _failed(self, failure: Failure) -> HistoryError:
        hint = self._prometheus.hints.get(failure.status) or _HINTS.get(failure.kind)
        return HistoryError(f"{self._prometheus.name}: {failure.reason}" + (f"; {hint}" if hint else ""))


def _is_series(item: Any) -> bool:
    """Return whether an item of an answer has labels that can be written to a trace and to a terminal."""
    labels = item.get("metric") if isinstance(item, dict) else None
    return isinstance(labels, dict) and all(isinstance(text, str) and text.isprintable() for text in labels.values())


def _is_too_large(failure: Failure) -> bool:
    """Return whether a query failed because its range is too long, so that a shorter range may succeed.

    Prometheus answers 422 if a query needs too many samples, and 503 after a timeout.
    """
    return failure.kind in {FailureKind.TIMEOUT, FailureKind.TOO_LARGE} or failure.status in {422, 503, 504}
