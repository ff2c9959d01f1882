"""Tests of the provider Kubelet with fake kubelets: rates, pressure, TLS, rights and deadlines."""

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from support.fake_kubelet import FakeKubelet, rfc3339, run_fake_kubelet, stats, summary
from support.fake_kubernetes import TOKEN, FakeKubernetes, make_certificates, run_fake_kubernetes
from support.harness_kubernetes_metrics_server import certificate_folder
from support.waiting import LIMIT_SECONDS

from runtime.http.gather import Deadline
from watcher.doctor.examination import examine
from watcher.errors import ProviderError, ProviderRefused, ProviderUnavailable
from watcher.findings import Kind
from watcher.model import Window
from watcher.providers.base import Samples, close_provider
from watcher.providers.kubelet.provider import KubeletProvider
from watcher.settings import KubeletSettings, ProviderSettings, Settings
from watcher.testing import reply, serving

AT = 1_900_000_000
SECOND = 1_000_000_000
GIBIBYTE = 2**30
PSI = {
    "cpu": {"some": 100.0, "full": 0.0},
    "memory": {"some": 8.0, "full": 4.0},
    "io": {"some": 50.0, "full": 20.0},
}


class Cluster:
    """Fake API server with nodes of 4 cores and 16 GiB, and their kubelets."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self.api: FakeKubernetes = stack.enter_context(run_fake_kubernetes(certificate_folder()))

    def node(self, name: str = "node-1") -> FakeKubelet:
        """Add a node; return its kubelet."""
        kubelet = self._stack.enter_context(run_fake_kubelet(certificate_folder()))
        self.api.nodes[name] = kubelet.node(name)
        return kubelet

    def settings(self, update: Mapping[str, object] | None = None, **options: object) -> Settings:
        """Return settings for this cluster; ``update`` has constants of the section."""
        access = ProviderSettings(name="Kubelet", address=self.api.url, token=TOKEN, ca_file=self.api.ca_file)
        return Settings(provider=access, kubelet=KubeletSettings(**options).model_copy(update=update))

    def provider(self, **options: Any) -> KubeletProvider:
        """Return a provider of this cluster."""
        provider = KubeletProvider(self.settings(**options))
        self._stack.callback(close_provider, provider)
        return provider


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """Yield an empty cluster."""
    with ExitStack() as stack:
        yield Cluster(stack)


def sample(provider: KubeletProvider) -> Samples:
    """Take a sample."""
    return provider.sample(Deadline.after(10))


def values(samples: Samples, node: str = "node-1") -> dict[str, float]:
    """Return a node's values by type."""
    return {reading.type: reading.value for reading in samples[node].readings}


def grown(psi: dict[str, dict[str, float]], **seconds: float) -> dict[str, dict[str, float]]:
    """Return pressure that has grown by some seconds for each resource."""
    return {of: {kind: total + seconds.get(of, 0) for kind, total in kinds.items()} for of, kinds in psi.items()}


def one_container(cpu: dict[str, Any]) -> dict[str, Any]:
    """Return a summary with one container."""
    pod = {"namespace": "team", "name": "web-1", "uid": "u"}
    return {"node": {}, "pods": [{"podRef": pod, "containers": [{"name": "app", "cpu": cpu}]}]}


def test_rates_need_two_measurements(cluster: Cluster) -> None:
    """A node that was measured once is unknown, not idle; then CPU and pressure are the growth of their counters."""
    kubelet, provider = cluster.node(), cluster.provider()
    kubelet.summary = summary(AT, cpu=900 * SECOND, memory=4 * GIBIBYTE, psi=PSI)
    with pytest.raises(ProviderUnavailable, match="node-1: "):
        sample(provider)
    kubelet.summary = summary(
        AT + 20, cpu=930 * SECOND, memory=8 * GIBIBYTE, psi=grown(PSI, cpu=15.0, memory=1.0, io=5.0)
    )
    samples = sample(provider)
    assert samples["node-1"].timestamp == AT + 20
    assert values(samples) == pytest.approx(
        {
            "CPU": 100 * 30 / 20 / 4, "Memory": 50.0, "CPUPressure": 75.0, "MemoryPressure": 5.0,
            "MemoryFullPressure": 5.0, "IOPressure": 25.0, "IOFullPressure": 25.0,
        }
    )  # fmt: skip
    assert samples.findings == ()


