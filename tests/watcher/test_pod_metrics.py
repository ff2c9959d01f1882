"""The use of containers from the Kubernetes metrics API, on a fake API server over TLS."""

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from support.fake_kubernetes import METRICS_GROUP, TOKEN, FakeKubernetes, pod_metrics, run_fake_kubernetes

from runtime.http.budget import Budget, use_budget
from runtime.http.gather import Deadline
from watcher.errors import ProviderAnswerError, ProviderError, ProviderRefused, ProviderUnavailable
from watcher.model import Window
from watcher.providers.kubernetes_metrics_server import KubernetesMetricsServerProvider
from watcher.settings import ProviderSettings, Settings
from watcher.windows.container_use import ContainerUse

NOW = int(time.time())


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[FakeKubernetes]:
    with run_fake_kubernetes(tmp_path) as fake:
        yield fake


@pytest.fixture
def provider(fake: FakeKubernetes) -> Iterator[KubernetesMetricsServerProvider]:
    provider = KubernetesMetricsServerProvider(
        Settings(provider=ProviderSettings(name="K", address=fake.url, token=TOKEN, ca_file=fake.ca_file))
    )
    yield provider
    provider.close()


def read(provider: KubernetesMetricsServerProvider, seconds: float = 10) -> ContainerUse:
    return provider.pod_use(Window("5m", NOW - 300, NOW), Deadline.after(seconds))


def test_every_container_has_its_use(fake: FakeKubernetes, provider: KubernetesMetricsServerProvider) -> None:
    """Cores and bytes of each container, from quantities in all their forms, and the usual window of CPU."""
    fake.pod_metrics = {
        "a": pod_metrics("web-1", NOW, ("app", "250123456n", "100Mi"), ("proxy", "15m", "0"), namespace="shop"),
        "b": pod_metrics("db-0", NOW, ("main", "2", "1234567")),
        "c": pod_metrics("without-containers", NOW),
        "d": pod_metrics("other", NOW, ("main", "0", "1Ki"), window="1m0.25s"),
    }
    use = read(provider)
    assert list(zip(use.namespaces, use.pods, use.containers, strict=True)) == [
        ("shop", "web-1", "app"), ("shop", "web-1", "proxy"), ("default", "db-0", "main"), ("default", "other", "main")
    ]  # fmt: skip
    np.testing.assert_allclose(use.cpu_cores, [0.250123456, 0.015, 2, 0], rtol=1e-12)
    np.testing.assert_array_equal(use.memory_bytes, [100 * 2**20, 0, 1234567, 1024])
    assert (use.timestamp, use.window_seconds, use.findings) == (NOW, 15.5, ())


def test_impossible_values_are_dropped(fake: FakeKubernetes, provider: KubernetesMetricsServerProvider) -> None:
    """Negative, huge and unreadable quantities are unknown, with a finding; the other containers keep theirs."""
    fake.pod_metrics = {
        "a": pod_metrics("bad", NOW, ("x", "-5n", "-1Mi"), ("y", "1e18", "99E"), ("z", "much", "")),
        "b": pod_metrics("good", NOW, ("main", "1", "1Mi")),
    }
    fake.pod_metrics["a"]["containers"].append({"name": "w", "usage": {"cpu": "5m"}})
    use = read(provider)
    known = dict(zip(use.containers, zip(use.cpu_cores.tolist(), use.memory_bytes.tolist(), strict=True), strict=True))
    assert known["main"] == (1.0, 2**20)
    assert known["w"] == (0.005, pytest.approx(float("nan"), nan_ok=True))
    assert known.keys() == {"main", "w"}
    assert [finding.message[:12] for finding in use.findings] == ["3 values of ", "4 values of "]


def test_lists_in_pages_are_read_to_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server of the metrics API that returns pages is asked for all of them; a list without an end is an error."""
    provider = KubernetesMetricsServerProvider(Settings(provider=ProviderSettings(name="K", address="http://k")))
    page = b'{"items": [{"metadata": {"name": "%d", "namespace": "n"}, "containers": [{"name": "c", "usage": {"cpu": "1"}}]}], "metadata": {"continue": "%s"}}'  # noqa: E501
    asked: list[str] = []

    def answer(*_arguments: object, **query: str) -> bytes:
        asked.append(query["continue"])
        return page % (len(asked), b"" if len(asked) == 3 else b"%d" % len(asked))

    monkeypatch.setattr(provider._api, "read", answer)
    assert list(read(provider).pods) == ["1", "2", "3"]
    assert asked == ["", "1", "2"]
    monkeypatch.setattr(provider._api, "read", lambda *_arguments, **_query: page % (1, b"again"))
    with pytest.raises(ProviderUnavailable):
        read(provider)


@pytest.mark.parametrize(
    "body", [b"<html>", b"", b"[]", b"null", b"{}", b"\xff", b'{"items": [7]}', b'{"items": [{"metadata": {}}]}']
)
def test_other_bodies_are_errors(monkeypatch: pytest.MonkeyPatch, body: bytes) -> None:
    """A body that is not a list of PodMetrics is a ProviderError."""
    provider = KubernetesMetricsServerProvider(Settings(provider=ProviderSettings(name="K", address="http://k")))
    monkeypatch.setattr(provider._api, "read", lambda *_arguments, **_query: body)
    with pytest.raises(ProviderError, match="PodMetrics"):
        read(provider)


def test_failures_name_the_remedy(fake: FakeKubernetes, provider: KubernetesMetricsServerProvider) -> None:
    """A missing right names the rule; an absent metrics API and one without pods name the cause."""
    with pytest.raises(ProviderAnswerError, match="no metrics"):
        read(provider)
    fake.forbidden = {(METRICS_GROUP, "pods", "list")}
    with pytest.raises(
        ProviderRefused, match=r'apiGroups: \["metrics.k8s.io"\], resources: \["pods"\], verbs: \["list"\]'
    ):
        read(provider)
    fake.metrics_api = "missing"
    with pytest.raises(ProviderError, match="metrics-server"):
        read(provider)


def test_the_memory_of_a_response_is_bounded(fake: FakeKubernetes, provider: KubernetesMetricsServerProvider) -> None:
    """A response above the budget is an error that names the setting, and leaves nothing charged."""
    fake.pod_metrics = {str(number): pod_metrics(f"web-{number}", NOW, ("main", "1", "1Mi")) for number in range(2000)}
    budget = Budget(100_000, "the responses are", "watch.max_fetch_megabytes")
    with use_budget(budget), pytest.raises(ProviderAnswerError, match=r"watch\.max_fetch_megabytes"):
        read(provider)
    budget.charge_bytes(99_999)
