"""A fake of the two InfluxDB 2.x routes for queries, ``GET /ping`` and ``POST /api/v2/query``, with samples in memory.

Written from InfluxData's documentation: the API's pages on query and ping (status 204, ``X-Influxdb-Version``), the
pages on annotated CSV (annotations, one header per schema, an empty line between results, an error as a table), on
Flux's lexical elements (escapes, ``${`` in strings), and on ``range``, ``filter``, ``derivative``, ``mean``,
``stddev``, ``min``, ``max``, ``quantile``, ``count``, ``last`` (which keeps ``_time``) and ``drop`` (which must not
name a missing column). Checked against influxdb-client's ``flux_csv_parser``, which reads this format, and its
``query_api``, which sends this request. The fake accepts only scripts of one form and refuses all others, so that it
never accepts invalid Flux. Not checked against a real 2.x server.
"""

import gzip
import json
import math
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np
from support.servers import run_server

_STRING = r'"(?:[^"\\$]|\\["\\nrt$]|\$(?!\{))*"'
_TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?Z"
_CONDITION = rf"r\[{_STRING}\] == {_STRING}"
_DATA = re.compile(
    rf"data = from\(bucket: (?P<bucket>{_STRING})\)"
    rf"\s*\|> range\(start: (?P<start>{_TIME}), stop: (?P<stop>{_TIME})\)"
    rf"\s*\|> filter\(fn: \(r\) => (?P<conditions>{_CONDITION}(?: and {_CONDITION})*)\)"
    r"(?P<rate>\s*\|> derivative\(unit: 1s, nonNegative: true\))?"
)
_RESULT = re.compile(
    r"data \|> (?P<call>[a-z]+\([^()]*\))"
    r" \|> drop\(fn: \(column\) => column =~ /\^_\((?P<dropped>[a-z|]+)\)\$/\)"
    rf" \|> yield\(name: (?P<name>{_STRING})\)"
)
_CALLS: dict[str, Callable[[np.ndarray], float]] = {
    "mean()": np.mean,
    'stddev(mode: "population")': np.std,
    "min()": np.min,
    "max()": np.max,
    "count()": len,
    "last()": lambda values: values[-1],
}
_QUANTILE = re.compile(r'quantile\(q: (?P<q>0?\.\d+), method: "exact_mean"\)')


@dataclass
class StoredSeries:
    """A series: one field of one measurement with one set of tags."""

    measurement: str
    field: str
    tags: dict[str, str]
    times: np.ndarray
    values: np.ndarray


@dataclass
class FakeInfluxDb2:
    """A server with one organization, one bucket and one token. ``scripts`` records the received scripts.

    Scripts that contain ``failing_for`` fail with the message ``failing``.
    """

    url: str
    organization: str = "acme"
    bucket: str = "telegraf"
    token: str = "right-token"
    version: str | None = "v2.7.1"
    failing: str = ""
    failing_for: str = ""
    series: list[StoredSeries] = field(default_factory=list)
    scripts: list[str] = field(default_factory=list)
    authorizations: list[str] = field(default_factory=list)

    def answer(self, query: dict[str, list[str]], authorization: str, body: bytes) -> tuple[int, bytes]:
        """Return the status and body of the API's response to a query."""
        self.authorizations.append(authorization)
        if authorization != f"Token {self.token}":
            return _problem(401, "unauthorized", "unauthorized access")
        organization = query.get("org", [""])[0]
        if organization != self.organization:
            return _problem(404, "not found", f'organization name "{organization}" not found')
        request = json.loads(body)
        assert request["type"] == "flux"
        assert set(request["dialect"]["annotations"]) <= {"datatype", "group", "default"}
        self.scripts.append(request["query"])
        first, *others = re.split(r"\n(?=data \|>)", request["query"])
        data, results = _DATA.fullmatch(first), [_RESULT.fullmatch(other) for other in others]
        if data is None or not results or None in results:
            return _problem(400, "invalid", "compilation failed: the fake does not support this script")
        if _unquoted(data["bucket"]) != self.bucket:
            message = f'failed to initialize execute state: could not find bucket "{_unquoted(data["bucket"])}"'
            return _problem(404, "not found", message)
        if self.failing and self.failing_for in request["query"]:
            header = "#datatype,string,string\r\n#group,true,true\r\n#default,,\r\n,error,reference\r\n"
            return 200, f"{header},{self.failing},897\r\n".encode()
        groups = list(self._selected(data))
        texts = [_table(result, groups) for result in results if result is not None]
        return 200, "".join(f"{text}\r\n" for text in texts if text).encode() or b"\r\n"

    def _selected(self, data: re.Match[str]) -> Iterator[tuple[dict[str, str], np.ndarray, int]]:
        wanted = {}
        for condition in re.findall(_CONDITION, data["conditions"]):
            left, right = re.findall(_STRING, condition)
            wanted[_unquoted(left)] = _unquoted(right)
        start, stop = _nanoseconds(data["start"]), _nanoseconds(data["stop"])
        for each in self.series:
            row = {"_measurement": each.measurement, "_field": each.field, **each.tags}
            if any(row.get(name) != word for name, word in wanted.items()):
                continue
            inside = (each.times * 10**9 >= start) & (each.times * 10**9 < stop)
            values, times = each.values[inside], each.times[inside]
            if data["rate"] and len(values):
                rises, seconds = np.diff(values), np.diff(times)
                values = np.where(rises < 0, values[1:], rises) / seconds
            if len(values):
                yield each.tags, values, int(times[-1])


