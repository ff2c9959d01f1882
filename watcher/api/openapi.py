"""The OpenAPI document of the REST API."""

from dataclasses import fields
from importlib import metadata
from importlib.resources import files
from typing import Any

import orjson

from watcher.api.workload_schemas import CLUSTER_TOTALS, POD_USE, WORKLOAD, WORKLOAD_COLUMNS, WORKLOADS
from watcher.findings import Finding, Kind
from watcher.wire import COLUMNS_TYPE, Dialect


def schema(name: str) -> dict[str, Any]:
    """Return a JSON Schema that is part of the package.

    Args:
        name: ``kep`` for the payload that load-watcher documents, ``watcher`` for the payload that the watcher writes,
            ``columns`` for the columnar form of this payload.
    """
    loaded: dict[str, Any] = orjson.loads(files("watcher").joinpath("schemas", f"{name}.json").read_bytes())
    return loaded


def _reply(description: str, schema_name: str) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": _content(schema_name)}}


def _content(schema_name: str) -> dict[str, Any]:
    return {"schema": {"$ref": f"#/components/schemas/{schema_name}"}}


def _all_nodes(description: str, schema_name: str) -> dict[str, Any]:
    """Describe a response with all nodes: this schema, or the columnar form if the header Accept asks for it."""
    reply = _reply(description, schema_name)
    reply["content"][COLUMNS_TYPE] = _content("WatcherColumns")
    return {**reply, "headers": {name: {"$ref": f"#/components/headers/{name}"} for name in _VALIDATORS}}


_ALWAYS = {
    "400": _reply("Malformed request or unknown query parameter.", "Error"),
    "413": _reply("The request body is too large; no request needs one.", "Error"),
    "414": _reply("The request line is too long.", "Error"),
    "431": _reply("The header fields are too large.", "Error"),
    "500": _reply("Internal error; the watcher's log has the details.", "Error"),
}
_REFUSALS = {
    "401": _reply("Missing, unknown or expired bearer token.", "Error"),
    "403": _reply("A client certificate is required.", "Error"),
    "404": _reply("On server.compat_port, which serves only /compat and the probes.", "Error"),
}


def _operations(
    summary: str, answers: dict[str, Any], parameters: tuple[str, ...] = (), *, is_open: bool = False
) -> dict[str, Any]:
    """Describe the operations of a path: GET, and HEAD, whose response is the same without the body.

    Args:
        summary: summary of GET.
        answers: HTTP status to its response; the responses that every path may give are added.
        parameters: names of parameters in ``components``.
        is_open: the path needs no credentials.
    """
    shared = {
        "parameters": [{"$ref": f"#/components/parameters/{name}"} for name in parameters],
        "security": [] if is_open else [{}, {"token": []}],
    }
    answers = {**({} if is_open else _REFUSALS), **_ALWAYS, **answers}
    bodiless = {
        status: {key: value for key, value in answer.items() if key != "content"} for status, answer in answers.items()
    }
    return {
        "get": {"summary": summary, **shared, "responses": answers},
        "head": {"summary": f"{summary} (status and headers only)", **shared, "responses": bodiless},
    }


_NO_METRICS = _reply("No metrics, no fresh metrics, an unknown node or an unknown window.", "Error")
_NO_COMPAT_METRICS = _reply(
    "Unknown window; with ?host=, also no metrics, no fresh metrics or an unknown node.", "Error"
)
_NO_WORKLOADS = _reply("Pods are not measured, or not yet; an unknown workload.", "Error")
_REVIEWS = {
    "403": _reply(
        "A client certificate is required, or the Kubernetes token may not list the pods of the namespace, or of all "
        "namespaces for the compact form (workloads.access).",
        "Error",
    ),
    "503": _reply("The Kubernetes token could not be reviewed, or not yet (workloads.access).", "Error"),
}
_TIME = "^([0-9]{1,9}[wdhms])*$|^[0-9]+$"  # empty counts as not given
_NO_HISTORY = _reply("No history for this node, resource and operator.", "Error")
_NOT_ALIVE = _reply("Service unavailable: the fetch loop has stopped.", "Error")
_NOT_READY = _reply("Service unavailable: no fresh data.", "Error")
_WORKLOAD_NAMES = ("namespace", "kind", "name")
_VALIDATORS = ("ETag", "Vary", "Cache-Control")
_NOT_MODIFIED = {
    "description": "Not modified: the ETag in If-None-Match is current.",
    "headers": {name: {"$ref": f"#/components/headers/{name}"} for name in _VALIDATORS},
}


_TEXT_FORMAT = {
    "description": "Prometheus' text format.",
    "content": {"text/plain": {"schema": {"type": "string"}}},
}


