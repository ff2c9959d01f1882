"""Access to workloads by namespace: which callers see which workloads, and what the refusals say."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import requests
from support.bench import Api
from support.reviewing import ReviewingApi
from support.servers import Service
from support.workload_rounds import measured
from werkzeug.test import Client, TestResponse

from runtime.kubernetes.access_reviews import AccessReviews
from runtime.kubernetes.workloads import Workload
from runtime.server.access import AccessCheck
from watcher.api.app import create_app
from watcher.api.pod_access import POD_ROUTES, PodAccess, open_reviews
from watcher.errors import SettingsError
from watcher.settings import ProviderSettings, Settings, WorkloadSettings
from watcher.usage.sources.pods import PodKey, RunningPods
from watcher.wire import COLUMNS_TYPE

OWN_TOKEN = "token-of-the-watcher"
NAMESPACES = ("default", "kube-system", "shop")
Get = Callable[..., TestResponse]


def by_namespace(pods: RunningPods) -> RunningPods:
    """Return the pods with their workloads spread over the namespaces."""
    moved = {}
    for key, pod in pods.items():
        name = pod.template.workload.name
        namespace = NAMESPACES[int(name.removeprefix("web-")) % len(NAMESPACES)]
        template = replace(pod.template, workload=Workload(namespace, "Deployment", name))
        moved[PodKey("shop", key.name)] = pod._replace(template=template)
    return moved


@pytest.fixture(scope="module")
def bench() -> Api:
    """A watcher that has learned workloads of three namespaces."""
    api = Api()
    use, pods = measured(0)
    api.watcher.workloads.observe(use, by_namespace(pods))
    return api


def reader(bench: Api, api: ReviewingApi, *, own_token: bool = False) -> Get:
    """Return a function that requests a path of the watcher with a token; reviews decide."""
    access = AccessCheck(token=OWN_TOKEN if own_token else None, tokenless_routes=POD_ROUTES)
    reviews = AccessReviews(api, "list", "the watcher")
    client = Client(create_app(bench.watcher, bench.telemetry, access, pod_access=PodAccess(access, reviews)))

    def get(path: str, token: str = "", accept: str = "application/json") -> TestResponse:
        headers = {"Accept": accept, **({"Authorization": f"Bearer {token}"} if token else {})}
        return client.get(path, headers=headers)

    return get


def namespaces(answer: TestResponse) -> set[str]:
    """Return the namespaces of a page's workloads."""
    return {item["namespace"] for item in answer.json["workloads"]}


def test_a_caller_sees_the_workloads_whose_pods_it_may_list(bench: Api) -> None:
    """All namespaces by one review, else those that are allowed, by one review each, with a note about the others."""
    api = ReviewingApi()
    get = reader(bench, api)
    everything = get("/workloads", "admin-token")
    assert namespaces(everything) == set(NAMESPACES)
    assert "omitted" not in everything.json
    assert len(api.reviews) == 2
    for _ in range(3):
        some = get("/workloads", "reader-token")
        assert namespaces(some) == {"default"}
        assert some.json["omitted"] == "workloads of namespaces whose pods you may not list are left out"
        assert some.json["total"] == everything.json["total"]
    reviewed = Counter(path.rpartition("/")[2] for path, _ in api.reviews)
    assert reviewed == {"tokenreviews": 2, "subjectaccessreviews": 1 + 1 + len(NAMESPACES)}


def test_pages_of_a_caller_follow_each_other(bench: Api) -> None:
    """Pages skip what the caller may not see, and end with the last workload that it sees."""
    get = reader(bench, ReviewingApi())
    names, after = [], ""
    while True:
        page = get(f"/workloads?limit=2&continue={after}", "reader-token").json
        names += [item["name"] for item in page["workloads"]]
        if not (after := page.get("next", "")):
            break
    shown = get("/workloads", "reader-token").json["workloads"]
    assert names == [item["name"] for item in shown]
    assert len(names) == len(set(names)) > 4