def test_the_kubelets_own_rate_is_the_first(cluster: Cluster) -> None:
    """Before there are two measurements, the rate that the kubelet has measured counts."""
    kubelet, provider = cluster.node(), cluster.provider()
    kubelet.summary = summary(AT, cpu=900 * SECOND, memory=4 * GIBIBYTE, usageNanoCores=2 * SECOND)
    assert values(sample(provider)) == {"CPU": 50.0, "Memory": 25.0}


@pytest.mark.parametrize(("own", "elapsed"), [(2, 10.5), (1.8, 10), (2.4, 10)])
def test_times_are_rounded_to_seconds(cluster: Cluster, own: float, elapsed: float) -> None:
    """The kubelet's own rate counts if it fits the counter within a second, as times are rounded down to seconds."""
    kubelet, provider = cluster.node(), cluster.provider()
    kubelet.summary = summary(AT, cpu=900 * SECOND, memory=GIBIBYTE, psi=PSI)
    with pytest.raises(ProviderUnavailable):
        sample(provider)
    psi = grown(PSI, cpu=5.0)
    kubelet.summary = summary(AT + 10, cpu=921 * SECOND, memory=GIBIBYTE, psi=psi, usageNanoCores=own * SECOND)
    found = values(sample(provider))
    assert (found["CPU"], found["CPUPressure"]) == pytest.approx((100 * 21 / elapsed / 4, 100 * 5 / elapsed))


def test_a_node_that_was_away_has_its_capacity_read_again(cluster: Cluster) -> None:
    """A node that was created again with half of the capacity is right in its first sample, with the time of that."""
    cluster.node("other").summary = summary(AT, cpu=SECOND, memory=GIBIBYTE, usageNanoCores=SECOND)
    kubelet, provider = cluster.node(), cluster.provider()
    kubelet.summary = summary(AT, cpu=900 * SECOND, memory=4 * GIBIBYTE, usageNanoCores=SECOND)
    assert values(sample(provider)) == pytest.approx({"CPU": 25.0, "Memory": 25.0})
    kubelet.summary = 503
    assert set(sample(provider)) == {"other"}
    node = cluster.api.nodes["node-1"]
    node["status"]["capacity"] = {"cpu": "2", "memory": "8Gi"}
    node["metadata"]["creationTimestamp"] = rfc3339(AT + 30)
    kubelet.summary = summary(AT + 60, cpu=9000 * SECOND, memory=4 * GIBIBYTE, usageNanoCores=SECOND)
    found = sample(provider)
    assert values(found) == pytest.approx({"CPU": 50.0, "Memory": 50.0})
    assert found["node-1"].since == AT + 30


def test_a_repeated_measurement_is_the_same_sample(cluster: Cluster) -> None:
    """Until the kubelet measures again, the sample and its time stay the same, so that it is counted once."""
    kubelet, provider = cluster.node(), cluster.provider()
    kubelet.summary = summary(AT, cpu=0, memory=GIBIBYTE, usageNanoCores=SECOND)
    first = sample(provider)
    kubelet.summary = summary(AT + 10, cpu=20 * SECOND, memory=GIBIBYTE)
    second = sample(provider)
    assert (values(first)["CPU"], values(second)["CPU"]) == (25.0, 50.0)
    assert sample(provider) == second


def test_a_restarted_counter_is_unknown(cluster: Cluster) -> None:
    """After a restart of the node its counters begin again: one measurement without a rate, never a negative one."""
    kubelet, provider = cluster.node(), cluster.provider()
    for at, cpu, psi in ((0, 900, PSI), (20, 1, grown(PSI, cpu=-99.0)), (40, 21, grown(PSI, cpu=-89.0))):
        kubelet.summary = summary(AT + at, cpu=cpu * SECOND, memory=GIBIBYTE, psi=psi)
        if at < 40:
            with pytest.raises(ProviderUnavailable, match="once"):
                sample(provider)
    assert values(sample(provider)) == pytest.approx(
        {"CPU": 25.0, "Memory": 6.25, "CPUPressure": 50.0, "MemoryPressure": 0, "MemoryFullPressure": 0,
         "IOPressure": 0, "IOFullPressure": 0}
    )  # fmt: skip