def _all_workloads() -> dict[str, Any]:
    """Describe a response with workloads: a page, or the compact form if the header Accept asks for it."""
    reply = _reply("Workloads with their containers.", "Workloads")
    reply["content"][COLUMNS_TYPE] = _content("WorkloadColumns")
    return {**reply, "headers": {name: {"$ref": f"#/components/headers/{name}"} for name in _VALIDATORS}}


def _texts(description: str) -> dict[str, Any]:
    return {"type": "array", "items": {"type": "string"}, "description": description}


def _object(required: dict[str, Any], **optional: Any) -> dict[str, Any]:
    return {"type": "object", "required": [*required], "properties": {**required, **optional}}


_ERROR = _object({"error": _object({"code": {"type": "string"}, "message": {"type": "string"}})})
_PROMETHEUS_ERROR = _object(
    {"status": {"const": "error"}, "errorType": {"type": "string"}, "error": {"type": "string"}}
)
_HEALTH = _object(
    {
        "status": {"enum": ["ok", "unhealthy"]},
        "reasons": _texts("The reasons why the watcher is not healthy."),
        "warnings": _texts("Problems that do not affect the metrics that are served now."),
        "age_seconds": {
            "type": "object",
            "additionalProperties": {"type": "number"},
            "description": "The age of each window's newest snapshot, in seconds.",
        },
    }
)
_HISTORY = _object(
    {
        "start": {"type": "integer", "description": "The start of the first step, in Unix seconds."},
        "step": {"type": "integer", "description": "The length of a step, in seconds."},
        "steps": {"type": "integer", "description": "The number of steps."},
        "nodes": _texts("The names of the nodes, sorted."),
        "series": {
            "type": "array",
            "items": _object(
                {
                    "name": {"type": "string"},
                    "type": {"type": "string"},
                    "operator": {"type": "string"},
                    "values": {
                        "type": "array",
                        "description": "One array per node: its value in each step, in percent; "
                        "null if a step has no value.",
                        "items": {"type": "array", "items": {"type": ["number", "null"]}},
                    },
                }
            ),
        },
    }
)
_FINDING = _object({field.name: {"type": "string"} for field in fields(Finding)})
_FINDING["properties"] |= {
    "kind": {"enum": [kind.value for kind in Kind]},
    "since": {"type": "integer", "description": "The start of the problem, in Unix seconds; 0 if unknown."},
}