def _table(result: re.Match[str], groups: list[tuple[dict[str, str], np.ndarray, int]]) -> str:
    timed = result["call"] == "last()"
    dropped = {"start", "stop", "field", "measurement"} | (set() if timed else {"time"})
    assert set(result["dropped"].split("|")) == dropped
    quantile = _QUANTILE.fullmatch(result["call"])
    lines: list[str] = []
    names: list[str] = []
    for number, (tags, values, newest) in enumerate(groups):
        with np.errstate(all="ignore"):
            value = np.quantile(values, float(quantile["q"])) if quantile else _CALLS[result["call"]](values)
        if not lines or names != sorted(tags):
            names = sorted(tags)
            kinds = ["dateTime:RFC3339"] * timed + ["long" if isinstance(value, int) else "double"]
            columns = ["_time"] * timed + ["_value"]
            lines += [""] if lines else []
            lines.append("#datatype,string,long," + ",".join([*("string" for _ in names), *kinds]))
            lines.append("#group,false,false," + ",".join([*("true" for _ in names), *("false" for _ in columns)]))
            lines.append(f"#default,{_unquoted(result['name'])},," + "," * (len(names) + len(columns) - 1))
            lines.append(",result,table," + ",".join(map(_csv, [*names, *columns])))
        at = [f"{datetime.fromtimestamp(newest, UTC):%Y-%m-%dT%H:%M:%SZ}"] * timed
        lines.append(f",,{number}," + ",".join([*(_csv(tags[name]) for name in names), *at, _number(value)]))
    return "\r\n".join(lines) + "\r\n" if lines else ""


def _number(value: float) -> str:
    if isinstance(value, int):
        return str(value)
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else f"{'+' if value > 0 else '-'}Inf"
    return np.format_float_positional(value, trim="-")


def _csv(word: str) -> str:
    return '"' + word.replace('"', '""') + '"' if re.search(r'[",\r\n]', word) else word


def _unquoted(literal: str) -> str:
    escapes = {"n": "\n", "r": "\r", "t": "\t"}
    return re.sub(r"\\(.)", lambda match: escapes.get(match[1], match[1]), literal[1:-1])


def _nanoseconds(literal: str) -> int:
    seconds, _, fraction = literal.removesuffix("Z").partition(".")
    at = datetime.strptime(seconds, "%Y-%m-%dT%H:%M:%S").replace(tzinfo=UTC)
    return int(at.timestamp()) * 10**9 + int(fraction.ljust(9, "0") or 0)


def _problem(status: int, code: str, message: str) -> tuple[int, bytes]:
    return status, json.dumps({"code": code, "message": message}).encode()


@contextmanager
def run_influxdb2() -> Iterator[FakeInfluxDb2]:
    """Run the fake on loopback; yield it."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            assert self.path == "/ping"
            version = {"X-Influxdb-Version": fake.version, "X-Influxdb-Build": "OSS"} if fake.version else {}
            self._send(204, b"", **version)

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            parts = urlsplit(self.path)
            assert parts.path == "/api/v2/query"
            status, text = fake.answer(parse_qs(parts.query), self.headers.get("Authorization", ""), body)
            kind = "text/csv; charset=utf-8" if status == 200 else "application/json; charset=utf-8"
            if "gzip" in self.headers.get("Accept-Encoding", ""):
                self._send(status, gzip.compress(text), **{"Content-Type": kind, "Content-Encoding": "gzip"})
            else:
                self._send(status, text, **{"Content-Type": kind})

        def _send(self, status: int, body: bytes, **headers: str) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            if status != 204:
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_arguments: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    fake = FakeInfluxDb2(f"http://127.0.0.1:{server.server_port}")
    with run_server(server):
        yield fake