@pytest.mark.parametrize(
    ("path", "accept", "token", "status", "words"),
    [
        ("/workloads?namespace=default", "application/json", "reader-token", 200, ()),
        ("/workloads?kind=None", "application/json", "reader-token", 200, ()),
        ("/workloads?namespace=shop", "application/json", "reader-token", 403,
         ("may not list pods in the namespace shop", 'resources: ["pods"], verbs: ["list"]', "a Role")),
        ("/workloads?namespace=made-up", "application/json", "reader-token", 403, ("in the namespace made-up",)),
        ("/workloads/default/Deployment/web-0", "application/json", "reader-token", 200, ()),
        ("/workloads/shop/Deployment/web-2", "application/json", "reader-token", 403, ("in the namespace shop",)),
        ("/workloads/shop/Deployment/none", "application/json", "reader-token", 403, ("in the namespace shop",)),
        ("/workloads", COLUMNS_TYPE, "reader-token", 403, ("may not list pods in all namespaces", "a ClusterRole")),
        ("/workloads", COLUMNS_TYPE, "admin-token", 200, ()),
        ("/workloads", "application/json", "other-token", 403, ("may not list pods in all namespaces",)),
        ("/workloads", "application/json", "", 401, ("kubectl create token",)),
        ("/workloads", "application/json", "made-up", 401, ("kubectl create token",)),
        ("/pods/history?node=a", "application/json", "reader-token", 403, ("may not list pods in all namespaces",)),
        ("/pods/history?node=a", "application/json", "admin-token", 404, ("the use of no pod is known",)),
        ("/workloads/totals", "application/json", "", 200, ()),
        ("/workloads/totals", "application/json", "other-token", 200, ()),
        ("/watcher/health", "application/json", "", 503, ("nothing was fetched",)),
    ],
)  # fmt: skip
def test_refusals_name_the_right(
    bench: Api, path: str, accept: str, token: str, status: int, words: tuple[str, ...]
) -> None:
    """403 names verb, resource, namespace and the rule to add, 401 the token to send; totals and nodes need neither."""
    answer = reader(bench, ReviewingApi())(path, token, accept)
    assert answer.status_code == status, answer.text
    for word in words:
        assert word in answer.text.replace('\\"', '"')


def test_nobody_sees_workloads_on_an_open_port(bench: Api) -> None:
    """With closed access each route about pods is 403 and names the settings; totals and nodes are served."""
    access = AccessCheck()
    client = Client(create_app(bench.watcher, bench.telemetry, pod_access=PodAccess(access, is_closed=True)))
    for path in ("/workloads", "/workloads/default/Deployment/web-0", "/pods/history?node=a"):
        for accept in ("application/json", COLUMNS_TYPE):
            answer = client.get(path, headers={"Accept": accept})
            assert (answer.status_code, answer.json["error"]["code"]) == (403, "forbidden")
            assert "workloads.access" in answer.text
    assert client.get("/workloads/totals").status_code == 200


@pytest.mark.parametrize(
    ("settings", "status"),
    [
        ((), 404),
        (("--host", "0.0.0.0"), 403),
        (("--host", "0.0.0.0", "--set", "server.token=a-token-of-24-characters"), 404),
        (("--host", "0.0.0.0", "--set", "workloads.access=open"), 404),
        (("--set", "workloads.access=closed"), 403),
    ],
)
def test_a_service_decides_by_its_address(tmp_path: Path, settings: tuple[str, ...], status: int) -> None:
    """Without a token workloads are served on a loopback address only; where nothing is measured that is 404."""
    off = ("--set", "workloads.enabled=false")
    service = Service(tmp_path / "store.db", tmp_path / "log", "--provider", "Fake", *off, *settings)
    try:
        port = service.port
        answer = requests.get(
            f"http://127.0.0.1:{port}/workloads",
            headers={"Authorization": "Bearer a-token-of-24-characters"},
            timeout=60,
        )
        assert answer.status_code == status
    finally:
        service.close()


def test_the_watchers_own_tokens_see_everything(bench: Api) -> None:
    """With tokens of its own the watcher asks for one, and takes a Kubernetes token for routes about pods alone."""
    api = ReviewingApi()
    get = reader(bench, api, own_token=True)
    assert namespaces(get("/workloads", OWN_TOKEN)) == set(NAMESPACES)
    assert get("/workloads", OWN_TOKEN, COLUMNS_TYPE).status_code == 200
    assert api.reviews == []
    assert namespaces(get("/workloads", "reader-token")) == {"default"}
    assert get("/workloads/totals", "other-token").status_code == 200
    assert get("/workloads/totals").status_code == get("/workloads").status_code == 401
    assert get("/watcher", "admin-token").status_code == get("/findings", "admin-token").status_code == 401


def test_without_the_api_server_nobody_sees_workloads(bench: Api) -> None:
    """A review that fails is 503 with the missing right of the watcher, and never shows a workload."""
    api = ReviewingApi()
    api.down = True
    answer = reader(bench, api)("/workloads", "admin-token")
    assert (answer.status_code, answer.json["error"]["code"]) == (503, "no_review")
    assert "tokenreviews" in answer.text


def test_shared_caches_keep_no_reviewed_answer(bench: Api) -> None:
    """The compact form is private, and varies with the caller."""
    answer = reader(bench, ReviewingApi())("/workloads", "admin-token", COLUMNS_TYPE)
    assert (answer.headers["Cache-Control"], answer.headers["Vary"]) == ("private, no-cache", "Accept, Authorization")


def test_reviews_need_access_to_the_api() -> None:
    """Without a kubeconfig or a service account the setting is refused by its name."""
    settings = Settings(provider=ProviderSettings(name="Fake"), workloads=WorkloadSettings(access="review"))
    with pytest.raises(SettingsError, match=r"workloads\.access = 'review': "):
        open_reviews(settings)
