"""A fake of two Datadog endpoints, v2 timeseries queries and API key validation, with series in memory.

Checked against: the reference of "Query timeseries data across multiple products" (request, response, permission) and
of "Rate limits" (headers); the package datadog-api-client 2.62, whose client reads the fake's responses and whose
source documents the rest (``from`` inclusive and ``to`` exclusive, values that may be null, errors as text next to the
data and as a list with statuses of 400 and above); load-watcher's recorded responses (points at whole minutes). Not
checked against the service itself.

NaN and infinite values are written as Python's json writes them; the service would not write them.
"""

import fnmatch
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

import numpy as np
from support.servers import reply, serving

_QUERY = re.compile(r"(avg|max|min|sum):([\w.]+)\{([^}]+)\} by \{([\w.,/-]+)\}\.rollup\((avg|min|max), (\d+)\)")


@dataclass
class Series:
    """One host's series of one metric: tags, values, and times in Unix seconds."""

    metric: str
    tags: dict[str, str]
    times: np.ndarray
    values: np.ndarray


@dataclass
class FakeDatadog:
    """The fake service. Its data and its faults may change while it runs.

    Attributes:
        series: stored series.
        api_key: the only accepted API key.
        app_key: the only accepted application key.
        fail: part of a query or path to the status and headers of the error response.
        valid: value of ``valid`` in the response of the key validation.
        body: response to every query instead of the computed one; None for none.
        errors: text of ``errors`` in a successful response.
        twice: hosts that appear twice in a response, in two organizations, which the response format allows.
        broken: hosts whose points are no list in a response.
        queries: every received query with the attributes of its request.
    """

    series: list[Series] = field(default_factory=list)
    api_key: str = "right-token"
    app_key: str = "right-app-key"
    fail: dict[str, tuple[int, dict[str, str]]] = field(default_factory=dict)
    valid: bool = True
    body: Any = None
    errors: str = ""
    twice: frozenset[str] = frozenset()
    broken: frozenset[str] = frozenset()
    queries: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        length = int(handler.headers.get("Content-Length") or 0)
        request = json.loads(handler.rfile.read(length)) if length else {}
        key, app_key = handler.headers.get("DD-API-KEY"), handler.headers.get("DD-APPLICATION-KEY")
        attributes = request.get("data", {}).get("attributes", {})
        texts = [query["query"] for query in attributes.get("queries", [])]
        self.queries += [(text, attributes) for text in texts]
        for part, (status, headers) in self.fail.items():
            if any(part in text for text in [*texts, handler.path]):
                reply(handler, {"errors": [f"told to fail {key} {app_key}"]}, status, **headers)
                return
        if key != self.api_key or (handler.command == "POST" and app_key != self.app_key):
            reply(handler, {"errors": ["Forbidden"]}, 403)
        elif (handler.command, handler.path) == ("GET", "/api/v1/validate"):
            reply(handler, {"valid": self.valid})
        elif (handler.command, handler.path) != ("POST", "/api/v2/query/timeseries"):
            reply(handler, {"errors": ["Not found"]}, 404)
        elif self.body is not None:
            reply(handler, json.dumps(self.body))
        elif request["data"]["type"] != "timeseries_request" or not all(map(_QUERY.fullmatch, texts)):
            reply(handler, {"errors": [f"unable to parse {texts}"]}, 400)
        else:
            reply(handler, json.dumps(self._evaluate(attributes)))

    def _evaluate(self, attributes: dict[str, Any]) -> dict[str, Any]:
        results = {each["name"]: self._run(each["query"], attributes) for each in attributes["queries"]}
        times = sorted({at for groups in results.values() for points in groups.values() for at in points})
        series, values = [], []
        for index, formula in enumerate(attributes["formulas"]):
            for group in sorted(set.intersection(*(set(groups) for groups in results.values()))):
                names = {
                    name: np.array([groups[group].get(at, np.nan) for at in times]) for name, groups in results.items()
                }
                result = eval(formula["formula"], {"__builtins__": {}}, names)  # arithmetic from the test itself
                missing = np.all([[at not in groups[group] for at in times] for groups in results.values()], axis=0)
                points = [None if absent else value for value, absent in zip(result.tolist(), missing, strict=True)]
                host = group[0].partition(":")[2]
                copies = ("one", "two") if host in self.twice else ("",)
                for copy in copies:
                    tags = [f"org:{copy}", *group] if copy else [*group]
                    series.append({"group_tags": tags, "query_index": index, "unit": None})
                    values.append({"points": "much"} if host in self.broken else points)
        answer: dict[str, Any] = {
            "data": {
                "id": "0",
                "type": "timeseries_response",
                "attributes": {"series": series, "times": times, "values": values},
            }
        }
        return {**answer, "errors": self.errors} if self.errors else answer

    def _run(self, text: str, attributes: dict[str, Any]) -> dict[tuple[str, ...], dict[int, float]]:
        """Return a map of group to milliseconds to value, rolled up per step, then aggregated over a group's series."""
        match = _QUERY.fullmatch(text)
        assert match is not None
        aggregate, metric, scope, tag, method, seconds = match.groups()
        space = {"avg": np.mean, "max": np.max, "min": np.min, "sum": np.sum}[aggregate]
        time = {"avg": np.mean, "min": np.min, "max": np.max}[method]
        step = int(seconds) * 1000
        groups: dict[tuple[str, ...], list[dict[int, float]]] = {}
        for each in self.series:
            if each.metric != metric or not in_scope(scope, each.tags):
                continue
            steps: dict[int, list[float]] = {}
            for at, value in zip((each.times * 1000).tolist(), each.values.tolist(), strict=True):
                if attributes["from"] <= at < attributes["to"]:
                    steps.setdefault(int(at) // step * step, []).append(value)
            if steps:
                rolled = {at: float(time(values)) for at, values in steps.items()}
                group = tuple(f"{key}:{each.tags.get(key, 'N/A')}" for key in tag.split(","))
                groups.setdefault(group, []).append(rolled)
        return {
            group: {
                at: float(space([series[at] for series in members if at in series]))
                for at in {at for series in members for at in series}
            }
            for group, members in groups.items()
        }


def in_scope(scope: str, tags: dict[str, str]) -> bool:
    """Return whether tags match a scope: ``*``, or parts ``key:value`` and ``key IN (...)`` that must all match."""
    for part in re.split(r",(?![^()]*\))", scope):
        key, _, wanted = part.strip().partition(":")
        if listed := re.fullmatch(r"(\S+) IN \(([^()]*)\)", part.strip()):
            if tags.get(listed[1], "") not in listed[2].split(","):
                return False
        elif key != "*" and not fnmatch.fnmatchcase(tags.get(key, ""), wanted):
            return False
    return True


@contextmanager
def running(fake: FakeDatadog) -> Iterator[str]:
    """Run a server for the fake; yield its address."""
    with serving(fake.answer) as server:
        yield server.url