def document(dialect: Dialect = Dialect.DOCUMENTED) -> dict[str, Any]:
    """Return the OpenAPI document of the REST API.

    Args:
        dialect: JSON dialect of ``/watcher``.
    """
    ours = schema("watcher")
    definitions = ours.pop("$defs")
    ours.pop("$schema")
    ours["properties"]["data"]["additionalProperties"] = {"$ref": "#/components/schemas/Node"}
    definitions["node"]["properties"]["metrics"]["items"] = {"$ref": "#/components/schemas/Metric"}
    columns = schema("columns")
    columns.pop("$schema")
    go = {**ours, "title": "The payload in the dialect of load-watcher's Go code"}
    go["properties"] = {
        **ours["properties"],
        "source": {"type": "string"},
        "window": {"type": "object"},
        "data": {
            "type": "object",
            "required": ["NodeMetricsMap"],
            "properties": {"NodeMetricsMap": ours["properties"]["data"]},
        },
    }
    read = ("window", "host_query", "if_none_match")
    default = "GoWatcherMetrics" if dialect is Dialect.GO else "WatcherMetrics"
    nodes = {"304": _NOT_MODIFIED, "404": _NO_METRICS}
    # The Go plugins keep their last metrics after a 404: they get no nodes instead, if nothing is fresh.
    compat = {"304": _NOT_MODIFIED, "404": _NO_COMPAT_METRICS}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "trimaran watcher",
            "version": metadata.version("trimaran"),
            "description": "The measured load of every node of a cluster over the last minutes.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": {
            "/": _operations("List the routes", {"200": _reply("The routes of the service.", "Index")}),
            "/watcher": _operations(
                "Get the metrics of all nodes, or of one node with ?host=",
                {"200": _all_nodes("The metrics of all nodes.", default), **nodes},
                read,
            ),
            "/watcher/{host}": _operations(
                "Get the metrics of one node",
                {"200": _reply("The metrics of one node.", default), "404": _NO_METRICS},
                ("window", "host"),
            ),
            "/watcher/health": _operations(
                "Check whether the last fetch succeeded and the data are fresh",
                {
                    "200": _reply("The watcher is healthy.", "Health"),
                    "503": _reply("The watcher is not healthy; the body lists the reasons.", "Unhealthy"),
                },
            ),
            "/compat/watcher": _operations(
                "Get the metrics of all nodes in the dialect of load-watcher's Go clients",
                {
                    "200": _all_nodes("The metrics of all nodes; no nodes if no data are fresh.", "GoWatcherMetrics"),
                    **compat,
                },
                read,
            ),
            "/compat/watcher/{host}": _operations(
                "Get the metrics of one node in the dialect of load-watcher's Go clients",
                {"200": _reply("The metrics of one node.", "GoWatcherMetrics"), "404": _NO_METRICS},
                ("window", "host"),
            ),
            "/history": _operations(
                "Get the load over the last hours, averaged over the default window, of one node or of one metric "
                "of all nodes",
                {"200": _reply("The history: arrays with one value per node and step.", "History"), "404": _NO_HISTORY},
                ("history_host", "type", "operator", "since", "step"),
            ),
            "/workloads": _operations(
                "List what the pods of each workload use, in pages, or of all workloads in the compact form",
                {"200": _all_workloads(), "304": _NOT_MODIFIED, "404": _NO_WORKLOADS, **_REVIEWS},
                ("workload_namespace", "workload_kind", "workload_name", "limit", "continue", "if_none_match"),
            ),
            "/workloads/totals": _operations(
                "Get capacity, requests and use of all pods together over the last day",
                {"200": _reply("The totals of each round.", "ClusterTotals"), "404": _NO_WORKLOADS, **_REVIEWS},
            ),
            "/workloads/{namespace}/{kind}/{name}": _operations(
                "Get what the pods of one workload use, also by the hour of the day",
                {"200": _reply("The workload.", "Workload"), "404": _NO_WORKLOADS, **_REVIEWS},
                ("namespace", "kind", "name"),
            ),
            "/pods/history": _operations(
                "Get the use of single pods over the last day: of the running pods on some nodes, and of further pods",
                {"200": _reply("The use of pods, as columns.", "PodUse"), "404": _NO_WORKLOADS, **_REVIEWS},
                ("pod_node", "pod_uid"),
            ),
            "/livez": _operations(
                "Check whether the fetch loop runs (liveness probe)",
                {"200": _reply("The fetch loop runs.", "Alive"), "503": _NOT_ALIVE},
                is_open=True,
            ),
            "/readyz": _operations(
                "Check whether there are fresh data to serve (readiness probe)",
                {"200": _reply("There are fresh data to serve.", "Ready"), "503": _NOT_READY},
                is_open=True,
            ),
            "/findings": _operations(
                "List the findings (problems with metrics and their start), with the number of each kind",
                {"200": _reply("The findings and their number by kind.", "Findings")},
            ),
            "/metrics": _operations(
                "Get the service's own Prometheus metrics",
                {"200": _TEXT_FORMAT},
            ),
            "/metrics/nodes": _operations(
                "Get the load of every node as Prometheus metrics, without samples if no data are fresh",
                {"200": _TEXT_FORMAT},
            ),
            "/api/v1/query": _operations(
                "Evaluate an instant query for the metrics of /metrics/nodes, like Prometheus",
                {
                    "200": _reply("An instant vector.", "Vector"),
                    "400": _reply(
                        "Unsupported query, in the format of Prometheus' errors; or a malformed request or an unknown "
                        "query parameter, in the usual format.",
                        "BadQuery",
                    ),
                    "503": _reply("No fresh data, in the format of Prometheus' errors.", "PrometheusError"),
                },
                ("query", "time", "timeout"),
            ),
            "/openapi.json": _operations("Get this document", {"200": _reply("The OpenAPI 3.1 document.", "OpenApi")}),
        },
        "components": {
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "Needed only if the service requires a token.",
                }
            },
            "parameters": {
                "window": {
                    "name": "window",
                    "in": "query",
                    "description": "Only this window, such as 5m; by default the default window, or a shorter one "
                    "if it is missing.",
                    "schema": {"type": "string"},
                },
                "host_query": {
                    "name": "host",
                    "in": "query",
                    "description": "Only this node; also for names that cannot be part of a path, such as health.",
                    "schema": {"type": "string"},
                },
                "history_host": {
                    "name": "host",
                    "in": "query",
                    "description": "Only this node, with all its metrics.",
                    "schema": {"type": "string"},
                },
                "type": {
                    "name": "type",
                    "in": "query",
                    "description": "Only this resource; CPU by default if no host is given.",
                    "schema": {"type": "string"},
                },
                "operator": {
                    "name": "operator",
                    "in": "query",
                    "description": "Only this operator; AVG by default if no host is given.",
                    "schema": {"type": "string"},
                },
                "since": {
                    "name": "since",
                    "in": "query",
                    "description": "The start, as Unix seconds or as a duration before now, such as 6h; by "
                    "default one day.",
                    "schema": {"type": "string", "pattern": _TIME},
                },
                "step": {
                    "name": "step",
                    "in": "query",
                    "description": "The length of a step, as seconds (whole minutes) or as a duration such as 5m; "
                    "by default the shortest possible.",
                    "schema": {"type": "string", "pattern": _TIME},
                },
                "if_none_match": {
                    "name": "If-None-Match",
                    "in": "header",
                    "description": "The ETag of the client's copy; if it is current, the response is 304.",
                    "schema": {"type": "string"},
                },
                "query": {
                    "name": "query",
                    "in": "query",
                    "required": True,
                    "description": "trimaran_node_load_ratio, trimaran_node_resource_load_ratio or "
                    "trimaran_node_metric_percent, optionally with label matchers, "
                    'such as {type="CPU"}.',
                    "schema": {
                        "type": "string",
                        "pattern": "^trimaran_node_(load_ratio|resource_load_ratio|metric_percent)$",
                    },
                },
                "time": {
                    "name": "time",
                    "in": "query",
                    "description": "Ignored: the response always has the present values.",
                    "schema": {"type": "string"},
                },
                "timeout": {
                    "name": "timeout",
                    "in": "query",
                    "description": "Ignored: queries never wait.",
                    "schema": {"type": "string"},
                },
                "host": {"name": "host", "in": "path", "required": True, "schema": {"type": "string"}},
                **{
                    f"workload_{name}": {
                        "name": name,
                        "in": "query",
                        "description": f"Only workloads with this {name}.",
                        "schema": {"type": "string"},
                    }
                    for name in _WORKLOAD_NAMES
                },
                **{
                    name: {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
                    for name in _WORKLOAD_NAMES
                },
                **{
                    f"pod_{key}": {
                        "name": name,
                        "in": "query",
                        "description": description,
                        "schema": {"type": "array", "items": {"type": "string"}, "maxItems": 100},
                    }
                    for key, name, description in (
                        ("node", "node", "A node whose running pods are returned; repeatable."),
                        (
                            "uid",
                            "pod",
                            "The uid of a further pod, also of one that is gone for less than a day; repeatable.",
                        ),
                    )
                },
                "limit": {
                    "name": "limit",
                    "in": "query",
                    "description": "Largest number of workloads in a page, from 1 to 5000; 500 by default.",
                    "schema": {"type": "string", "pattern": "^([1-9][0-9]{0,2}|[1-4][0-9]{3}|5000)$"},
                },
                "continue": {
                    "name": "continue",
                    "in": "query",
                    "description": "The value of next in the page before.",
                    "schema": {"type": "string", "pattern": "^([^/]*/[^/]*/[\\s\\S]*)?$"},
                },
            },
            "schemas": {
                "WatcherMetrics": ours,
                "GoWatcherMetrics": go,
                "WatcherColumns": columns,
                "Node": definitions["node"],
                "Metric": definitions["metric"],
                "Index": _object(
                    {
                        "service": {"type": "string"},
                        "documentation": {"type": "string"},
                        "routes": _texts("The routes of the service."),
                    }
                ),
                "History": _HISTORY,
                "Workload": WORKLOAD,
                "Workloads": WORKLOADS,
                "WorkloadColumns": WORKLOAD_COLUMNS,
                "PodUse": POD_USE,
                "ClusterTotals": CLUSTER_TOTALS,
                "Alive": _object({"alive": {"const": True}}),
                "Ready": _object({"ready": {"const": True}}),
                "Health": _HEALTH,
                "Unhealthy": {"allOf": [_HEALTH, _ERROR]},
                "Findings": _object(
                    {
                        "findings": {"type": "array", "items": {"$ref": "#/components/schemas/Finding"}},
                        "counts": {"type": "object", "additionalProperties": {"type": "integer"}},
                    }
                ),
                "Finding": _FINDING,
                "Vector": _object(
                    {
                        "status": {"const": "success"},
                        "data": _object(
                            {
                                "resultType": {"const": "vector"},
                                "result": {
                                    "type": "array",
                                    "items": _object(
                                        {
                                            "metric": {"type": "object", "additionalProperties": {"type": "string"}},
                                            "value": {
                                                "type": "array",
                                                "items": {"type": ["number", "string"]},
                                                "minItems": 2,
                                                "maxItems": 2,
                                            },
                                        }
                                    ),
                                },
                            }
                        ),
                    }
                ),
                "PrometheusError": _PROMETHEUS_ERROR,
                "BadQuery": {"anyOf": [_PROMETHEUS_ERROR, _ERROR]},
                "OpenApi": _object({"openapi": {"type": "string"}, "info": {"type": "object"}}),
                "Error": _ERROR,
            },
            "headers": {
                "ETag": {"description": "The snapshot's entity tag, for If-None-Match.", "schema": {"type": "string"}},
                "Vary": {"description": "The request headers that select the body.", "schema": {"type": "string"}},
                "Cache-Control": {
                    "description": "no-cache: the client must revalidate its copy before use.",
                    "schema": {"type": "string"},
                },
            },
        },
    }