@pytest.mark.parametrize("psi", [None, {of: dict.fromkeys(kinds, 0.0) for of, kinds in PSI.items()}])
def test_absent_pressure_is_not_zero(cluster: Cluster, psi: dict[str, dict[str, float]] | None) -> None:
    """A kubelet without pressure, or with only zeros, as on a kernel that does not count it, has no such metrics."""
    kubelet, provider = cluster.node(), cluster.provider()
    kubelet.summary = summary(AT, cpu=0, memory=GIBIBYTE, psi=psi, usageNanoCores=SECOND)
    sample(provider)
    kubelet.summary = summary(AT + 10, cpu=10 * SECOND, memory=GIBIBYTE, psi=psi, usageNanoCores=SECOND)
    assert values(sample(provider)).keys() == {"CPU", "Memory"}
    (step,) = (step for step in examine(cluster.settings()) if step.step == "Kubelet: pressure")
    assert step.ok
    assert "0 of 1 nodes" in step.message


def test_the_short_summary_has_no_io(cluster: Cluster) -> None:
    """kubelet.only_cpu_and_memory asks for the shorter summary."""
    kubelet, provider = cluster.node(), cluster.provider(only_cpu_and_memory=True)
    for at in (0, 10):
        kubelet.summary = summary(AT + at, cpu=at * SECOND, memory=GIBIBYTE, psi=PSI, usageNanoCores=SECOND)
        samples = sample(provider)
    assert values(samples).keys() == {"CPU", "Memory", "CPUPressure", "MemoryPressure", "MemoryFullPressure"}
    assert {path for path, _ in kubelet.requests} == {"/stats/summary?only_cpu_and_memory=true"}


@pytest.mark.parametrize("status", [403, 404])
def test_without_the_summary_metrics_resource_is_read(cluster: Cluster, status: int) -> None:
    """Without the right or the route, CPU and memory come from /metrics/resource; the doctor says what is missing."""
    kubelet, provider = cluster.node(), cluster.provider()
    kubelet.summary = status
    line = "node_cpu_usage_seconds_total {cpu} {at}000\nnode_memory_working_set_bytes {memory} {at}000\n"
    kubelet.metrics = "# HELP\n" + line.format(cpu="1.5e+02", memory=4 * GIBIBYTE, at=AT)
    with pytest.raises(ProviderUnavailable):
        sample(provider)
    kubelet.metrics = line.format(cpu=170, memory=4 * GIBIBYTE, at=AT + 10)
    assert values(sample(provider)) == {"CPU": 50.0, "Memory": 25.0}
    assert [path for path, _ in kubelet.requests] == ["/stats/summary", "/metrics/resource", "/metrics/resource"]
    assert str(status) in provider.pressure_absence
    assert ("nodes/stats" in provider.pressure_absence) == (status == 403)


def test_containers_of_metrics_resource(cluster: Cluster) -> None:
    """Containers have a rate from the second measurement on; the first alone does not make them idle."""
    kubelet, provider = cluster.node(), cluster.provider()
    now = int(time.time())
    window = Window("", now - 300, now)
    labels = 'container="app",namespace="team",pod="web-1"'
    for at, cpu in ((now - 20, 10.0), (now - 10, 15.0)):
        kubelet.metrics = (
            f"container_cpu_usage_seconds_total{{{labels}}} {cpu} {at}000\n"
            f"container_memory_working_set_bytes{{{labels}}} 1048576 {at}000\n"
        )
        if cpu == 10.0:
            with pytest.raises(Exception, match="container"):
                provider.pod_use(window, Deadline.after(5))
    use = provider.pod_use(window, Deadline.after(5))
    assert (use.namespaces, use.pods, use.containers) == (("team",), ("web-1",), ("app",))
    assert (use.cpu_cores.tolist(), use.memory_bytes.tolist()) == ([0.5], [1048576.0])
    assert [text.partition(":")[0] for text in use.unchecked] == ["throttling of CPU", "waiting for CPU (PSI)"]


