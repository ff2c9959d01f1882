"""The API asked by schemathesis, as its OpenAPI document says and as it does not: nothing but documented answers."""

from collections.abc import Iterator

import pytest
import schemathesis
from hypothesis import given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import positive_data_acceptance
from support.bench import Api

from watcher.api.openapi import document
from watcher.wire import Dialect


@pytest.fixture(scope="module", params=["full", "empty", "stale", "go"])
def described(request: pytest.FixtureRequest) -> Iterator[schemathesis.BaseSchema]:
    """The API by its own document: after a fetch, before the first, long after the last, and in Go's dialect."""
    api = Api(Dialect.GO if request.param == "go" else Dialect.DOCUMENTED)
    if request.param != "empty":
        api.watcher.fetch_once()
    if request.param == "stale":
        api.now += 301
    yield schemathesis.openapi.from_wsgi("/openapi.json", api.app)
    api.watcher.stop()


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize("path", document()["paths"])
def test_nothing_but_documented_answers(described: schemathesis.BaseSchema, path: str, method: str) -> None:
    """Whatever is asked, valid or not, status, headers and body are ones that the document has for the route."""
    operation = described[path][method]
    statuses = set()
    excluded = [not_a_server_error]  # 503 is an answer; a defect is caught below
    if path == "/history":
        excluded.append(positive_data_acceptance)  # which steps are too many no schema can say

    @settings(max_examples=15, derandomize=True, database=None)
    @given(st.one_of([operation.as_strategy(generation_mode=mode) for mode in GenerationMode]))
    def ask(case: schemathesis.Case) -> None:
        response = case.call_and_validate(
            headers={"Accept-Encoding": "identity"},
            excluded_checks=excluded,
        )
        statuses.add(response.status_code)

    ask()
    assert statuses
    assert 500 not in statuses
