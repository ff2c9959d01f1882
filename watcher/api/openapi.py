"""The OpenAPI document of the REST API: ``watcher/schemas/openapi.json`` is its source."""

from importlib import metadata
from importlib.resources import files
from typing import Any

import orjson

from watcher.wire import Dialect


def schema(name: str) -> dict[str, Any]:
    """Return a JSON schema, or the source of the OpenAPI document, from the files of the package.

    Args:
        name: ``kep`` for the payload that load-watcher documents, ``watcher`` for the payload that the watcher writes,
            ``columns`` for the columnar form of this payload, ``openapi`` for the source of :func:`document`.
    """
    loaded: dict[str, Any] = orjson.loads(files("watcher").joinpath("schemas", f"{name}.json").read_bytes())
    return loaded


def document(dialect: Dialect = Dialect.DOCUMENTED) -> dict[str, Any]:
    """Return the OpenAPI document; adds a HEAD operation to each path, and inlines shared responses.

    Args:
        dialect: JSON dialect of ``/watcher``.
    """
    described = schema("openapi")
    described["info"]["version"] = metadata.version("trimaran")
    shared = {f"#/components/responses/{name}": each for name, each in described["components"].pop("responses").items()}
    for item in described["paths"].values():
        get = item["get"]
        get["responses"] = {status: shared.get(each.get("$ref"), each) for status, each in get["responses"].items()}
        bodiless = {
            status: {key: value for key, value in each.items() if key != "content"}
            for status, each in get["responses"].items()
        }
        item["head"] = {**get, "summary": f"{get['summary']} (status and headers only)", "responses": bodiless}
    if dialect is Dialect.GO:
        for path in ("/watcher", "/watcher/{host}"):
            content = described["paths"][path]["get"]["responses"]["200"]["content"]
            content["application/json"]["schema"]["$ref"] = "#/components/schemas/GoWatcherMetrics"
    return described
