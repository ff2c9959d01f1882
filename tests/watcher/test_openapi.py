"""The OpenAPI document: valid, complete, and true of the API's real answers."""

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import jsonschema
import orjson
import pytest
from support.bench import Api

from watcher.api.openapi import document, schema
from watcher.findings import Finding, Kind
from watcher.wire import COLUMNS_TYPE, Dialect

DOCUMENT = document()


def references(part: Any) -> Iterator[str]:
    """Yield every $ref in a part of the document."""
    if isinstance(part, dict):
        for key, value in part.items():
            if key == "$ref":
                yield value
            yield from references(value)
    elif isinstance(part, list):
        for value in part:
            yield from references(value)


def resolve(reference: str) -> Any:
    """Return the part of the document that a $ref points to."""
    part: Any = DOCUMENT
    for key in reference.removeprefix("#/").split("/"):
        part = part[key]
    return part


def test_the_document_is_served(api: Api) -> None:
    """/openapi.json returns the document, in OpenAPI 3.1."""
    assert api.get("/openapi.json").json == orjson.loads(orjson.dumps(DOCUMENT))
    assert DOCUMENT["openapi"] == "3.1.0"
    assert {"title", "version"} <= DOCUMENT["info"].keys()


def test_the_document_agrees_with_the_code_and_the_other_schemas() -> None:
    """Findings have their fields and kinds, and nodes and columns the schemas that are published for themselves."""
    schemas = DOCUMENT["components"]["schemas"]
    assert schemas["Finding"]["required"] == [field.name for field in fields(Finding)]
    assert schemas["Finding"]["properties"]["kind"]["enum"] == [kind.value for kind in Kind]
    columns, ours = schema("columns"), schema("watcher")
    definitions = ours.pop("$defs")
    del columns["$schema"], ours["$schema"]
    ours["properties"]["data"]["additionalProperties"] = {"$ref": "#/components/schemas/Node"}
    definitions["node"]["properties"]["metrics"]["items"] = {"$ref": "#/components/schemas/Metric"}
    described = [schemas[name] for name in ("WatcherMetrics", "WatcherColumns", "Node", "Metric")]
    assert described == [ours, columns, definitions["node"], definitions["metric"]]
    assert (
        schemas["GoWatcherMetrics"]["properties"]["data"]["properties"]["NodeMetricsMap"] == ours["properties"]["data"]
    )


def test_the_dialect_of_go_is_described() -> None:
    """With the dialect of Go /watcher has its schema, and nothing else changes."""
    go = document(Dialect.GO)
    for path in ("/watcher", "/watcher/{host}"):
        content = go["paths"][path]["get"]["responses"]["200"]["content"]
        assert content["application/json"]["schema"] == {"$ref": "#/components/schemas/GoWatcherMetrics"}
        content["application/json"]["schema"] = {"$ref": "#/components/schemas/WatcherMetrics"}
    assert go == DOCUMENT


def test_every_route_is_documented(api: Api) -> None:
    """The document has exactly the API's routes, with their path parameters and a description of each answer."""
    routes = {rule.rule.replace("<", "{").replace(">", "}") for rule in api.app.url_map.iter_rules()}
    assert set(DOCUMENT["paths"]) == routes
    for path, item in DOCUMENT["paths"].items():
        parameters = [resolve(parameter["$ref"]) for parameter in item["get"]["parameters"]]
        assert [f"{{{p['name']}}}" in path for p in parameters if p["in"] == "path"] == [True] * path.count("{")
        assert item["get"]["summary"]
        assert item["get"]["responses"]
        for status, answer in item["get"]["responses"].items():
            assert 200 <= int(status) < 600
            assert answer["description"]
        assert item["head"]["parameters"] == item["get"]["parameters"]
        assert item["head"]["responses"].keys() == item["get"]["responses"].keys()
        assert not any("content" in answer for answer in item["head"]["responses"].values())


def test_every_reference_and_schema_is_valid() -> None:
    """Each $ref resolves, and each schema is a valid JSON Schema."""
    assert all(resolve(reference) for reference in references(DOCUMENT))
    for component in DOCUMENT["components"]["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(component)


@pytest.mark.parametrize(
    ("path", "route"),
    [("/watcher", "/watcher"), ("/watcher/a", "/watcher/{host}"), ("/watcher/b", "/watcher/{host}"),
     ("/compat/watcher", "/compat/watcher"), ("/compat/watcher/a", "/compat/watcher/{host}"), ("/", "/"),
     ("/watcher?window=1m", "/watcher"), ("/watcher/health", "/watcher/health"), ("/livez", "/livez"),
     ("/readyz", "/readyz"), ("/findings", "/findings"), ("/history", "/history"), ("/history?step=1", "/history"),
     ("/history?host=b", "/history"), ("/openapi.json", "/openapi.json")],
)  # fmt: skip
def test_answers_are_as_documented(ready_api: Api, path: str, route: str) -> None:
    """The status and body of an answer are documented for its route."""
    response = ready_api.get(path)
    answer = DOCUMENT["paths"][route]["get"]["responses"][str(response.status_code)]
    wanted = answer["content"]["application/json"]["schema"]
    jsonschema.Draft202012Validator({**wanted, "components": DOCUMENT["components"]}).validate(response.json)


@pytest.mark.parametrize("path", ["/watcher", "/compat/watcher"])
def test_the_columnar_answer_is_as_documented(ready_api: Api, path: str) -> None:
    """The columnar answer is documented for its route."""
    response = ready_api.get(path, Accept=COLUMNS_TYPE)
    content = DOCUMENT["paths"][path]["get"]["responses"]["200"]["content"]
    assert response.content_type in content
    wanted = content[COLUMNS_TYPE]["schema"]
    jsonschema.Draft202012Validator({**wanted, "components": DOCUMENT["components"]}).validate(response.json)
    assert response.json["groups"]
