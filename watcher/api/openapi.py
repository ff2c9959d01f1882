"""The OpenAPI document of the REST API."""

from dataclasses import fields
from importlib import metadata
from importlib.resources import files
from typing import Any

import orjson

from watcher.findings import Finding, Kind
from watcher.wire import COLUMNS_TYPE, Dialect


def schema(name: str) -> dict[str, Any]:
    """Return a JSON Schema that comes with the package.

    ``kep`` is the documented one, ``watcher`` that of what we write, ``columns`` that of the columnar form.
    """
    loaded: dict[str, Any] = orjson.loads(files("watcher").joinpath("schemas", f"{name}.json").read_bytes())
    return loaded


def _reply(description: str, schema_name: str) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": _content(schema_name)}}


def _content(schema_name: str) -> dict[str, Any]:
    return {"schema": {"$ref": f"#/components/schemas/{schema_name}"}}


def _all_nodes(description: str, schema_name: str) -> dict[str, Any]:
    """Return the answer for all nodes, in a dialect or, for those who ask for it, in the columnar form."""
    reply = _reply(description, schema_name)
    reply["content"][COLUMNS_TYPE] = _content("WatcherColumns")
    return {**reply, "headers": {name: {"$ref": f"#/components/headers/{name}"} for name in _VALIDATORS}}


_ALWAYS = {
    "400": _reply("the request cannot be read, or has a parameter that there is not", "Error"),
    "413": _reply("the request has a body that is too large; none is needed", "Error"),
    "414": _reply("the request line is too long", "Error"),
    "431": _reply("the header fields are too large", "Error"),
    "500": _reply("a defect of the watcher; its log has it", "Error"),
}
_REFUSALS = {
    "401": _reply("a token is asked for, and this is none that is known and has not expired", "Error"),
    "403": _reply("a client certificate is asked for", "Error"),
    "404": _reply("the port that answers /compat alone was asked", "Error"),
}


def _operations(
    summary: str, answers: dict[str, Any], parameters: tuple[str, ...] = (), *, is_open: bool = False
) -> dict[str, Any]:
    """Return what a path has: GET, and HEAD, which answers the same without a body."""
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
        "head": {"summary": f"{summary}: status and headers only", **shared, "responses": bodiless},
    }


