"""The fast path before routing gives every request the answer that the routes give."""

from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.bench import START, Api
from werkzeug.test import Client, TestResponse

from runtime.server.responses import JSON
from watcher import wire
from watcher.api.app import create_app
from watcher.api.service import open_access
from watcher.settings import WatcherServerSettings
from watcher.wire import Dialect

TOKEN = "right-token-right-token"
PATHS = (
    "/watcher", "/watcher/", "/watcher/a", "/watcher/b", "/watcher/health", "/watcher/a/", "/watcher//a", "//watcher",
    "/watcher/%61", "/watcher/a%2fb", "/watcher/%ff", "/watcher/é", "/compat/watcher", "/compat/watcher/a", "/compat",
    "/livez", "/", "/nowhere",
)  # fmt: skip
QUERIES = (
    "", "window=5m", "window=15m", "window=7m", "window=", "window", "host=a", "host=b", "host=", "host=%61", "host=é",
    "host=a&window=5m", "windw=5m", "window=5m&window=10m", "host=a/b", "&", "window=5m&",
)  # fmt: skip
METHODS = ("GET", "HEAD", "POST", "OPTIONS", "get")
ENCODINGS = (None, "", "gzip", "identity", "gzip;q=0", "*", "*;q=0", "br, gzip;q=0.5", "nonsense;;;", "GZIP")
ACCEPTED = (
    None,
    "",
    "*/*",
    JSON,
    wire.COLUMNS_TYPE,
    f"{JSON}, {wire.COLUMNS_TYPE};q=0.5",
    f"{wire.COLUMNS_TYPE};q=0",
    "x",
)
TAGS = (None, "", "*", "current", '"other", current', "W/x", "weak", "nonsense")
TOKENS = (None, f"Bearer {TOKEN}", "Bearer wrong-token-wrong-token", "Basic x")
SETTINGS: tuple[dict[str, Any], ...] = (
    {}, {"token": TOKEN}, {"token": TOKEN, "compat_open": True}, {"token": TOKEN, "compat_port": 2021},
    {"compat_port": 2021}, {"dialect": Dialect.GO},
)  # fmt: skip


class PathComparison:
    """An API that is asked through its fast path and through its routes, on the same watcher."""

    def __init__(self, api: Api, **settings: Any) -> None:
        server = WatcherServerSettings(**settings)
        app = create_app(api.watcher, api.telemetry, open_access(server, clock=lambda: api.now), server.dialect)
        self.fast_path: Any = app.wsgi_app
        self.client = app.test_client()
        self.tag = api.watcher.published().body(server.dialect).etag
        self.cached = self.fast_path.cached

    def ask(self, client: Client, method: str, target: str, port: str = "2020", **headers: str | None) -> TestResponse:
        tag = headers.get("If_None_Match")
        if tag:
            headers["If_None_Match"] = tag.replace("current", self.tag).replace("weak", self.tag.removeprefix("W/"))
        fields = {name.replace("_", "-"): value for name, value in headers.items() if value is not None}
        return client.open(target, method=method, headers=fields, environ_overrides={"SERVER_PORT": port})

    def check(self, *request: Any, **headers: Any) -> bool:
        """Check that both paths give the same answer; return whether the fast path had it."""
        cached: list[Any] = []
        self.fast_path.cached = lambda environ: cached.append(self.cached(environ)) or cached[-1]
        fast = self.ask(self.client, *request, **headers)
        self.fast_path.cached = lambda _: None
        routed = self.ask(self.client, *request, **headers)
        assert (fast.status, fast.data) == (routed.status, routed.data)
        assert sorted(fast.headers) == sorted(routed.headers)
        return cached[-1] is not None


@pytest.fixture(scope="module")
def fetched() -> Iterator[Api]:
    """An API after a fetch, for all examples."""
    api = Api()
    api.watcher.fetch_once()
    yield api
    api.watcher.stop()


@pytest.fixture(scope="module")
def comparisons(fetched: Api) -> list[PathComparison]:
    """A comparison of both paths for each of the settings."""
    return [PathComparison(fetched, **settings) for settings in SETTINGS]


def test_both_paths_give_the_same_answer(comparisons: list[PathComparison]) -> None:
    """Every path with every query and method has the same status, headers and body on both paths."""
    for api, path, query in product(comparisons, PATHS, QUERIES):
        for method in METHODS if not query else METHODS[:1]:
            api.check(method, f"{path}?{query}" if query else path, Authorization=f"Bearer {TOKEN}")


@given(data=st.data())
def test_header_fields(comparisons: list[PathComparison], data: st.DataObject) -> None:
    """Accept, encoding, entity tag, token and port have the same effect on both paths."""
    one = st.sampled_from
    api = data.draw(one(comparisons))
    api.check(
        data.draw(one(METHODS[:2])),
        data.draw(one(("/watcher", "/watcher/a", "/compat/watcher", "/compat/watcher/a", "/watcher?window=10m"))),
        data.draw(one(("2020", "2021"))),
        Accept=data.draw(one(ACCEPTED)),
        Accept_Encoding=data.draw(one(ENCODINGS)),
        If_None_Match=data.draw(one(TAGS)),
        Authorization=data.draw(one(TOKENS)),
    )


@pytest.mark.parametrize(
    ("target", "headers"),
    [
        ("/watcher", {}),
        ("/watcher/a", {}),
        ("/watcher?window=5m", {}),
        ("/watcher?host=a", {}),
        ("/watcher", {"Accept_Encoding": "gzip, deflate"}),
        ("/watcher", {"If_None_Match": "current"}),
        ("/watcher", {"Accept": wire.COLUMNS_TYPE}),
        ("/compat/watcher/a", {"Authorization": "Bearer x"}),
    ],
)
def test_common_requests_use_the_fast_path(
    comparisons: list[PathComparison], target: str, headers: dict[str, str]
) -> None:
    """Common requests skip the routes once a first request has built the answer."""
    comparisons[0].ask(comparisons[0].client, "GET", target, **headers)
    assert comparisons[0].check("GET", target, **headers)
    assert comparisons[1].check("GET", target, **{**headers, "Authorization": f"Bearer {TOKEN}"})
    assert not comparisons[1].check("GET", target)


def test_fast_path_requests_are_counted(ready_api: Api) -> None:
    """Requests on the fast path are counted by their route as well."""
    for _ in range(3):
        ready_api.get("/watcher/a")
    assert 'trimaran_http_requests_total{route="/watcher/<host>",status="200"} 3.0' in ready_api.get("/metrics").text
    assert 'request_duration_seconds_count{route="/watcher/<host>"} 3.0' in ready_api.get("/metrics").text


def test_expired_answers_leave_the_fast_path(ready_api: Api) -> None:
    """From the expiry on, the routes decide the answer."""
    comparison = PathComparison(ready_api)
    assert comparison.check("GET", "/watcher")
    ready_api.now = START + 301
    assert not comparison.check("GET", "/watcher")
    assert not comparison.check("GET", "/watcher/a")
