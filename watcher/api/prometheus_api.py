"""Prometheus interface to the load of nodes: a scrape target with all nodes, and a subset of instant queries.

The Kubernetes descheduler queries the load of nodes from a Prometheus; the watcher can take its place. Queries support
three metric names, and label matchers with ``=`` only.
"""

import re
from collections.abc import Iterator, Mapping

from flask import Blueprint, Response, request

from runtime.server import responses
from runtime.server.flask_app import flask_response, is_admitted
from runtime.server.responses import HttpResponse
from runtime.server.telemetry import CONTENT_TYPE
from watcher.api.node_views import check_parameters
from watcher.errors import NotServed
from watcher.model import WatcherMetrics, averages
from watcher.pipeline.watcher import Watcher

SCRAPE, QUERY = "/metrics/nodes", "/api/v1/query"
LOAD, METRIC = "trimaran_node_load_ratio", "trimaran_node_metric_percent"
RESOURCE_LOAD = "trimaran_node_resource_load_ratio"
_RESOURCES = {"CPU": "cpu", "Memory": "memory"}
_HELP = {
    LOAD: "the larger of a node's average CPU and memory load over the default window, 0 to 1",
    RESOURCE_LOAD: "a node's average CPU or memory load over the default window, 0 to 1",
    METRIC: "one metric of a node over the default window, percent of the node's capacity",
}
_PARAMETERS = ("query", "time", "timeout", "limit", "lookback_delta", "stats")  # only the first one has an effect
_SELECTOR = re.compile(r"\s*([a-zA-Z_:][\w:]*)\s*(?:\{(.*)\})?\s*", re.DOTALL)
_MATCHER = re.compile(r'\s*([a-zA-Z_]\w*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*')
_ESCAPED = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
Labels = Mapping[str, str]


class BadQuery(ValueError):
    """Unsupported query; the message describes the supported ones."""


def prometheus_routes(watcher: Watcher) -> Blueprint:
    """Return the routes of the scrape target, ``/metrics/nodes``, and of instant queries, ``/api/v1/query``."""
    routes = Blueprint("prometheus", __name__)

    @routes.get(SCRAPE)
    def scrape() -> Response:
        try:
            body = exposition(watcher.published(None).metrics)
        except NotServed:
            body = b""  # absent series become stale in Prometheus; old values would look current
        return flask_response(HttpResponse(body, content_type=CONTENT_TYPE))

    @routes.get(QUERY)
    def query() -> Response:
        check_parameters(tuple(request.args), _PARAMETERS)
        try:
            name, matchers = parse(request.args.get("query", ""))
            metrics = watcher.published(None).metrics
        except BadQuery as error:
            return flask_response(_failed(400, "bad_data", str(error)))
        except NotServed as error:
            return flask_response(_failed(503, "unavailable", str(error) if is_admitted() else error.what))
        return flask_response(_vector(metrics, name, matchers))

    return routes


def exposition(metrics: WatcherMetrics) -> bytes:
    """Return a snapshot in Prometheus' text format."""
    lines: list[str] = []
    for name, help_ in _HELP.items():
        lines += [f"# HELP {name} {help_}", f"# TYPE {name} gauge"]
        for labels, value in samples(metrics, name):
            written = ",".join(f'{label}="{text.translate(_ESCAPED)}"' for label, text in labels.items())
            lines.append(f"{name}{{{written}}} {value!r}")
    return ("\n".join(lines) + "\n").encode("utf-8", "replace")


def samples(metrics: WatcherMetrics, name: str) -> Iterator[tuple[Labels, float]]:
    """Yield the labels and the value of each sample of a Prometheus metric.

    Args:
        metrics: the snapshot.
        name: ``METRIC`` for every metric of every node, in percent of its capacity. ``LOAD`` for one value per node:
            the larger of its average CPU and memory load, 0 to 1. ``RESOURCE_LOAD`` for one value per node and
            resource, 0 to 1. Nodes whose values are suspect have no load.
    """
    for node_name, node in metrics.data.items():
        if name == METRIC:
            for metric in node.metrics:
                yield {"instance": node_name, "type": metric.type, "operator": metric.operator}, metric.value
        elif not (use := averages(node)) or node.metadata.get("suspect"):
            continue
        elif name == LOAD:
            yield {"instance": node_name}, min(max(use.values()) / 100, 1.0)
        else:
            for kind, percent in use.items():
                yield {"instance": node_name, "resource": _RESOURCES[kind]}, min(percent / 100, 1.0)


def parse(query: str) -> tuple[str, Labels]:
    """Parse an instant selector; return the metric's name, and label to value for its label matchers.

    Raises:
        BadQuery: the query is not an instant selector, or the metric is unknown.
    """
    selector = _SELECTOR.fullmatch(query)
    if selector is None or selector[1] not in _HELP:
        raise BadQuery(f'unsupported query {query[:80]!r}; use {" or ".join(_HELP)}, alone or with {{label="value"}}')
    rest, matchers = (selector[2] or "").strip(), dict[str, str]()
    while rest:
        matcher = _MATCHER.match(rest)
        if matcher is None or (matcher.end() < len(rest) and rest[matcher.end()] != ","):
            raise BadQuery(f'unsupported matcher {rest[:80]!r}; use label="value"')
        matchers[matcher[1]] = re.sub(r"\\(.)", r"\1", matcher[2])
        rest = rest[matcher.end() + 1 :].strip()
    return selector[1], matchers


def _vector(metrics: WatcherMetrics, name: str, matchers: Labels) -> HttpResponse:
    result = [
        {"metric": {"__name__": name} | dict(labels), "value": [metrics.timestamp, repr(value)]}
        for labels, value in samples(metrics, name)
        if all(labels.get(label, "") == text for label, text in matchers.items())
    ]
    return responses.json_response({"status": "success", "data": {"resultType": "vector", "result": result}})


def _failed(status: int, kind: str, message: str) -> HttpResponse:
    """Return an error response in the format of the Prometheus HTTP API."""
    return responses.json_response({"status": "error", "errorType": kind, "error": message}, status)
