"""The OpenAPI document: served, complete, valid, and what the API really answers."""

from collections.abc import Iterator
from importlib import resources
from typing import Any

import jsonschema
import orjson
import pytest
from support.bench import Api

from watcher.api.openapi import document
from watcher.wire import COLUMNS_TYPE

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
    """Return what a $ref of the document points to."""
    part: Any = DOCUMENT
    for key in reference.removeprefix("#/").split("/"):
        part = part[key]
    return part


def test_the_document_is_served(api: Api) -> None:
    """/openapi.json is the document, as OpenAPI 3.1."""
    assert api.get("/openapi.json").json == orjson.loads(orjson.dumps(DOCUMENT))
    assert DOCUMENT["openapi"] == "3.1.0"
    assert {"title", "version"} <= DOCUMENT["info"].keys()


def test_the_file_beside_the_schemas_is_what_is_served() -> None:
    """watcher/schemas/openapi.json is the document; `make openapi` renews it."""
    text = resources.files("watcher").joinpath("schemas", "openapi.json").read_bytes()
    assert orjson.loads(text) == orjson.loads(orjson.dumps(DOCUMENT))


def test_every_route_is_documented(api: Api) -> None:
    """The document has each route and no other, with its path parameters and a description of each answer."""
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
    for each in DOCUMENT["components"]["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(each)


@pytest.mark.parametrize(
    ("path", "route"),
    [("/watcher", "/watcher"), ("/watcher/a", "/watcher/{host}"), ("/watcher/b", "/watcher/{host}"),
     ("/compat/watcher", "/compat/watcher"), ("/compat/watcher/a", "/compat/watcher/{host}"), ("/", "/"),
     ("/watcher?window=1m", "/watcher"), ("/watcher/health", "/watcher/health"), ("/livez", "/livez"),
     ("/readyz", "/readyz"), ("/findings", "/findings"), ("/history", "/history"), ("/history?step=1", "/history"),
     ("/history?host=b", "/history"), ("/openapi.json", "/openapi.json")],
)  # fmt: skip
def test_answers_are_as_documented(full: Api, path: str, route: str) -> None:
    """Status and body of an answer are those the document has for its route."""
    response = full.get(path)
    answer = DOCUMENT["paths"][route]["get"]["responses"][str(response.status_code)]
    wanted = answer["content"]["application/json"]["schema"]
    jsonschema.Draft202012Validator({**wanted, "components": DOCUMENT["components"]}).validate(response.json)


@pytest.mark.parametrize("path", ["/watcher", "/compat/watcher"])
def test_the_columnar_answer_is_as_documented(full: Api, path: str) -> None:
    """So is the answer for those who ask for columns."""
    response = full.get(path, Accept=COLUMNS_TYPE)
    content = DOCUMENT["paths"][path]["get"]["responses"]["200"]["content"]
    assert response.content_type in content
    wanted = content[COLUMNS_TYPE]["schema"]
    jsonschema.Draft202012Validator({**wanted, "components": DOCUMENT["components"]}).validate(response.json)
    assert response.json["groups"]