def test_containers_wait_for_cpu(cluster: Cluster) -> None:
    """The share of the last five minutes in which a container waited for CPU is its strain."""
    kubelet, provider = cluster.node(), cluster.provider()
    now = int(time.time())
    cpu = stats(now, {"some": 30.0}, usageNanoCores=SECOND)
    cpu["psi"]["some"]["avg300"] = 12.5
    kubelet.summary = one_container(cpu)
    use = provider.pod_use(Window("", now - 300, now), Deadline.after(5))
    assert use.strain is not None
    assert use.strain[1].tolist() == [0.125]
    assert [text.partition(":")[0] for text in use.unchecked] == ["throttling of CPU"]


def pods_at(at: float, cpu: int, waiting: float, avg300: float, **own: int) -> dict[str, Any]:
    """Return a summary with one container, its counters in seconds."""
    measured = stats(at, {"some": waiting}, usageCoreNanoSeconds=cpu * SECOND, **own)
    measured["psi"]["some"]["avg300"] = avg300
    return one_container(measured)


@pytest.mark.parametrize("own", [0, 3 * SECOND])
def test_a_counter_is_preferred_to_a_rate(cluster: Cluster, own: int) -> None:
    """The kubelet's own rates are 0 or late; their counters say what was used, in every later round."""
    kubelet, provider = cluster.node(), cluster.provider()
    now = int(time.time())
    window = Window("", now - 300, now)
    kubelet.summary = pods_at(now - 60, 5000, 30.0, 90.0, usageNanoCores=own)
    if own:
        assert provider.pod_use(window, Deadline.after(5)).cpu_cores.tolist() == [3.0]
    else:  # 0 is no rate of a container that has used CPU
        with pytest.raises(Exception, match="container"):
            provider.pod_use(window, Deadline.after(5))
    kubelet.summary = pods_at(now - 30, 5015, 33.0, 90.0, usageNanoCores=own)
    for _ in range(2):  # a repeated measurement has the same rates
        use = provider.pod_use(window, Deadline.after(5))
        assert use.strain is not None
        assert (use.cpu_cores.tolist(), use.strain[1].tolist()) == ([0.5], [0.1])
    kubelet.summary = pods_at(now - 10, 1, 1.0, 90.0, usageNanoCores=SECOND)
    use = provider.pod_use(window, Deadline.after(5))  # the counters began again: until the next round, the own rates
    assert use.strain is not None
    assert (use.cpu_cores.tolist(), use.strain[1].tolist()) == ([1.0], [0.9])


def test_the_kubelets_rate_of_zero_is_unknown(cluster: Cluster) -> None:
    """A node that has used CPU is not idle because the kubelet's own rate is 0: its first sample waits for a rate."""
    kubelet, provider = cluster.node(), cluster.provider()
    kubelet.summary = summary(AT, cpu=900 * SECOND, memory=4 * GIBIBYTE, usageNanoCores=0)
    with pytest.raises(ProviderUnavailable, match="once"):
        sample(provider)
    kubelet.summary = summary(AT + 10, cpu=920 * SECOND, memory=4 * GIBIBYTE, usageNanoCores=0)
    assert values(sample(provider)) == pytest.approx({"CPU": 50.0, "Memory": 25.0})


def test_an_untrusted_kubelet_does_not_get_the_token(cluster: Cluster, tmp_path: Path) -> None:
    """A certificate of another CA ends the connection before the token is sent; the finding names the setting."""
    make_certificates(tmp_path)
    kubelet = cluster.node()
    kubelet.summary = summary(AT, cpu=0, memory=GIBIBYTE, usageNanoCores=SECOND)
    with pytest.raises(Exception, match=r"kubelet\.ca_file"):
        sample(cluster.provider(ca_file=tmp_path / "ca.pem"))
    assert kubelet.requests == []
    trusted = sample(cluster.provider(ca_file=cluster.api.ca_file))
    assert values(trusted)["CPU"] == 25.0
    assert trusted.findings == ()
    unverified = sample(cluster.provider(insecure_skip_verify=True))
    assert values(unverified)["CPU"] == 25.0
    assert [finding.kind for finding in unverified.findings] == [Kind.UNVERIFIED]


