"""Tests of the provider KubernetesMetricsServer, with a fake API server."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.fake_kubernetes import METRICS_GROUP, TOKEN, FakeKubernetes, node, node_metrics, run_fake_kubernetes
from support.waiting import LIMIT_SECONDS

from runtime.http.gather import Deadline
from watcher.errors import ProviderAnswerError, ProviderError, ProviderRefused, ProviderUnavailable
from watcher.findings import Kind
from watcher.model import Window
from watcher.providers.base import Samples
from watcher.providers.kubernetes_metrics_server import METRICS, NODES, KubernetesMetricsServerProvider
from watcher.providers.sampled import Sampled
from watcher.settings import MetricsServerSettings, ProviderSettings, Settings
from watcher.store import Store

CPU, MEMORY = "metrics_server:cpu:percent", "metrics_server:memory:percent"
AT = 1_700_000_000


@pytest.fixture
def fake(kubernetes_folder: Path) -> Iterator[FakeKubernetes]:
    """Cluster with two nodes, half used."""
    with run_fake_kubernetes(kubernetes_folder) as fake:
        for name in ("a", "b"):
            add(fake, name)
        yield fake


@pytest.fixture
def provider(fake: FakeKubernetes) -> Iterator[KubernetesMetricsServerProvider]:
    """Provider for the fake cluster."""
    provider = KubernetesMetricsServerProvider(settings(fake))
    yield provider
    provider.close()


def add(fake: FakeKubernetes, name: str, **labels: str) -> None:
    fake.nodes[name] = node(name, **labels)
    fake.metrics[name] = node_metrics(name, "2", "8Gi", AT)


def settings(fake: FakeKubernetes, token: str = TOKEN, **own: Any) -> Settings:
    return Settings(
        provider=ProviderSettings(
            name="KubernetesMetricsServer", address=fake.url, token=token or None, ca_file=fake.ca_file
        ),
        metrics_server=MetricsServerSettings().model_copy(update=own),
    )


def sample(provider: KubernetesMetricsServerProvider, seconds: float = 10) -> Samples:
    return provider.sample(Deadline.after(seconds))


def values(samples: Samples, name: str) -> dict[str, float]:
    return {reading.name: reading.value for reading in samples[name].readings}


def fails(provider: KubernetesMetricsServerProvider) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        sample(provider)
    return caught.value


def asked(fake: FakeKubernetes, path: str) -> list[dict[str, str]]:
    return [query for asked, query, _ in fake.requests if asked == path]


def test_values_are_percent_of_capacity(fake: FakeKubernetes, provider: KubernetesMetricsServerProvider) -> None:
    """Usage is divided by status.capacity, not by allocatable, and has the source's own time."""
    for amounts in (each["status"]["allocatable"] for each in fake.nodes.values()):
        amounts.update(cpu="1", memory="1Gi")
    samples = sample(provider)
    assert values(samples, "a") == {CPU: 50.0, MEMORY: 50.0}
    assert samples["a"].timestamp == AT
    assert not samples.findings


