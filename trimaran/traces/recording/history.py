"""The history of pods in a Prometheus, minute by minute, asked for in spans that are bounded, one after the other."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import requests

from runtime import masking
from runtime.http.failures import Failure, Trouble, describe
from runtime.http.session import BoundedSession, UnusableAnswer
from runtime.kubernetes.credentials import UnusableToken
from runtime.kubernetes.objects import MOST
from scoring.arrays import Float64s

STEP_SECONDS = 60
_SPAN_MINUTES, _LEAST_MINUTES = 120, 5
_TIMEOUT_SECONDS = 60.0
_FAILED = (requests.RequestException, UnusableToken, TimeoutError)
_WAYS_OUT = {
    Trouble.NOT_JSON: "is the address right?",
    Trouble.UNUSABLE: "is the address right?",
    Trouble.REDIRECT: "is the address right?",
    Trouble.UNREACHABLE: "is the address right?",
    Trouble.UNTRUSTED: "see --ca-file",
    Trouble.LATE: "see --minutes-at-once",
    Trouble.TOO_LARGE: "see --minutes-at-once",
}
_STATUS_WAYS_OUT = {
    401: "see --token-file and --header",
    403: "see --token-file and --header",
    404: "is the address right?",
}

Labels = Mapping[str, str]


class HistoryError(Exception):
    """The history cannot be read; the message says where, why, and what to do."""


@dataclass(frozen=True, eq=False)
class Span:
    """What series had in some minutes.

    Attributes:
        start: the first minute.
        end: the minute after the last.
        series: labels and values, a value a minute, not-a-number where there is none; shape (end - start,).
    """

    start: int
    end: int
    series: list[tuple[Labels, Float64s]]


class History:
    """A Prometheus, or what speaks its query API, and the time that is asked about.

    Args:
        session: to ask by.
        address: of the Prometheus.
        begin: where minute 0 begins, unix seconds.
        minutes: how many there are.
        span_minutes: how many are asked for at once, at first: fewer where that is too much for the server.

    Attributes:
        warnings: what the server said of answers that may be partial.
    """

    def __init__(
        self, session: BoundedSession, address: str, begin: int, minutes: int, span_minutes: int = _SPAN_MINUTES
    ) -> None:
        self.begin, self.minutes = begin, minutes
        self.warnings: dict[str, None] = {}
        self._session, self._address, self._span_minutes = session, address.rstrip("/"), span_minutes

    def spans(self, promql: str) -> Iterator[Span]:
        """Yield the history of an expression, span by span. A minute's value is that at its end.

        Raises:
            HistoryError: it cannot be read.
        """
        start, length = 0, self._span_minutes
        while start < self.minutes:
            end = min(start + length, self.minutes)
            times = {"start": self._at(start + 1), "end": self._at(end), "step": STEP_SECONDS}
            try:
                result = self._ask("query_range", promql, times)
            except _FAILED as error:
                failure = describe(error)
                if not _is_too_much(failure) or length <= _LEAST_MINUTES:
                    raise self._failed(failure) from error
                length = max(length // 2, _LEAST_MINUTES)
                continue
            yield Span(start, end, [(item["metric"], self._values(item, start, end)) for item in result])
            start = end

    def latest(self, promql: Callable[[str], str]) -> Iterator[tuple[Labels, float]]:
        """Yield the labels and value of each series, at the end of each span; one that is in several comes again.

        Args:
            promql: makes the expression, of how long to look back, such as ``120m``.

        Raises:
            HistoryError: it cannot be read.
        """
        for start in range(0, self.minutes, self._span_minutes):
            end = min(start + self._span_minutes, self.minutes)
            try:
                result = self._ask("query", promql(f"{end - start}m"), {"time": self._at(end)})
                found = [(item["metric"], float(item["value"][1])) for item in result]
            except _FAILED as error:
                raise self._failed(describe(error)) from error
            except (LookupError, TypeError, ValueError):
                raise self._failed(describe(UnusableAnswer("it answers with no values"))) from None
            yield from found

    def _at(self, minute: int) -> int:
        return self.begin + minute * STEP_SECONDS

    def _ask(self, route: str, promql: str, times: Mapping[str, Any]) -> list[dict[str, Any]]:
        response = self._session.get(
            f"{self._address}/api/v1/{route}", params={"query": promql, "timeout": f"{_TIMEOUT_SECONDS:g}s", **times},
            timeout=_TIMEOUT_SECONDS,
        )  # fmt: skip
        response.raise_for_status()
        body = response.json()
        result = body["data"]["result"] if isinstance(body, dict) and isinstance(body.get("data"), dict) else None
        if not isinstance(result, list) or not all(
            isinstance(i, dict) and isinstance(i.get("metric"), dict) for i in result
        ):
            raise UnusableAnswer("it answers with no list of series")
        self.warnings.update(dict.fromkeys(masking.said(each, 300) for each in body.get("warnings") or ()))
        return result

    def _values(self, item: Mapping[str, Any], start: int, end: int) -> Float64s:
        values = np.full(end - start, math.nan)
        first = self._at(start + 1)
        try:
            for at, text in item["values"]:
                values[round((float(at) - first) / STEP_SECONDS)] = float(text)
        except (LookupError, TypeError, ValueError):
            raise self._failed(describe(UnusableAnswer("it answers with no values"))) from None
        values[~(np.abs(values) <= MOST)] = math.nan
        return values

    def _failed(self, failure: Failure) -> HistoryError:
        way_out = _STATUS_WAYS_OUT.get(failure.status) or _WAYS_OUT.get(failure.trouble)
        where = masking.without_credentials(self._address)
        return HistoryError(f"Prometheus at {where}: {failure.reason}" + (f"; {way_out}" if way_out else ""))


def _is_too_much(failure: Failure) -> bool:
    """Say whether less might be answered: 422 is what Prometheus says of too many samples, 503 of a timeout."""
    return failure.trouble in {Trouble.LATE, Trouble.TOO_LARGE} or failure.status in {422, 503, 504}