@pytest.mark.parametrize(
    "address",
    [
        "10.0.0.7@127.0.0.1:{port}/steal?", "localhost", "localhost:{port}/steal?", "127.0.0.1:{port}/", "127.0.0.1/",
        "[::1]", "fe80::1%@127.0.0.1:{port}?", "::1%]@127.0.0.1:{port}?", "2130706433", "0x7f.1", "127.1", "127.0.0.1 ",
        "127.0.0.1\n", "\uff1127.0.0.1", "::1]:1/", "",
    ],
)  # fmt: skip
def test_only_ip_addresses_get_the_token(cluster: Cluster, address: str) -> None:
    """A node that names anything but an IP address as its InternalIP is a finding; nothing is sent for it."""
    good, kubelet = cluster.node("good"), cluster.node("evil")
    for each in (good, kubelet):
        each.summary = summary(AT, cpu=0, memory=GIBIBYTE, usageNanoCores=SECOND)
    named = address.format(port=kubelet.port)
    cluster.api.nodes["evil"]["status"]["addresses"] = [{"type": "InternalIP", "address": named}]
    samples = sample(cluster.provider(insecure_skip_verify=True))
    assert samples.keys() == {"good"}
    assert [finding.node for finding in samples.findings if finding.kind is Kind.NO_METRICS] == ["evil"]
    assert kubelet.requests == []


def test_the_port_of_a_kubelet_is_a_port(cluster: Cluster) -> None:
    """A port that there is not is a finding of its node alone."""
    cluster.node("good").summary = summary(AT, cpu=0, memory=GIBIBYTE, usageNanoCores=SECOND)
    cluster.node("evil").summary = summary(AT, cpu=0, memory=GIBIBYTE, usageNanoCores=SECOND)
    cluster.api.nodes["evil"]["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"] = 65536
    samples = sample(cluster.provider())
    assert samples.keys() == {"good"}
    assert "65536" in samples.findings[0].message


@pytest.mark.parametrize("chosen", ["", "ca_file", "provider.ca_file", "insecure_skip_verify"])
def test_outside_a_cluster_a_ca_is_needed(cluster: Cluster, chosen: str) -> None:
    """The system's authorities sign for any host, so no kubelet is asked until the user has chosen whom to trust."""
    kubelet = cluster.node()
    kubelet.summary = summary(AT, cpu=0, memory=GIBIBYTE, usageNanoCores=SECOND)
    settings = Settings(
        provider=ProviderSettings(
            name="Kubelet", address=cluster.api.url, token=TOKEN, insecure_skip_verify=chosen != "provider.ca_file",
            ca_file=cluster.api.ca_file if chosen == "provider.ca_file" else None,
        ),
        kubelet=KubeletSettings(
            ca_file=cluster.api.ca_file if chosen == "ca_file" else None,
            insecure_skip_verify=chosen == "insecure_skip_verify",
        ),
    )  # fmt: skip
    with ExitStack() as stack:
        provider = KubeletProvider(settings)
        stack.callback(close_provider, provider)
        if chosen:
            assert values(sample(provider))["CPU"] == 25.0
        else:
            names = r"kubelet\.ca_file.*kubelet\.insecure_skip_verify.*kubelet\.through_api_server"
            now = int(time.time())
            with pytest.raises(ProviderRefused, match=names):
                sample(provider)
            with pytest.raises(ProviderRefused, match=names):
                provider.pod_use(Window("", now - 300, now), Deadline.after(5))
            failed = [step for step in provider.check() if not step.ok]
            assert [(step.step, step.setting) for step in failed] == [("read kubelets", "kubelet.ca_file")]
            assert kubelet.requests == []


def test_the_summary_of_another_node_is_refused(cluster: Cluster) -> None:
    """A node that names the address of another does not get its load, nor its containers."""
    kubelet = cluster.node("real")
    cluster.api.nodes["thief"] = {**cluster.api.nodes["real"], "metadata": {"name": "thief"}}
    kubelet.summary = summary(AT, cpu=0, memory=GIBIBYTE, usageNanoCores=SECOND)
    provider = cluster.provider()
    samples = sample(provider)
    assert samples.keys() == {"real"}
    assert samples.findings[0].node == "thief"
    assert "'real'" in samples.findings[0].message
    now = int(time.time())
    kubelet.summary = one_container(stats(now, usageNanoCores=SECOND))
    use = provider.pod_use(Window("", now - 300, now), Deadline.after(5))
    assert use.pods == ("web-1",)
    assert [finding.node for finding in use.findings] == ["thief"]