def test_nanocores_are_not_rounded(fake: FakeKubernetes, provider: KubernetesMetricsServerProvider) -> None:
    """Usage below a millicore is divided exactly; upstream rounds it up to a millicore."""
    fake.metrics["a"]["usage"] = {"cpu": "1n", "memory": "1"}
    assert values(sample(provider), "a") == {CPU: 100 / 4e9, MEMORY: 100 / (16 * 2**30)}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Let the provider read a clock that only the test moves."""
    clock = SimpleNamespace(seconds=1000.0)
    module = "watcher.providers.kubernetes_metrics_server.time"
    monkeypatch.setattr(module, SimpleNamespace(monotonic=lambda: clock.seconds))
    return clock


def test_capacities_are_listed_at_an_interval(
    fake: FakeKubernetes, clock: SimpleNamespace, provider: KubernetesMetricsServerProvider
) -> None:
    """The second sample only requests metrics; after five minutes the nodes are listed again."""
    sample(provider)
    fake.nodes["a"]["status"]["capacity"]["cpu"] = "8"
    clock.seconds += 299
    assert values(sample(provider), "a")[CPU] == 50.0
    assert (len(asked(fake, METRICS)), len(asked(fake, NODES))) == (2, 1)
    clock.seconds += 1
    assert values(sample(provider), "a")[CPU] == 25.0


def test_new_node_is_read_at_once(fake: FakeKubernetes, provider: KubernetesMetricsServerProvider) -> None:
    """A node that is newer than the list is in the next sample, after one request for this node."""
    sample(provider)
    add(fake, "new")
    assert set(sample(provider)) == {"a", "b", "new"}
    sample(provider)
    assert len(asked(fake, f"{NODES}/new")) == len(asked(fake, NODES)) == 1


@pytest.mark.parametrize("deleted", [False, True], ids=["without metrics", "deleted"])
def test_a_node_that_was_away_has_its_capacity_read_again(
    fake: FakeKubernetes, provider: KubernetesMetricsServerProvider, deleted: bool
) -> None:
    """A node that was created again with another capacity is right in its first sample, after one request."""
    sample(provider)
    before = values(sample(provider), "b")
    del fake.metrics["b"]
    if deleted:
        del fake.nodes["b"]
    assert set(sample(provider)) == {"a"}
    add(fake, "b")
    fake.nodes["b"] = node("b", cpu="2", memory="8Gi")
    fake.nodes["b"]["metadata"]["creationTimestamp"] = "2026-01-02T00:00:00Z"
    asked_before = len(asked(fake, f"{NODES}/b"))
    after = [values(sample(provider), "b") for _ in range(2)]
    assert after[0] == after[1] == {name: 2 * value for name, value in before.items()}
    assert sample(provider)["b"].since == 1767312000  # the samples of the earlier machine do not count
    assert len(asked(fake, f"{NODES}/b")) == asked_before + 1


def test_many_new_nodes_are_listed(fake: FakeKubernetes, provider: KubernetesMetricsServerProvider) -> None:
    """A hundred new nodes are read with one list."""
    sample(provider)
    for number in range(100):
        add(fake, f"new-{number}")
    assert len(sample(provider)) == 102
    assert len(asked(fake, NODES)) == 2
    assert not [path for path, *_ in fake.requests if path.startswith(f"{NODES}/")]


def test_deleted_node_is_not_a_finding(fake: FakeKubernetes, provider: KubernetesMetricsServerProvider) -> None:
    """A deleted node without metrics is forgotten without a finding."""
    sample(provider)
    del fake.nodes["b"], fake.metrics["b"]
    samples = sample(provider)
    assert set(samples) == {"a"}
    assert not samples.findings


@pytest.mark.parametrize(("ready", "why"), [("Unknown", "not ready"), ("False", "not ready"), ("True", "kubelet")])
def test_node_without_metrics_is_a_finding(
    fake: FakeKubernetes, provider: KubernetesMetricsServerProvider, ready: str, why: str
) -> None:
    """A node without metrics is reported, with the reason from its conditions."""
    sample(provider)
    fake.nodes["b"] = node("b", ready=ready)
    del fake.metrics["b"]
    for _ in range(2):  # still a finding, after a single request
        (finding,) = sample(provider).findings
        assert (finding.kind, finding.node) == (Kind.NO_METRICS, "b")
        assert why in finding.message
    assert len(asked(fake, f"{NODES}/b")) == 1


def test_metrics_without_a_node_are_a_finding(fake: FakeKubernetes, provider: KubernetesMetricsServerProvider) -> None:
    """Metrics of an unknown node are dropped and reported, and the node is requested once."""
    fake.metrics["ghost"] = node_metrics("ghost", "1", "1Gi", AT)
    for _ in range(2):
        samples = sample(provider)
        assert set(samples) == {"a", "b"}
        (finding,) = samples.findings
        assert (finding.kind, finding.node, finding.action) == (Kind.UNMATCHED_NODE, "ghost", "dropped")
    assert not asked(fake, f"{NODES}/ghost")  # the new list did not have it


def _set(part: str, key: str, value: Any) -> Callable[[FakeKubernetes], None]:
    def change(fake: FakeKubernetes) -> None:
        target: Any = fake.metrics["b"] if part == "metrics" else fake.nodes["b"]["status"]
        *steps, last = key.split(".")
        for step in steps:
            target = target[step]
        target[last] = value

    return change


@pytest.mark.parametrize("written", ["", "NaN", "+Inf", "1.2.3", "much", None, [], {}, True, "9" * 100])
def test_invalid_usage_only_affects_its_metric(
    fake: FakeKubernetes, provider: KubernetesMetricsServerProvider, written: Any
) -> None:
    """Usage that is not a quantity is a finding; the node's other metric and the other nodes are served."""
    _set("metrics", "usage.cpu", written)(fake)
    samples = sample(provider)
    assert values(samples, "a") == {CPU: 50.0, MEMORY: 50.0}
    assert values(samples, "b") == {MEMORY: 50.0}
    (finding,) = samples.findings
    assert (finding.kind, finding.node, finding.metric) == (Kind.BAD_VALUE, "b", CPU)


