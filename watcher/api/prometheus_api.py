"""What is served, as Prometheus has it: a scrape of all nodes, and answers to the instant queries that name it.

For the descheduler, which asks a Prometheus what nodes use, and for those who have one. It is no Prometheus: it knows
two names, and equality of labels.
"""

import re
from collections.abc import Iterator, Mapping

from flask import Blueprint, Response, request

from runtime.server import responses
from runtime.server.flask_app import flask_response, is_admitted
from runtime.server.request_metrics import CONTENT_TYPE
from runtime.server.responses import HttpResponse
from watcher.api.node_views import check_parameters
from watcher.errors import NotServed
from watcher.model import WatcherMetrics, averages
from watcher.pipeline.watcher import Watcher

SCRAPE, QUERY = "/metrics/nodes", "/api/v1/query"
LOAD, METRIC = "trimaran_node_load_ratio", "trimaran_node_metric_percent"
_HELP = {
    LOAD: "the higher of a node's average CPU and memory over the default window, 0 to 1",
    METRIC: "each value of a node over the default window, percent of its capacity",
}
_PARAMETERS = ("query", "time", "timeout", "limit", "lookback_delta", "stats")  # the others change nothing
_SELECTOR = re.compile(r"\s*([a-zA-Z_:][\w:]*)\s*(?:\{(.*)\})?\s*", re.DOTALL)
_MATCHER = re.compile(r'\s*([a-zA-Z_]\w*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*')
_ESCAPED = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
Labels = Mapping[str, str]


class BadQuery(ValueError):
    """The query is none that can be answered here; the message says which are."""


def prometheus_routes(watcher: Watcher) -> Blueprint:
    """Return the routes."""
    routes = Blueprint("prometheus", __name__)

    @routes.get(SCRAPE)
    def scrape() -> Response:
        try:
            body = exposition(watcher.published(None).metrics)
        except NotServed:
            body = b""  # series that are not there any more end; old values would not
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
    """Yield labels and value of each sample; nodes whose values are suspect have no load."""
    for node_name, node in metrics.data.items():
        if name == METRIC:
            for metric in node.metrics:
                yield {"instance": node_name, "type": metric.type, "operator": metric.operator}, metric.value
        elif (use := averages(node)) and not node.metadata.get("suspect"):
            yield {"instance": node_name}, min(max(use.values()) / 100, 1.0)


def parse(query: str) -> tuple[str, Labels]:
    """Return name and matchers of an instant selector.

    Raises:
        BadQuery: it is another kind of query, or of a name that there is not.
    """
    found = _SELECTOR.fullmatch(query)
    if found is None or found[1] not in _HELP:
        raise BadQuery(f'this is no Prometheus: it answers {" and ".join(_HELP)}, also with {{label="value"}}')
    rest, matchers = (found[2] or "").strip(), dict[str, str]()
    while rest:
        matcher = _MATCHER.match(rest)
        if matcher is None or (matcher.end() < len(rest) and rest[matcher.end()] != ","):
            raise BadQuery('only matchers label="value" are answered here')
        matchers[matcher[1]] = re.sub(r"\\(.)", r"\1", matcher[2])
        rest = rest[matcher.end() + 1 :].strip()
    return found[1], matchers


def _vector(metrics: WatcherMetrics, name: str, matchers: Labels) -> HttpResponse:
    result = [
        {"metric": {"__name__": name} | dict(labels), "value": [metrics.timestamp, repr(value)]}
        for labels, value in samples(metrics, name)
        if all(labels.get(label, "") == text for label, text in matchers.items())
    ]
    return responses.json_response({"status": "success", "data": {"resultType": "vector", "result": result}})


def _failed(status: int, kind: str, message: str) -> HttpResponse:
    """Return an error in the shape that Prometheus' clients read."""
    return responses.json_response({"status": "error", "errorType": kind, "error": message}, status)