def test_a_nodes_own_path_stays_below_the_node(cluster: Cluster) -> None:
    """An annotation cannot lead from the node's proxy to other objects of the API server."""
    evil = ("/../../secrets", "/metrics/%2e%2e/x", "/a?b", "/a#b", "//x", "/./x", "/a\\..\\b")
    for number, path in enumerate(evil):
        name = f"node-{number}"
        cluster.node(name).metrics = "node_cpu_usage_seconds_total 1\nnode_memory_working_set_bytes 1\n"
        annotations = {"metrics.k8s.io/resource-metrics-path": path}
        cluster.api.nodes[name]["metadata"]["annotations"] = annotations
    for through in (False, True):
        provider = cluster.provider(through_api_server=through)
        cluster.api.requests.clear()
        with pytest.raises(ProviderError, match="resource-metrics-path"):
            sample(provider)
        assert [request[0].partition("?")[0] for request in cluster.api.requests] == ["/api/v1/nodes"]


def test_slow_kubelets_do_not_delay_the_others(cluster: Cluster) -> None:
    """A kubelet that does not answer costs its own timeout, is reported, and is asked last the next time."""
    slow = [cluster.node(f"a-slow-{number}") for number in range(4)]
    for kubelet in slow:
        kubelet.delay_seconds = 2 * LIMIT_SECONDS
    fast = cluster.node("z-fast")
    fast.summary = summary(AT, cpu=0, memory=GIBIBYTE, usageNanoCores=SECOND)
    provider = cluster.provider(update={"concurrency": 2, "timeout_seconds": 0.3})
    began = time.monotonic()
    samples = provider.sample(Deadline.after(2 * LIMIT_SECONDS))
    assert time.monotonic() - began < LIMIT_SECONDS
    assert samples.keys() == {"z-fast"}
    assert {finding.node for finding in samples.findings} == {f"a-slow-{number}" for number in range(4)}
    assert "5 s" in samples.findings[0].message
    for kubelet in (*slow, fast):
        kubelet.arrivals.clear()
    assert provider.sample(Deadline.after(2 * LIMIT_SECONDS)).keys() == {"z-fast"}
    assert (
        sum(at < fast.arrivals[0] for kubelet in slow for at in kubelet.arrivals) <= 1
    )  # the other one of the first two


def test_through_the_api_server(tmp_path: Path) -> None:
    """By opt-in the API server passes the requests on; the doctor warns that the right allows more."""
    node = FakeKubelet(port=1).node("node-1")
    body = summary(AT, cpu=0, memory=GIBIBYTE, usageNanoCores=SECOND)
    answers = {"/api/v1/nodes": {"items": [node]}, "/api/v1/nodes/node-1/proxy/stats/summary": body}

    def answer(handler: BaseHTTPRequestHandler) -> None:
        path = handler.path.partition("?")[0]
        reply(handler, json.dumps(answers[path]).encode() if path in answers else b"", 200 if path in answers else 404)

    with serving(answer) as api:
        provider = KubeletProvider(
            Settings(
                provider=ProviderSettings(name="Kubelet", address=api.url, token=TOKEN),
                kubelet=KubeletSettings(through_api_server=True),
            )
        )
        steps = list(provider.check())
        samples = sample(provider)
        close_provider(provider)
    assert values(samples)["CPU"] == 25.0
    assert all(step.ok for step in steps)
    assert "all pods" in " ".join(step.message for step in steps)


def test_a_shared_kubelet_is_read_by_the_nodes_path(cluster: Cluster) -> None:
    """A node that names its own path, as virtual kubelets do, is read there: the summary may be of another node."""
    kubelet, provider = cluster.node(), cluster.provider()
    kubelet.metrics = "node_cpu_usage_seconds_total 1\nnode_memory_working_set_bytes 1\n"
    cluster.api.nodes["node-1"]["metadata"]["annotations"] = {
        "metrics.k8s.io/resource-metrics-path": "/metrics/resource"
    }
    with pytest.raises(ProviderUnavailable):
        sample(provider)
    assert [path for path, _ in kubelet.requests] == ["/metrics/resource"]