@pytest.mark.parametrize(
    "change",
    [
        _set("metrics", "usage", None),
        _set("metrics", "usage", ["2"]),
        _set("metrics", "timestamp", None),
        _set("metrics", "timestamp", 17),
        _set("metrics", "timestamp", "yesterday"),
        _set("metrics", "timestamp", "2026-01-01T00:00:00"),
        _set("nodes", "capacity", None),
        _set("nodes", "capacity", "4"),
        _set("nodes", "capacity", {"cpu": "0", "memory": "-1"}),
        _set("nodes", "capacity", {"cpu": "none", "memory": None}),
    ],
)
def test_invalid_node_does_not_affect_others(
    fake: FakeKubernetes, provider: KubernetesMetricsServerProvider, change: Callable[[FakeKubernetes], None]
) -> None:
    """A node with invalid objects is left out with findings, and the other nodes are served."""
    change(fake)
    samples = sample(provider)
    assert set(samples) == {"a"}
    assert {finding.node for finding in samples.findings} == {"b"}
    assert {finding.kind for finding in samples.findings} == {Kind.BAD_VALUE}


@pytest.mark.parametrize("conditions", [None, "Ready", [None], [{"type": "Ready"}]])
def test_invalid_conditions_are_ignored(
    fake: FakeKubernetes, provider: KubernetesMetricsServerProvider, conditions: Any
) -> None:
    """A node with invalid conditions is served."""
    fake.nodes["b"]["status"]["conditions"] = conditions
    assert set(sample(provider)) == {"a", "b"}


def test_nodes_are_listed_in_pages(fake: FakeKubernetes, provider: KubernetesMetricsServerProvider) -> None:
    """All pages of the node list are read, with 500 nodes each."""
    for number in range(4998):
        add(fake, f"node-{number}")
    assert len(sample(provider, 60)) == 5000
    queries = asked(fake, NODES)
    assert len(queries) == 10
    assert {query["limit"] for query in queries} == {"500"}


def test_expired_list_is_read_in_one_page(fake: FakeKubernetes, provider: KubernetesMetricsServerProvider) -> None:
    """Status 410 in the middle of the pages restarts the list without pages."""
    for number in range(600):
        add(fake, f"node-{number}")
    fake.expired_continues = 1
    assert len(sample(provider)) == 602
    assert [query.get("limit") for query in asked(fake, NODES)] == ["500", "500", None]


def test_old_capacities_are_used_while_the_list_fails(
    fake: FakeKubernetes, clock: SimpleNamespace, provider: KubernetesMetricsServerProvider
) -> None:
    """If a later list fails, the known capacities are used, with a finding."""
    sample(provider)
    fake.forbidden.add(("", "nodes", "list"))
    clock.seconds += 300
    samples = sample(provider)
    assert set(samples) == {"a", "b"}
    (finding,) = samples.findings
    assert finding.kind is Kind.QUERY_FAILED
    assert "403" in finding.message
    assert "5 minutes old" in finding.message


def test_failed_request_for_a_node_is_repeated(fake: FakeKubernetes, provider: KubernetesMetricsServerProvider) -> None:
    """A refused request for a new node is a finding; once permitted, the node is served."""
    sample(provider)
    fake.forbidden.add(("", "nodes", "get"))
    add(fake, "new")
    samples = sample(provider)
    assert "new" not in samples
    assert any("403" in finding.message and '"get"' in finding.message for finding in samples.findings)
    fake.forbidden.clear()
    assert "new" in sample(provider)


@pytest.mark.parametrize("group", ["", METRICS_GROUP])
def test_missing_rule_is_named(fake: FakeKubernetes, provider: KubernetesMetricsServerProvider, group: str) -> None:
    """Status 403 names the missing rule of the ClusterRole, and the user."""
    fake.forbidden.add((group, "nodes", "list"))
    error = fails(provider)
    assert isinstance(error, ProviderRefused)
    assert f'{{apiGroups: ["{group}"], resources: ["nodes"], verbs: ["get", "list"]}}' in str(error)
    assert "system:serviceaccount:monitoring:trimaran" in str(error)


def test_wrong_token(fake: FakeKubernetes) -> None:
    """Status 401 names the origin of the token, and no message has the token."""
    provider = KubernetesMetricsServerProvider(settings(fake, token="s3cret-of-mine"))
    error = fails(provider)
    steps = list(provider.check())
    provider.close()
    assert isinstance(error, ProviderRefused)
    assert "401" in str(error)
    assert "s3cret" not in f"{error} {steps}"


def test_missing_token(fake: FakeKubernetes) -> None:
    """A refused anonymous request names the token settings instead of RBAC."""
    provider = KubernetesMetricsServerProvider(settings(fake, token=""))
    error = fails(provider)
    provider.close()
    assert isinstance(error, ProviderRefused)
    assert "no token was sent: set provider.token_file" in str(error)
    assert "ClusterRole" not in str(error)


