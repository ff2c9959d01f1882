"""Contract of both clients: a service over HTTP and an embedded watcher, with the same settings, answer alike."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from support.fake_kubernetes import FakeKubernetes, node, node_metrics, pod, pod_metrics, run_fake_kubernetes
from support.past_days import past_days
from support.servers import run_prometheus, wait_until

from client import LibraryClient, NoMetrics, ServiceClient, UnknownNode, UnknownWindow, WatcherClient
from runtime.kubernetes.workloads import Workload
from watcher.usage.sources.autoscalers import HPA_PATH, VPA_PATH

Open = Callable[..., WatcherClient]


@pytest.fixture(params=["service", "embedded"])
def open_client(request: pytest.FixtureRequest, watch: Any, tmp_path: Path, monkeypatch: Any) -> Iterator[Open]:
    """Return a function that opens a client of a watcher with the settings of some environment variables."""
    with ExitStack() as stack:

        def open_one(**environment: str) -> WatcherClient:
            for name, value in environment.items():
                monkeypatch.setenv(name, value)
            if request.param == "embedded":
                return stack.enter_context(LibraryClient(store_path=tmp_path / "watcher.sqlite"))
            service = watch()
            stack.callback(service.terminate)  # killed, it would leave the certificates of its kubeconfig in files
            return stack.enter_context(ServiceClient(service.url))

        yield open_one


def known(call: Callable[[], Any]) -> Any:
    """Return the first answer with metrics."""

    def answer() -> list[Any]:
        try:
            return [call()]
        except NoMetrics:
            return []

    return wait_until(answer, "a round of pod use is complete")[0]


CALLS: dict[str, tuple[Callable[[WatcherClient], object], object]] = {
    "metrics": (lambda client: sorted(known(lambda: client.metrics("5m")).data), ["node-1", "node-2", "node-3"]),
    "node_metrics": (lambda client: list(client.node_metrics("node-2").data), ["node-2"]),
    "history": (lambda client: sorted(client.history(since="1h").nodes), ["node-1", "node-2", "node-3"]),
    "workloads": (
        lambda client: sorted(str(each.name) for each in known(client.workloads).workloads),
        [f"app-{number}" for number in range(1, 7)],
    ),
    "pod_history": (lambda client: known(lambda: client.pod_history(["node-1"])).timestamp > 0, True),
    "windows": (lambda client: client.windows(), ("15m", "10m", "5m")),
    "health": (lambda client: client.health(), ()),
    "close": (lambda client: client.close(), None),
}


def test_every_method_answers(open_client: Open) -> None:
    """Each method of WatcherClient has the expected answer in both clients, and none is left out here."""
    client = open_client(METRICS_PROVIDER_NAME="Fake")
    methods = {name for name in vars(WatcherClient) if not name.startswith("_")}
    assert methods == CALLS.keys()
    for name, (call, expected) in CALLS.items():
        assert call(client) == expected, name


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda client: client.metrics("7m"), UnknownWindow),
        (lambda client: client.node_metrics("nobody"), UnknownNode),
        (lambda client: client.history("nobody"), UnknownNode),
        (lambda client: client.history(step="7s"), ValueError),
        (lambda client: client.workloads(), NoMetrics),
        (lambda client: client.pod_history(["node-1"]), NoMetrics),
    ],
)
def test_both_raise_the_same_error(open_client: Open, call: Callable[[WatcherClient], object], error: Any) -> None:
    """Unknown windows and nodes, bad queries, and pods that are not measured raise the documented errors."""
    client = open_client(METRICS_PROVIDER_NAME="Fake", TRIMARAN_WORKLOADS__ENABLED="false")
    known(client.metrics)
    with pytest.raises(error) as caught:
        call(client)
    assert error is not NoMetrics or "workloads.enabled" in str(caught.value)


@pytest.mark.server
def test_both_know_the_days_before_the_first_start(open_client: Open, tmp_path: Path) -> None:
    """A job that ended more than a day before the start is known by the backfill."""
    with run_prometheus(tmp_path, past_days(int(time.time()) - 5)) as url:
        client = open_client(
            METRICS_PROVIDER_NAME="Prometheus", METRICS_PROVIDER_ADDRESS=url, TRIMARAN_WORKLOADS__BACKFILL_DAYS="3"
        )
        job = Workload("shop", "CronJob", "nightly")
        wait_until(lambda: job in known(client.workloads).workloads, "the past days are filled")
        client.close()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[FakeKubernetes]:
    """A cluster with a node and a pod that metrics-server measures."""
    now = time.time()
    with run_fake_kubernetes(tmp_path) as fake:
        fake.put("nodes", node("n"))
        fake.put("pods", pod("web", "n"))
        fake.metrics["n"] = node_metrics("n", "1", "1Gi", now)
        fake.pod_metrics["default/web"] = pod_metrics("web", now, ("main", "100m", "100Mi"))
        yield fake


def test_autoscalers_are_listed_where_requests_are_recommended(open_client: Open, cluster: FakeKubernetes) -> None:
    """The service recommends requests, which autoscalers may contradict; the embedded watcher lists none of them."""
    client = open_client(METRICS_PROVIDER_NAME="KubernetesMetricsServer", KUBE_CONFIG=str(cluster.kube_config()))
    assert known(client.workloads).workloads
    listed = {path for path, _, _ in cluster.requests} & {HPA_PATH, VPA_PATH}
    assert listed == (set() if isinstance(client, LibraryClient) else {HPA_PATH, VPA_PATH})
    client.close()
