"""The OpenAPI document of the REST API."""

from importlib.resources import files
from typing import Any

import orjson


def schema(name: str) -> dict[str, Any]:
    """Return a JSON Schema that comes with the package: ``kep``, as documented, or ``watcher``, as we write it."""
    loaded: dict[str, Any] = orjson.loads(files("watcher").joinpath("schemas", f"{name}.json").read_bytes())
    return loaded


def _reply(description: str, content: str) -> dict[str, Any]:
    return {
        "description": description,
        "content": {"application/json": {"schema": {"$ref": f"#/components/{content}"}}},
    }


def _operation(
    summary: str, answers: dict[str, Any], parameters: tuple[str, ...] = (), *, is_open: bool = False
) -> dict[str, Any]:
    refusals = {
        "401": _reply("a token is asked for, and this is none that is known and has not expired", "schemas/Error"),
        "403": _reply("a client certificate is asked for", "schemas/Error"),
    }
    return {
        "get": {
            "summary": summary,
            "parameters": [{"$ref": f"#/components/parameters/{name}"} for name in parameters],
            "responses": answers if is_open else {**answers, **refusals},
            "security": [] if is_open else [{}, {"token": []}],
        }
    }


_METRICS = "schemas/WatcherMetrics"
_GO_METRICS = "schemas/GoWatcherMetrics"
_NO_METRICS = _reply("no metrics, none fresh enough, an unknown node or an unknown window", "schemas/Error")
_BAD_REQUEST = _reply("the request cannot be read", "schemas/Error")
_UNAVAILABLE = _reply("not so", "schemas/Error")
_OBJECT = _reply("yes", "schemas/Object")
_NOT_MODIFIED = {"description": "what the ETag in If-None-Match names is current"}


def _document() -> dict[str, Any]:
    ours = schema("watcher")
    definitions = ours.pop("$defs")
    ours.pop("$schema")
    ours["properties"]["data"]["additionalProperties"] = {"$ref": "#/components/schemas/Node"}
    definitions["node"]["properties"]["metrics"]["items"] = {"$ref": "#/components/schemas/Metric"}
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
    nodes = {"200": _reply("all nodes", _METRICS), "304": _NOT_MODIFIED, "404": _NO_METRICS, "400": _BAD_REQUEST}
    node = {"200": _reply("one node", _METRICS), "404": _NO_METRICS, "400": _BAD_REQUEST}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "trimaran watcher",
            "version": "1",
            "description": "What every node of a cluster really used over the last minutes.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": {
            "/": _operation("The routes", {"200": _OBJECT}),
            "/watcher": _operation("All nodes, or one with ?host=", nodes, ("window", "host_query")),
            "/watcher/{host}": _operation("One node", node, ("window", "host")),
            "/watcher/health": _operation(
                "Whether the last fetch worked and data are fresh", {"200": _OBJECT, "503": _UNAVAILABLE}
            ),
            "/compat/watcher": _operation(
                "All nodes as load-watcher's Go clients read them",
                {**nodes, "200": _reply("all nodes; none when nothing is fresh", _GO_METRICS)},
                ("window", "host_query"),
            ),
            "/compat/watcher/{host}": _operation(
                "One node as load-watcher's Go clients read it",
                {**node, "200": _reply("one node", _GO_METRICS)},
                ("window", "host"),
            ),
            "/livez": _operation("Whether the fetch loop ticks", {"200": _OBJECT, "503": _UNAVAILABLE}, is_open=True),
            "/readyz": _operation(
                "Whether there is something fresh to serve", {"200": _OBJECT, "503": _UNAVAILABLE}, is_open=True
            ),
            "/findings": _operation(
                "What is wrong with metrics, since when, and how much of each kind", {"200": _OBJECT}
            ),
            "/metrics": _operation(
                "The service's own Prometheus metrics",
                {"200": {"description": "text format", "content": {"text/plain": {"schema": {"type": "string"}}}}},
            ),
            "/openapi.json": _operation("This document", {"200": _OBJECT}),
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
                "host_query": {"name": "host", "in": "query", "schema": {"type": "string"}},
                "host": {"name": "host", "in": "path", "required": True, "schema": {"type": "string"}},
            },
            "schemas": {
                "WatcherMetrics": ours,
                "GoWatcherMetrics": go,
                "Node": definitions["node"],
                "Metric": definitions["metric"],
                "Object": {"type": "object"},
                "Error": {
                    "type": "object",
                    "required": ["error"],
                    "properties": {
                        "error": {
                            "type": "object",
                            "required": ["code", "message"],
                            "properties": {"code": {"type": "string"}, "message": {"type": "string"}},
                        }
                    },
                },
            },
        },
    }


DOCUMENT = _document()