@pytest.mark.parametrize(
    ("state", "expected", "hint"),
    [
        ("missing", ProviderAnswerError, "install metrics-server"),
        ("down", ProviderUnavailable, "kubectl get apiservice"),
    ],
)
def test_missing_metrics_api(
    fake: FakeKubernetes, provider: KubernetesMetricsServerProvider, state: str, expected: type[Exception], hint: str
) -> None:
    """A missing metrics API, and one without a server, have different errors with their remedy."""
    fake.metrics_api = state
    error = fails(provider)
    assert isinstance(error, expected)
    assert hint in str(error)
    fake.metrics_api = "served"
    assert len(sample(provider)) == 2


def test_new_metrics_server_has_no_metrics(fake: FakeKubernetes, provider: KubernetesMetricsServerProvider) -> None:
    """An empty list of metrics is an error about the metrics server's start."""
    fake.metrics.clear()
    assert "has no metrics of any node" in str(fails(provider))


def test_no_usable_metrics_are_an_error(fake: FakeKubernetes, provider: KubernetesMetricsServerProvider) -> None:
    """If no node has usable metrics, the error has the first reason."""
    fake.metrics = {"ghost": node_metrics("ghost", "1", "1Gi", AT)}
    assert "ghost" in str(fails(provider))


def test_node_selector(fake: FakeKubernetes) -> None:
    """With metrics_server.node_selector, other nodes are neither served nor reported."""
    add(fake, "virtual", type="virtual-kubelet")
    provider = KubernetesMetricsServerProvider(settings(fake, node_selector="type!=virtual-kubelet"))
    fake.metrics["virtual"]["metadata"]["labels"] = {}  # an adapter may ignore the selector
    for _ in range(2):
        samples = sample(provider)
        assert set(samples) == {"a", "b"}
        assert not samples.findings
        add(fake, "virtual-2", type="virtual-kubelet")
    provider.close()


def test_findings_of_a_sample_are_in_the_fetch(fake: FakeKubernetes) -> None:
    """The findings of the last sample are in the fetch, with its window."""
    now = float(AT)
    store = Store(None)
    sampled = Sampled(
        KubernetesMetricsServerProvider(settings(fake)), settings(fake).watch, store, "test", clock=lambda: now
    )
    for cores in ("1", "2"):
        fake.metrics = {"a": node_metrics("a", cores, "8Gi", now)}
        sampled.sample_once()
        now += 15
    try:
        fetched = sampled.fetch(Window("5m", int(now) - 300, int(now)), Deadline.after(0))
    finally:
        sampled.close()
        store.close()
    assert [(each.window, each.node) for each in fetched.findings if each.kind is Kind.NO_METRICS] == [("5m", "b")]


def test_check_succeeds(fake: FakeKubernetes, provider: KubernetesMetricsServerProvider) -> None:
    """The steps are the access, both lists and their comparison; a node without metrics is named."""
    assert all(step.ok for step in provider.check())
    del fake.metrics["b"]
    *_, last = provider.check()
    assert not last.ok
    assert "without: b" in last.message
    assert last.setting == "metrics_server.node_selector"


@pytest.mark.parametrize(
    ("break_it", "step", "hint", "setting"),
    [
        (lambda fake: fake.tokens.clear(), "list nodes", "has expired", "provider.token"),
        (lambda fake: fake.forbidden.add(("", "nodes", "list")), "list nodes", 'apiGroups: [""]', "provider.token"),
        (lambda fake: setattr(fake, "metrics_api", "missing"), "read metrics", "install", "provider.name"),
        (lambda fake: setattr(fake, "metrics_api", "down"), "read metrics", "no server", "provider.name"),
        (lambda fake: fake.metrics.clear(), "read metrics", "any node", "metrics_server.node_selector"),
    ],
)
def test_check_names_the_failed_step(
    fake: FakeKubernetes,
    provider: KubernetesMetricsServerProvider,
    break_it: Callable[[FakeKubernetes], None],
    step: str,
    hint: str,
    setting: str,
) -> None:
    """The broken step fails, with a setting and a remedy."""
    break_it(fake)
    failed = {check.step: check for check in provider.check() if not check.ok}
    assert hint in failed[step].message
    assert failed[step].setting == setting
    assert "is provider.address right" not in failed[step].message


def test_slow_cluster_ends_at_the_deadline(fake: FakeKubernetes, provider: KubernetesMetricsServerProvider) -> None:
    """A sample ends at the deadline, and the next sample with enough time succeeds."""
    fake.delay_seconds = 1
    began = time.monotonic()
    with pytest.raises(ProviderUnavailable):
        sample(provider, 0.2)
    assert time.monotonic() - began < LIMIT_SECONDS
    fake.delay_seconds = 0
    assert len(sample(provider)) == 2


def test_package_kubernetes_is_not_needed_in_a_cluster() -> None:
    """The package kubernetes is only imported for a kubeconfig."""
    program = "import watcher.providers.kubernetes_metrics_server, sys; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout.split()
    assert "requests" in loaded
    assert "kubernetes" not in loaded
