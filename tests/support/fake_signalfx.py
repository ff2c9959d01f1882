"""A fake of the two SignalFx endpoints, with series in memory.

Checked against: the reference of "Retrieve metric time series" (parameters, the four resolutions, averages of gauges,
at most 10,000 series); the source of the package signalfx 1.1.16 (path, query in the address, default limit of 50,
results with their count); load-watcher's recorded responses (format of both responses, points at whole steps). The
behavior beyond the limit is a guess. Not checked against the service itself.

NaN and infinite values are written as Python's json writes them; the service would not write them.
"""

import fnmatch
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, unquote_plus, urlsplit

import numpy as np
from support.servers import reply, serving

RESOLUTIONS = {1_000, 60_000, 300_000, 3_600_000}
MOST = 10_000


@dataclass
class Series:
    """A metric time series: id, metric, dimensions, values, and times in Unix seconds."""

    id: str
    metric: str
    dimensions: dict[str, str]
    times: np.ndarray
    values: np.ndarray


@dataclass
class FakeSignalFx:
    """The fake service. Its data and its faults may change while it runs.

    Attributes:
        series: stored series.
        token: the only accepted token.
        fail: part of a path or query to the status of the error response.
        body: path to the response body that replaces the computed one.
        page: largest number of results in one page of metadata, regardless of the requested limit.
        errors: value of ``errors`` in the response with points.
        broken: hosts whose points are no list in a response.
        requests: path and query parameters of every request.
    """

    series: list[Series] = field(default_factory=list)
    token: str = "right-token"
    fail: dict[str, int] = field(default_factory=dict)
    body: dict[str, Any] = field(default_factory=dict)
    page: int = MOST
    errors: list[str] = field(default_factory=list)
    broken: frozenset[str] = frozenset()
    requests: list[tuple[str, dict[str, str]]] = field(default_factory=list)

    def count(self, path: str) -> int:
        return sum(1 for requested, _ in self.requests if requested == path)

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        parts = urlsplit(handler.path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        self.requests.append((parts.path, query))
        failing = [status for part, status in self.fail.items() if part in unquote_plus(handler.path)]
        if failing:
            status = failing[0]
            reply(handler, {"code": status, "message": "told to fail"}, status)
        elif handler.headers.get("X-SF-Token") != self.token:
            reply(handler, {"code": 401, "message": f"no such token: {handler.headers.get('X-SF-Token')}"}, 401)
        elif parts.path in self.body:
            reply(handler, json.dumps(self.body[parts.path]), Content_Type="application/json")
        elif parts.path == "/v2/metrictimeseries":
            self._metadata(handler, query)
        elif parts.path == "/v1/timeserieswindow":
            self._points(handler, query)
        else:
            reply(handler, {"code": 404, "message": "no such path"}, 404)

    def _metadata(self, handler: BaseHTTPRequestHandler, query: dict[str, str]) -> None:
        offset, limit = int(query.get("offset", 0)), int(query.get("limit", 50))
        if offset + limit > MOST and offset >= MOST:
            reply(handler, {"code": 400, "message": "the result window is too large"}, 400)
            return
        matching = [each for each in self.series if matches(query["query"], each)]
        results = [
            {
                "active": True, "created": 1614534848000, "creator": None, "id": each.id, "lastUpdated": 0,
                "lastUpdatedBy": None, "metric": each.metric, "dimensions": {**each.dimensions, "sf_metric": None},
            }
            for each in matching[offset : offset + min(limit, self.page)]
        ]  # fmt: skip
        body = {"count": len(matching), "partialCount": False, "results": results}
        reply(handler, json.dumps(body), Content_Type="application/json")

    def _points(self, handler: BaseHTTPRequestHandler, query: dict[str, str]) -> None:
        start, end, resolution = int(query["startMs"]), int(query["endMs"]), int(query.get("resolution", 1000))
        if resolution not in RESOLUTIONS:
            reply(handler, {"code": 400, "message": f"no such resolution: {resolution}"}, 400)
            return
        data: dict[str, Any] = {}
        for each in [each for each in self.series if matches(query["query"], each)][:MOST]:
            steps: dict[int, list[float]] = {}
            for at, value in zip(each.times.tolist(), each.values.tolist(), strict=True):
                steps.setdefault(int(at * 1000) // resolution * resolution, []).append(value)
            points = [[at, sum(some) / len(some)] for at, some in sorted(steps.items()) if start <= at <= end]
            if points:
                data[each.id] = "much" if each.dimensions.get("host") in self.broken else points
        reply(handler, json.dumps({"data": data, "errors": self.errors}), Content_Type="application/json")


def matches(query: str, series: Series) -> bool:
    """Return whether a series matches a query of ``key:value`` terms joined by AND, or by OR within parentheses.

    ``*`` is a wildcard if unquoted.
    """
    for term in query.split(" AND "):
        if term.startswith("("):
            if not any(matches(option, series) for option in term.strip("()").split(" OR ")):
                return False
            continue
        key, _, wanted = term.partition(":")
        value = series.metric if key == "sf_metric" else series.dimensions.get(key)
        quoted = wanted.startswith('"')
        if value is None or not (value == wanted.strip('"') if quoted else fnmatch.fnmatchcase(value, wanted)):
            return False
    return True


@contextmanager
def running(fake: FakeSignalFx) -> Iterator[str]:
    """Run a server for the fake; yield its address."""
    with serving(fake.answer) as server:
        yield server.url