_NO_METRICS = _reply("no metrics, none fresh enough, an unknown node or an unknown window", "Error")
_TIME = "^([0-9]{1,9}[wdhms])*$|^[0-9]+$"  # empty is none
_NO_HISTORY = _reply("there is none of this node", "Error")
_UNAVAILABLE = _reply("not so", "Error")
_VALIDATORS = ("ETag", "Vary", "Cache-Control")
_NOT_MODIFIED = {
    "description": "what the ETag in If-None-Match names is current",
    "headers": {name: {"$ref": f"#/components/headers/{name}"} for name in _VALIDATORS},
}


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
        "reasons": _texts("why it is not healthy"),
        "warnings": _texts("what is wrong without harming what is served now"),
        "age_seconds": {
            "type": "object",
            "additionalProperties": {"type": "number"},
            "description": "window to the age of its newest snapshot",
        },
    }
)
_HISTORY = _object(
    {
        "start": {"type": "integer", "description": "when the first step begins, unix seconds"},
        "step": {"type": "integer", "description": "the length of a step, seconds"},
        "steps": {"type": "integer", "description": "how many there are"},
        "nodes": _texts("the nodes, sorted"),
        "series": {
            "type": "array",
            "items": _object(
                {
                    "name": {"type": "string"},
                    "type": {"type": "string"},
                    "operator": {"type": "string"},
                    "values": {
                        "type": "array",
                        "description": "for each node its steps in percent; null where there is nothing",
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
    "since": {"type": "integer", "description": "unix seconds; 0 when nobody knows"},
}


def document(dialect: Dialect = Dialect.DOCUMENTED) -> dict[str, Any]:
    """Return the document of an API whose ``/watcher`` speaks this dialect."""
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
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "trimaran watcher",
            "version": metadata.version("trimaran"),
            "description": "What every node of a cluster really used over the last minutes.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": {
            "/": _operations("The routes", {"200": _reply("an index", "Index")}),
            "/watcher": _operations(
                "All nodes, or one with ?host=",
                {"200": _all_nodes("all nodes", default), **nodes},
                read,
            ),
            "/watcher/{host}": _operations(
                "One node", {"200": _reply("one node", default), "404": _NO_METRICS}, ("window", "host")
            ),
            "/watcher/health": _operations(
                "Whether the last fetch worked and data are fresh",
                {"200": _reply("healthy", "Health"), "503": _reply("not healthy", "Unhealthy")},
            ),
            "/compat/watcher": _operations(
                "All nodes as load-watcher's Go clients read them",
                {"200": _all_nodes("all nodes; none when nothing is fresh", "GoWatcherMetrics"), **nodes},
                read,
            ),
            "/compat/watcher/{host}": _operations(
                "One node as load-watcher's Go clients read it",
                {"200": _reply("one node", "GoWatcherMetrics"), "404": _NO_METRICS},
                ("window", "host"),
            ),
            "/history": _operations(
                "What nodes used over the last hours, in the default window: one node, or one metric of all",
                {"200": _reply("arrays of nodes by steps", "History"), "404": _NO_HISTORY},
                ("history_host", "type", "operator", "since", "step"),
            ),
            "/livez": _operations(
                "Whether the fetch loop ticks", {"200": _reply("it does", "Alive"), "503": _UNAVAILABLE}, is_open=True
            ),
            "/readyz": _operations(
                "Whether there is something fresh to serve",
                {"200": _reply("there is", "Ready"), "503": _UNAVAILABLE},
                is_open=True,
            ),
            "/findings": _operations(
                "What is wrong with metrics, since when, and how much of each kind",
                {"200": _reply("a list", "Findings")},
            ),
            "/metrics": _operations(
                "The service's own Prometheus metrics",
                {"200": {"description": "text format", "content": {"text/plain": {"schema": {"type": "string"}}}}},
            ),
            "/metrics/nodes": _operations(
                "What every node uses, for a Prometheus; no samples when nothing is fresh",
                {"200": {"description": "text format", "content": {"text/plain": {"schema": {"type": "string"}}}}},
            ),
            "/api/v1/query": _operations(
                "An instant query for what /metrics/nodes has, as Prometheus answers it",
                {
                    "200": _reply("a vector", "Vector"),
                    "400": _reply("a query that is not answered here, as Prometheus says it; or as always", "BadQuery"),
                    "503": _reply("nothing fresh, in the shape of Prometheus' errors", "PrometheusError"),
                },
                ("query", "time", "timeout"),
            ),
            "/openapi.json": _operations("This document", {"200": _reply("OpenAPI 3.1", "OpenApi")}),
        },
        "components": {
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer", "description": "where the service asks for one"}
            },
            "parameters": {
                "window": {
                    "name": "window",
                    "in": "query",
                    "description": "exactly this window, such as 5m; without it the default or a shorter one",
                    "schema": {"type": "string"},
                },
                "host_query": {
                    "name": "host",
                    "in": "query",
                    "description": "only this node, whatever its name",
                    "schema": {"type": "string"},
                },
                "history_host": {
                    "name": "host",
                    "in": "query",
                    "description": "only this node, with all its metrics",
                    "schema": {"type": "string"},
                },
                "type": {
                    "name": "type",
                    "in": "query",
                    "description": "only this resource; of all nodes CPU by default",
                    "schema": {"type": "string"},
                },
                "operator": {
                    "name": "operator",
                    "in": "query",
                    "description": "only this operator; of all nodes AVG by default",
                    "schema": {"type": "string"},
                },
                "since": {
                    "name": "since",
                    "in": "query",
                    "description": "unix seconds, or how long ago, such as 6h; a day by default",
                    "schema": {"type": "string", "pattern": _TIME},
                },
                "step": {
                    "name": "step",
                    "in": "query",
                    "description": "whole minutes, as seconds or such as 5m; as short as is possible by default",
                    "schema": {"type": "string", "pattern": _TIME},
                },
                "if_none_match": {
                    "name": "If-None-Match",
                    "in": "header",
                    "description": "the ETag of what is there already",
                    "schema": {"type": "string"},
                },
                "query": {
                    "name": "query",
                    "in": "query",
                    "required": True,
                    "description": 'one of the two names, which may have matchers: {type="CPU"}',
                    "schema": {"type": "string", "pattern": "^trimaran_node_(load_ratio|metric_percent)$"},
                },
                "time": {
                    "name": "time",
                    "in": "query",
                    "description": "changes nothing: what is fresh now is answered",
                    "schema": {"type": "string"},
                },
                "timeout": {
                    "name": "timeout",
                    "in": "query",
                    "description": "changes nothing: nothing is waited for",
                    "schema": {"type": "string"},
                },
                "host": {"name": "host", "in": "path", "required": True, "schema": {"type": "string"}},
            },
            "schemas": {
                "WatcherMetrics": ours,
                "GoWatcherMetrics": go,
                "WatcherColumns": columns,
                "Node": definitions["node"],
                "Metric": definitions["metric"],
                "Index": _object(
                    {"service": {"type": "string"}, "documentation": {"type": "string"}, "routes": _texts("all")}
                ),
                "History": _HISTORY,
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
                "ETag": {"description": "of this snapshot, for If-None-Match", "schema": {"type": "string"}},
                "Vary": {"description": "what else the body depends on", "schema": {"type": "string"}},
                "Cache-Control": {"description": "ask again before using it again", "schema": {"type": "string"}},
            },
        },
    }
