"""Route and client of the use of single pods over the last day."""

import base64
from http.server import BaseHTTPRequestHandler

import jsonschema
import numpy as np
import pytest
from support.api_routes import check_error
from support.bench import Api
from support.pod_rounds import BEGIN, a_pod, pod_round, use_of_pods

from client import NoMetrics, ServiceClient
from watcher.api.openapi import document
from watcher.testing import reply, serving
from watcher.usage.sources.pods import PodKey

DOCUMENT = document()


@pytest.fixture(scope="module")
def measured() -> Api:
    """Return an API whose watcher has two hours of the use of pods on two nodes."""
    api = Api()
    for number in range(24):
        api.watcher.pod_use.observe(*pod_round(number))
    return api


def test_the_route_returns_the_pods_on_named_nodes(measured: Api) -> None:
    """The answer matches the OpenAPI document, and its numbers are base64 of half precision."""
    body = measured.get("/pods/history?node=n1&node=n2&pod=uid-0").json
    schema = {**DOCUMENT["components"]["schemas"]["PodUse"], "components": DOCUMENT["components"]}
    jsonschema.Draft202012Validator(schema).validate(body)
    table = measured.watcher.pod_use.table(["n1", "n2"], ["uid-0"])
    assert body["name"] == list(table.names)
    cpu = np.frombuffer(base64.b64decode(body["cpu_cores"]), "<f2").reshape(len(table), 288)
    np.testing.assert_array_equal(cpu, table.cpu_cores)
    assert set(body["node"]) == {"n1", "n2"}


@pytest.mark.parametrize(
    ("query", "message"),
    [("", "name the nodes"), ("?node=", "name the nodes"), ("?host=a", "unknown parameter"),
     ("?" + "&".join(["node=a"] * 101), "at most 100")],
)  # fmt: skip
def test_wrong_requests_are_refused(measured: Api, query: str, message: str) -> None:
    """A request without nodes, with too many or with other parameters is refused with the remedy."""
    assert message in check_error(measured.get(f"/pods/history{query}"), 400, "bad_request")


def test_without_a_round_the_reason_is_given() -> None:
    """Until a round is known the answer is 404."""
    check_error(Api().get("/pods/history?node=n1"), 404, "no_metrics")


def test_the_client_asks_for_any_number_of_nodes() -> None:
    """Over HTTP the client gets the pods of 450 nodes in several requests, and pods that are gone."""
    api, nodes = Api(), [f"a-node-with-a-long-name-{number:04d}.example" for number in range(450)]
    pods = {PodKey("shop", f"p{number}"): a_pod(f"p{number}", node) for number, node in enumerate(nodes)}
    api.watcher.pod_use.observe(use_of_pods(BEGIN, *[(key.name, "main", 1, 1) for key in pods], ("old", "main", 2, 1)),
                                {**pods, PodKey("shop", "old"): a_pod("old", nodes[0])})  # fmt: skip
    api.watcher.pod_use.observe(use_of_pods(BEGIN + 300, *[(key.name, "main", 1, 1) for key in pods]), pods)
    paths = []

    def answer(handler: BaseHTTPRequestHandler) -> None:
        paths.append(handler.path)
        reply(handler, api.get(handler.path).data)

    with serving(answer) as server, ServiceClient(server.url) as client:
        table = client.pod_history(nodes, ["uid-old"])
    assert sorted(table.nodes) == sorted([*nodes, nodes[0]])
    assert table.cpu_cores[list(table.uids).index("uid-old"), -2] == 2.0
    assert len(paths) > 4
    assert max(map(len, paths)) < 4000


def test_the_client_gets_the_reason() -> None:
    """Without a round the client raises what the watcher says."""
    api = Api()

    def answer(handler: BaseHTTPRequestHandler) -> None:
        reply(handler, api.get(handler.path).data, 404)

    with (
        serving(answer) as server,
        ServiceClient(server.url) as client,
        pytest.raises(NoMetrics),
    ):
        client.pod_history(["n1"])
