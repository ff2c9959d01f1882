"""Labels of objects and targets, as different scrape configurations leave them, on a real Prometheus.

Three nodes with a load of 90, 10 and 20 percent, series of node_exporter, kube-state-metrics and cAdvisor.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import numpy as np
import pytest
from support.servers import run_prometheus

from runtime.http.gather import Deadline
from runtime.kubernetes.workloads import Workload
from watcher.api.node_views import NodeViews
from watcher.errors import NotServed
from watcher.findings import Action, Kind
from watcher.model import MetricType, Window
from watcher.providers.base import Fetched
from watcher.providers.prometheus import PrometheusProvider
from watcher.settings import PrometheusQuery, PrometheusSettings, ProviderSettings, Settings
from watcher.usage.sources.kube_state_metrics import KubeStatePods
from watcher.usage.sources.pods import PodKey
from watcher.wire import Dialect

if TYPE_CHECKING:
    from watcher.pipeline.watcher import Watcher

pytestmark = [pytest.mark.server, pytest.mark.usefixtures("closed_sessions")]

LOADS = {1: 90.0, 2: 10.0, 3: 20.0}
NODES = {f"node-{number}": load for number, load in LOADS.items()}
MINUTES = 20
Labels = dict[str, str]
One = tuple[str, Labels, Callable[[int], float | None]]
"""Name and labels of a series, and its value at some seconds after its begin."""


def constant(name: str, value: float = 1, /, **labels: str) -> One:
    return name, labels, lambda after: value


def counter(name: str, rate: float, labels: Labels) -> One:
    return name, labels, lambda after: 1000 + after * rate


def machine(cpu: float, /, **labels: str) -> Iterator[One]:
    """Yield node_exporter's series of a machine with two processors and 50 percent of memory; cpu in percent."""
    for processor in "01":
        for mode, share in (("user", cpu / 100), ("idle", 1 - cpu / 100)):
            yield counter("node_cpu_seconds_total", share, {**labels, "cpu": processor, "mode": mode})
    yield constant("node_memory_MemTotal_bytes", 16e9, **labels)
    yield constant("node_memory_MemAvailable_bytes", 8e9, **labels)


def container(pod: str, cores: float, memory: float, **labels: str) -> Iterator[One]:
    """Yield cAdvisor's series of a container; empty labels are left out, as in the sums of pods and nodes."""
    own = {"namespace": "shop", "pod": pod, "container": "main", "id": f"/{pod}", "job": "kubelet"} | labels
    own = {name: value for name, value in own.items() if value}
    yield counter("container_cpu_usage_seconds_total", cores, own)
    yield constant("container_memory_working_set_bytes", memory, **own)


def pod_info(pod: str, node: str = "node-1") -> Iterator[One]:
    """Yield kube-state-metrics' series of a pod of the Deployment web."""
    key = {"namespace": "shop", "pod": pod, "uid": f"uid-{pod}"}
    yield constant("kube_pod_info", **key, node=node, created_by_kind="ReplicaSet", created_by_name="web-5d4c7b9f6")
    yield constant("kube_pod_status_phase", **key, phase="Running")
    yield constant("kube_pod_start_time", 1_700_000_000, **key)
    yield constant("kube_pod_container_resource_requests", 0.5, **key, container="main", resource="cpu")


def replica_set() -> One:
    labels = {"namespace": "shop", "replicaset": "web-5d4c7b9f6", "owner_kind": "Deployment", "owner_name": "web"}
    return constant("kube_replicaset_owner", **labels)


def scraped(series: Iterable[One], **target: str) -> Iterator[One]:
    """Yield series as scraped without honor_labels: the target's labels stay, and rename the series' own ones."""
    for name, labels, value in series:
        own = {f"exported_{label}" if label in target else label: text for label, text in labels.items()}
        yield name, {**own, **target}, value


def lines(series: Iterable[One], minutes: int = MINUTES) -> Iterator[str]:
    """Yield series as OpenMetrics text, with a sample each 15 seconds until now."""
    begin = int(time.time()) - minutes * 60
    by_name: dict[str, list[One]] = {}
    for each in series:
        by_name.setdefault(each[0], []).append(each)
    for name, group in by_name.items():
        yield f"# TYPE {name} unknown\n"
        for _, labels, value in group:
            text = ",".join(f'{label}="{content}"' for label, content in labels.items())
            for after in range(0, minutes * 60, 15):
                if (sample := value(after)) is not None:
                    yield f"{name}{{{text}}} {float(sample)!r} {begin + after}\n"


def provider_at(url: str, **options: str) -> PrometheusProvider:
    return PrometheusProvider(
        Settings(provider=ProviderSettings(name="Prometheus", address=url), prometheus=PrometheusSettings(**options))
    )


def fetched(provider: PrometheusProvider, minutes: int = 5) -> Fetched:
    end = int(time.time()) - 15
    return provider.fetch(Window(f"{minutes}m", end - minutes * 60, end), Deadline.after(20))


def loads(found: Fetched, type_: MetricType = MetricType.CPU) -> dict[str, float]:
    """Return the average of each node, rounded to a tenth."""
    return {
        node: round(metric.value, 1)
        for node, metrics in found.nodes.items()
        for metric in metrics.metrics
        if (metric.type, metric.operator) == (type_, "AVG")
    }


def past_loads(provider: PrometheusProvider, type_: str) -> dict[str, float]:
    """Return the average of each node in the history that is read from the past, rounded to a tenth."""
    end = int(time.time()) // 60 * 60 - 60
    past = provider.past("5m", range(end - 60, end + 1, 60), Deadline.after(20))
    return {
        node: round(float(values[row, -1]), 1)
        for (each, operator, _), values in past.series.items()
        for row, node in enumerate(past.nodes)
        if (each, operator) == (type_, "AVG") and np.isfinite(values[row, -1])
    }


def uses(provider: PrometheusProvider) -> Mapping[tuple[str, str, str], tuple[float, float]]:
    """Return cores and bytes of each container."""
    end = int(time.time()) - 15
    use = provider.pod_use(Window("5m", end - 300, end), Deadline.after(20))
    values = zip(use.cpu_cores.round(2).tolist(), use.memory_bytes.tolist(), strict=True)
    return dict(zip(zip(use.namespaces, use.pods, use.containers, strict=True), values, strict=True))


def kube_state_target(*names: str, **more: str) -> Labels:
    """Return target labels of kube-state-metrics' pod."""
    known = {"node": "node-2", "namespace": "monitoring", "pod": "ksm-1", "container": "ksm", "uid": "uid-ksm",
             "service": "ksm"}  # fmt: skip
    return {name: known[name] for name in names} | {"job": "ksm", "instance": "10.244.2.9:8080"} | more


TARGETS = [("node",), ("pod", "namespace"), ("node", "pod", "namespace"),
           ("namespace", "pod", "container", "service", "uid", "node")]  # fmt: skip


@pytest.mark.parametrize("names", TARGETS, ids="-".join)
def test_nodes_are_named_by_the_objects_own_labels(tmp_path: Path, names: tuple[str, ...]) -> None:
    """kube-state-metrics scraped without honor_labels names each node by the label that the scrape has renamed."""
    series: list[One] = []
    for number, load in LOADS.items():
        series += machine(load, instance=f"10.0.0.{number}:9100", job="node-exporter")
        info = constant("kube_node_info", node=f"node-{number}", internal_ip=f"10.0.0.{number}")
        series += scraped([info], **kube_state_target(*names))
    with run_prometheus(tmp_path, lines(series)) as url:
        provider = provider_at(url)
        found = fetched(provider)
        assert all(step.ok for step in provider.check())
    assert (loads(found), found.findings) == (NODES, ())


@pytest.mark.parametrize("label", ["node", "instance", "Hostname"])
def test_federated_series_keep_their_own_labels(tmp_path: Path, label: str) -> None:
    """Series that were scraped from another Prometheus without honor_labels are named by their own labels."""
    series: list[One] = []
    for number, load in LOADS.items():
        own = machine(load, **{label: f"node-{number}"})
        series += scraped(own, job="federate", instance="prometheus:9090", node="node-2", Hostname="prometheus-0")
    with run_prometheus(tmp_path, lines(series)) as url:
        found = fetched(provider_at(url))
        named = fetched(provider_at(url, node_label=f"exported_{label}"))
    assert (loads(found), found.findings) == (NODES, ())
    assert loads(named) == NODES


@pytest.mark.parametrize("names", TARGETS, ids="-".join)
def test_pods_and_their_workloads_are_named_by_their_own_labels(tmp_path: Path, names: tuple[str, ...]) -> None:
    """Pods, requests and use are the objects' own, without honor_labels at kube-state-metrics and cAdvisor.

    The sums of pods and of the node, to which such a scrape gives the labels of the target, are no containers.
    """
    pods = {"web-5d4c7b9f6-aaaa1": 0.5, "web-5d4c7b9f6-bbbb2": 0.25}
    state: list[One] = [replica_set()]
    containers: list[One] = list(container("", 9, 9e9, namespace="", container="", id="/"))
    for pod, cores in pods.items():
        state += pod_info(pod)
        containers += container(pod, cores, 1e8)
        containers += container(pod, 7, 7e9, container="", id=f"/{pod}/sum")
    other = {"node": "node-1", "namespace": "kube-system", "pod": "cadvisor-1", "container": "cadvisor"}
    target = {name: other[name] for name in names if name in other}
    amounts = [constant("kube_node_status_allocatable", 4, node=f"node-{n}", resource="cpu") for n in LOADS]
    amounts += [constant("kube_node_status_allocatable", 1e9, node=f"node-{n}", resource="memory") for n in LOADS]
    everything = [
        *scraped(containers, **target),
        *scraped([*state, *amounts], **kube_state_target(*names)),
        *scraped([*state, *amounts], **kube_state_target(*names, pod="ksm-2", node="node-3", instance="b")),
        *container("db-0", 1, 2e8, namespace="data", job="other"),  # a second job, which keeps the labels
    ]
    with run_prometheus(tmp_path, lines(everything)) as url:
        provider = provider_at(url)
        use = uses(provider)
        source = KubeStatePods(provider.series, "")
        running, capacity = source.running(Deadline.after(20)), source.capacity(Deadline.after(20))
        end = int(time.time()) // 300 * 300
        past = list(provider.past_pod_use(range(end - 600, end + 1, 300), 20))
    of_web = {("shop", pod, "main"): (cores, 1e8) for pod, cores in pods.items()}
    assert use == {**of_web, ("data", "db-0", "main"): (1, 2e8)}
    assert {key: pod.template.workload for key, pod in running.items()} == dict.fromkeys(
        (PodKey("shop", pod) for pod in pods), Workload("shop", "Deployment", "web")
    )
    assert [pod.template.containers[0].cpu_request_milli for pod in running.values()] == [500, 500]
    assert {pod.uid for pod in running.values()} == {f"uid-{pod}" for pod in pods}
    assert capacity == (12, 3e9)
    keys = [key for _, part in past for key in zip(part.namespaces, part.pods, part.containers, strict=True)]
    assert sorted(keys) == sorted(use)


def exporters() -> Iterator[One]:
    """Yield node_exporter's series of the three nodes, by address, and kube-state-metrics' addresses of the nodes."""
    for number, load in LOADS.items():
        yield from machine(load, instance=f"10.0.0.{number}:9100", job="node-exporter")
        yield constant("kube_node_info", node=f"node-{number}", internal_ip=f"10.0.0.{number}")


@pytest.mark.parametrize("spell", [str.upper, str.title, str.lower], ids=["upper", "title", "lower"])
@pytest.mark.parametrize("label", ["nodename", "instance", "node"])
def test_host_names_have_no_case(tmp_path: Path, spell: Callable[[str], str], label: str) -> None:
    """A series belongs to the listed node of its name in any case: Azure's host names end with a capital letter."""
    for listed in (str.lower, str.title):
        series: list[One] = []
        for number, load in LOADS.items():
            host, instance = spell(f"node-{number}"), f"10.244.3.{number}:9100"
            names = {"nodename": {}, "instance": {"instance": f"{host}:9100"}, "node": {"node": host}}[label]
            series += machine(load, **{"instance": instance, **names})
            if label == "nodename":
                series.append(constant("node_uname_info", instance=instance, nodename=host))
            series.append(constant("kube_node_info", node=listed(f"node-{number}")))
        folder = tmp_path / listed.__name__
        folder.mkdir()
        with run_prometheus(folder, lines(series, minutes=8)) as url:
            found = fetched(provider_at(url))
        assert (loads(found), found.findings) == ({listed(name): load for name, load in NODES.items()}, ())


GPUS = {"node-1": 97.0, "node-2": 10.0}


@pytest.mark.parametrize("layout", ["pod", "address", "exported", "target node"])
def test_series_of_gpus_are_those_of_the_exporters_node(tmp_path: Path, layout: str) -> None:
    """GPU series of an exporter's pod belong to the pod's node; those of an unknown host belong to no node."""
    series = list(exporters())
    for number, load in ((1, 97), (2, 10)):
        pod = f"nvidia-dcgm-exporter-abc{number}"
        info = {"namespace": "gpu", "pod": pod, "node": f"node-{number}", "pod_ip": f"10.244.{number}.9"}
        state = constant("kube_pod_info", **info, created_by_kind="DaemonSet", created_by_name="dcgm")
        series += scraped([state], **kube_state_target("node", "pod", "namespace")) if layout == "exported" else [state]
        labels = {"gpu": "0", "instance": f"10.244.{number}.9:9400"}
        labels |= {} if layout == "address" else {"Hostname": pod, "pod": pod, "namespace": "gpu"}
        if layout == "target node":
            labels |= {"node": f"node-{number}", "exported_pod": "training-0", "exported_namespace": "ml"}
        series.append(constant("DCGM_FI_DEV_GPU_UTIL", load, **labels))
    series.append(constant("DCGM_FI_DEV_GPU_UTIL", 50, gpu="0", Hostname="elsewhere", instance="10.9.9.9:9400"))
    central = {"namespace": "gpu", "pod": "central-5d4c7b9f6-x", "node": "node-3", "pod_ip": "10.244.3.9"}
    series.append(constant("kube_pod_info", **central, created_by_kind="ReplicaSet", created_by_name="central"))
    series.append(constant("DCGM_FI_DEV_GPU_UTIL", 50, gpu="1", Hostname="central-5d4c7b9f6-x"))
    with run_prometheus(tmp_path, lines(series)) as url:
        provider = provider_at(url)
        with ThreadPoolExecutor(3) as windows:  # all windows are fetched at the same time
            found = [*windows.map(fetched, [provider] * 3, (5, 10, 15)), fetched(provider)]
        steps = {step.step: step for step in provider_at(url).check()}
        assert past_loads(provider_at(url), "GPU") == GPUS
    for each in found:
        assert (loads(each), loads(each, MetricType.GPU)) == (NODES, GPUS)
        assert {one.node for one in each.findings} == {"elsewhere", "central-5d4c7b9f6-x"}
        assert {(one.kind, one.action) for one in each.findings} == {(Kind.UNMATCHED_NODE, Action.DROPPED)}
    assert "elsewhere" in "\n".join(steps["query GPU: node names"].details)
    assert steps["query CPU: node names"].ok


@pytest.mark.parametrize("ruled", [(1,), (1, 2), (1, 2, 3)])
def test_each_node_has_the_first_expression_that_knows_it(tmp_path: Path, ruled: tuple[int, ...]) -> None:
    """Recording rules for some of the nodes do not hide the raw series of the others; doctor names unmeasured nodes."""
    series = [*exporters(), constant("kube_node_info", node="node-4", internal_ip="10.0.0.4")]
    for number in ruled:
        instance = {"instance": f"10.0.0.{number}:9100"}
        series.append(constant("instance:node_cpu:ratio", LOADS[number] / 100, **instance))
        series.append(constant("instance:node_memory_utilisation:ratio", 0.5, **instance))
    with run_prometheus(tmp_path, lines(series)) as url:
        provider = provider_at(url)
        found = [fetched(provider) for _ in range(2)]
        steps = {step.step: step for step in provider.check()}
        assert past_loads(provider, "CPU") == past_loads(provider, "CPU") == NODES
    for each in found:
        assert (loads(each), each.findings) == (NODES, ())
        assert loads(each, MetricType.MEMORY) == dict.fromkeys(NODES, 50.0)
        assert {node for node, metrics in each.nodes.items() if "step" in metrics.tags} == {
            f"node-{number}" for number in LOADS if number not in ruled
        }
    assert not steps["query CPU: node names"].ok
    assert "node-4" in steps["query CPU: node names"].message


@pytest.mark.parametrize("options", [{}, {"node_label": "instance"}], ids=["default", "named label"])
def test_a_name_in_instance_is_never_replaced_by_a_host_name(tmp_path: Path, options: dict[str, str]) -> None:
    """Without kube-state-metrics an instance that is a name stays; only an address becomes a host name."""
    series: list[One] = []
    for number, load in LOADS.items():
        series += machine(load, instance=f"node-{number}")
        series.append(constant("node_uname_info", instance=f"node-{number}", nodename=f"ip-10-0-0-{number}"))
    series += machine(40, instance="10.0.0.4:9100")
    series.append(constant("node_uname_info", instance="10.0.0.4:9100", nodename="ip-10-0-0-4"))
    with run_prometheus(tmp_path, lines(series)) as url:
        found = fetched(provider_at(url, **options))
    assert loads(found) == {**NODES, "10.0.0.4" if options else "ip-10-0-0-4": 40.0}


@pytest.mark.parametrize("target", [{}, {"node": "node-{}"}], ids=["address", "node"])
def test_kubelets_alone_measure_their_nodes(tmp_path: Path, target: Labels) -> None:
    """Without node_exporter a node's use is that of its root cgroup, as a share of the machine."""
    series: list[One] = []
    for number, load in LOADS.items():
        labels = {name: value.format(number) for name, value in target.items()}
        labels |= {"instance": f"10.0.0.{number}:10250", "job": "kubelet"}
        series.append(counter("container_cpu_usage_seconds_total", 4 * load / 100, {**labels, "id": "/"}))
        series.append(counter("container_cpu_usage_seconds_total", 1, {**labels, "id": "/pod", "pod": "a"}))
        series.append(constant("container_memory_working_set_bytes", 4e9, **labels, id="/"))
        series.append(constant("machine_cpu_cores", 4, **labels, machine_id="m"))
        series.append(constant("machine_memory_bytes", 8e9, **labels, machine_id="m"))
        series.append(constant("kube_node_info", node=f"node-{number}", internal_ip=f"10.0.0.{number}"))
    with run_prometheus(tmp_path, lines(series)) as url:
        provider = provider_at(url)
        found = fetched(provider)
        assert all(step.ok for step in provider.check())
    assert (loads(found), found.findings) == (NODES, ())
    assert loads(found, MetricType.MEMORY) == dict.fromkeys(NODES, 50.0)


RULES = ("instance:node_cpu:ratio", "instance:node_memory_utilisation:ratio")


def cluster(loads: Mapping[str, float], *, ruled: bool, **labels: str) -> Iterator[One]:
    """Yield the series of the machines of a cluster: load in percent by node name."""
    for name, load in loads.items():
        if ruled:
            yield constant(RULES[0], load / 100, **labels, instance=name)
            yield constant(RULES[1], 0.5, **labels, instance=name)
        else:
            yield from machine(load, **{"instance": name} | labels)


@pytest.mark.parametrize("ruled", [False, True], ids=["raw", "rules"])
def test_machines_of_two_clusters_are_no_node(tmp_path: Path, ruled: bool) -> None:
    """A name in two clusters is suspect; the finding and doctor name label and setting, with which it is right."""
    series = [*cluster({"node-1": 90, "node-2": 50}, ruled=ruled, cluster="a"),
              *cluster({"node-1": 10, "node-3": 20}, ruled=ruled, cluster="b")]  # fmt: skip
    with run_prometheus(tmp_path, lines(series)) as url:
        provider = provider_at(url)
        found = fetched(provider)
        steps = {step.step: step for step in provider_at(url).check()}
        remedied = provider_at(url, matchers='cluster="a"')
        right, steps_then = fetched(remedied), list(remedied.check())
        names = provider._shared_names
        names._found = {node: replace(name, since=name.since - 3600) for node, name in names._found.items()}
        later = fetched(provider)
    assert {node: metrics.metadata.get("suspect") for node, metrics in found.nodes.items()} == {
        "node-1": "duplicate", "node-2": None, "node-3": None
    }  # fmt: skip
    marked = [finding for finding in found.findings if finding.action is Action.MARKED]
    assert {(finding.kind, finding.node) for finding in marked} == {(Kind.DUPLICATE, "node-1")}
    step = steps["one machine for each name"]
    for message in (marked[0].message, step.message):
        assert "differ in cluster" in message
        assert 'set prometheus.matchers to one, such as cluster="a"' in message
    assert not step.ok
    assert (loads(right), right.findings) == ({"node-1": 90.0, "node-2": 50.0}, ())
    assert all(step.ok for step in steps_then)
    assert set(later.nodes) == {"node-2", "node-3"}
    assert Action.DROPPED in {finding.action for finding in later.findings if finding.node == "node-1"}
    serving = SimpleNamespace(
        windows=("5m",),
        findings=lambda: later.findings,
        published=lambda _window: SimpleNamespace(node_body=lambda _host, _dialect: None),
    )
    with pytest.raises(NotServed, match=r"several machines"):
        NodeViews(cast("Watcher", serving), Dialect.DOCUMENTED).one_node("/watcher", "node-1", None)


def test_never_are_all_nodes_refused(tmp_path: Path) -> None:
    """If half of the names have several machines, all nodes stay suspect, also next to a node of one cluster only."""
    series: list[One] = []
    for number, (name, load) in enumerate((("a", 90.0), ("b", 10.0))):
        for node in (1, 2):
            series += machine(load, instance=f"10.{number}.0.{node}:9100", cluster=name)
            info = {"node": f"node-{node}", "internal_ip": f"10.{number}.0.{node}", "cluster": name}
            series.append(constant("kube_node_info", **info))
    series += machine(50.0, instance="10.1.0.3:9100", cluster="b")
    series.append(constant("kube_node_info", node="node-3", internal_ip="10.1.0.3", cluster="b"))
    with run_prometheus(tmp_path, lines(series)) as url:
        provider = provider_at(url)
        fetched(provider)
        names = provider._shared_names
        names._found = {node: replace(name, since=name.since - 7200) for node, name in names._found.items()}
        found = fetched(provider)
    assert {node: metrics.metadata.get("suspect") for node, metrics in found.nodes.items()} == {
        "node-1": "duplicate", "node-2": "duplicate", "node-3": None
    }  # fmt: skip


def shifted(series: Iterable[One], seconds: int, **labels: str) -> Iterator[One]:
    """Yield series as another server has scraped them, some seconds later."""
    for name, own, value in series:
        yield name, {**own, **labels}, lambda after, value=value: value(after + seconds)  # type: ignore[misc]


@pytest.mark.parametrize("offset", [0, 7, 15])
def test_replicas_of_a_whole_cluster_are_no_machines(tmp_path: Path, offset: int) -> None:
    """Two Prometheus servers that scrape the same nodes at different moments are no finding, under a changing load."""

    def busy(number: int) -> Iterator[One]:
        def seconds(after: int, share: float) -> float:
            return 1000 + after * share + 60 * share * np.sin(after / 60 + number)

        for mode, share in (("user", 0.3), ("idle", 0.7)):
            labels = {"instance": f"node-{number}", "cpu": "0", "mode": mode}
            yield "node_cpu_seconds_total", labels, lambda after, share=share: seconds(after, share)
        yield constant("node_memory_MemTotal_bytes", 16e9, instance=f"node-{number}")
        available = lambda after: 8e9 + 2e9 * np.sin(after / 90 + number)  # noqa: E731
        yield "node_memory_MemAvailable_bytes", {"instance": f"node-{number}"}, available

    series: list[One] = []
    for number in LOADS:
        series += [*shifted(busy(number), 0, replica="0"), *shifted(busy(number), offset, replica="1")]
    with run_prometheus(tmp_path, lines(series)) as url:
        provider = provider_at(url)
        found = fetched(provider)
        assert all(step.ok for step in provider.check())
    assert set(found.nodes) == set(NODES)
    assert found.findings == ()
    assert not any("suspect" in metrics.metadata for metrics in found.nodes.values())


def part(series: Iterable[One], first: int, last: int, **labels: str) -> Iterator[One]:
    """Yield a part of the time of series, with further labels."""
    for name, own, value in series:
        yield name, {**own, **labels}, lambda after, value=value: value(after) if first <= after < last else None  # type: ignore[misc]


def ruled(load: float, /, **labels: str) -> Iterator[One]:
    """Yield the recording rules of a machine; load in percent."""
    yield constant("instance:node_cpu:ratio", load / 100, **labels)
    yield constant("instance:node_memory_utilisation:ratio", load / 100, **labels)


@pytest.mark.parametrize("kind", [machine, ruled], ids=["raw", "rules"])
@pytest.mark.parametrize("minutes", [2, 6, 12, 60])
def test_a_node_that_was_created_again_is_its_newest_machine(
    tmp_path: Path, minutes: int, kind: Callable[..., Iterator[One]]
) -> None:
    """Series of one name that follow each other are no finding, and only the newest has the node's load."""
    change = (80 - minutes) * 60
    series = [*part(kind(90, node="node-1"), 0, change - 120, instance="10.0.0.1:9100"),
              *part(kind(10, node="node-1"), change, 80 * 60, instance="10.0.0.9:9100")]  # fmt: skip
    with run_prometheus(tmp_path, lines(series, minutes=80)) as url:
        provider = provider_at(url)
        for window in (15, 10, 5):
            found = fetched(provider, window)
            assert (loads(found), found.findings) == ({"node-1": 10.0}, ())
            assert "suspect" not in found.nodes["node-1"].metadata
            assert found.nodes["node-1"].metadata.get("coverage", 1) == pytest.approx(
                min(1, minutes / window), abs=1 / window
            )
        end = int(time.time()) // 60 * 60
        past = provider.past("15m", range(end - 1800, end, 60), Deadline.after(20))
    (past_cpu,) = (
        values[0] for (type_, operator, _), values in past.series.items() if (type_, operator) == ("CPU", "AVG")
    )
    assert set(past_cpu[np.isfinite(past_cpu)].round(1)) <= {90.0, 10.0}


@pytest.mark.parametrize("is_again", [False, True], ids=["deleted", "created again"])
@pytest.mark.parametrize("kind", [machine, ruled], ids=["raw", "rules"])
def test_series_of_a_machine_that_is_gone_are_no_finding(
    tmp_path: Path, kind: Callable[..., Iterator[One]], is_again: bool
) -> None:
    """The addresses of deleted machines stay in windows for a while, and are neither a node nor a finding."""
    gone = (MINUTES - 8) * 60
    series: list[One] = [constant("kube_node_info", node=f"node-{n}", internal_ip=f"10.0.0.{n}") for n in LOADS]
    series += [one for number, load in LOADS.items() for one in kind(load, instance=f"10.0.0.{number}:9100")]
    series += part(kind(70, instance="10.0.0.9:9100"), 0, gone)
    earlier = constant("kube_node_info", node="node-1" if is_again else "node-9", internal_ip="10.0.0.9")
    series += part([earlier], 0, gone)
    with run_prometheus(tmp_path, lines(series)) as url:
        provider = provider_at(url)
        found = [fetched(provider, window) for window in (15, 10, 5)]
    for each in found:
        assert (loads(each), each.findings) == (NODES, ())


def state(honored: bool = True) -> Iterator[One]:
    """Yield kube-state-metrics' series of nodes and a pod, with cAdvisor's of the pod."""
    pod = "web-5d4c7b9f6-aaaa1"
    infos = [constant("kube_node_info", node=f"node-{n}", internal_ip=f"10.0.0.{n}") for n in LOADS]
    objects = [*infos, replica_set(), *pod_info(pod)]
    yield from objects if honored else scraped(objects, **kube_state_target("node", "pod", "namespace"))
    yield from container(pod, 0.5, 1e8, node="node-1", instance="10.0.0.1:10250")
    yield from container("", 2, 8e9, namespace="", container="", id="/", node="node-1", instance="10.0.0.1:10250")


LAYOUTS: dict[str, Callable[[int], Labels]] = {
    "kube-prometheus": lambda number: {"instance": f"10.0.0.{number}:9100", "pod": f"e-{number}"},
    "chart prometheus": lambda number: {"instance": f"10.0.0.{number}:9100", "node": f"node-{number}"},
    "qualified": lambda number: {"instance": f"node-{number}.example.com:9100"},
}  # fmt: skip


@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_common_layouts_are_right_without_settings(tmp_path: Path, layout: str, replicas: int) -> None:
    """Nodes and pods have their names and values without a finding, also from two replicas of Prometheus."""
    series: list[One] = list(state())
    for number, load in LOADS.items():
        series += machine(load, job="node-exporter", **LAYOUTS[layout](number))
    if replicas > 1:
        series = [one for each in range(replicas) for one in shifted(series, 0, replica=f"prometheus-{each}")]
    with run_prometheus(tmp_path, lines(series)) as url:
        provider = provider_at(url)
        found = [fetched(provider) for _ in range(2)]
        use, steps = uses(provider), list(provider.check())
    for each in found:
        assert (loads(each), each.findings) == (NODES, ())
        assert loads(each, MetricType.MEMORY) == dict.fromkeys(NODES, 50.0)
    assert use == {("shop", "web-5d4c7b9f6-aaaa1", "main"): (0.5, 1e8)}
    assert all(step.ok for step in steps)


@pytest.mark.parametrize("offset", range(0, 16, 3))
def test_one_pair_of_replicas_is_no_finding(tmp_path: Path, offset: int) -> None:
    """A node that two servers scrape up to a scrape interval apart, under a changing load, is no finding."""

    def swinging(number: int, replica: int) -> Iterator[One]:
        labels = {"instance": f"10.0.0.{number}:9100", "cpu": "0", "replica": str(replica)}
        for mode, sign in (("user", 1), ("idle", -1)):

            def seconds(after: int, sign: int = sign) -> float:
                at = after + replica * offset
                return 1000 + at / 2 + sign * 30 * float(np.sin(at / 90))

            yield "node_cpu_seconds_total", {**labels, "mode": mode}, seconds
        del labels["cpu"]
        yield constant("node_memory_MemTotal_bytes", 16e9, **labels)
        yield (
            "node_memory_MemAvailable_bytes",
            labels,
            lambda after: 8e9 + 4e9 * float(np.sin((after + replica * offset) / 60)),
        )

    series = [*state(), *exporters(), *swinging(9, 0), *swinging(9, 1)]
    series.append(constant("kube_node_info", node="node-9", internal_ip="10.0.0.9"))
    with run_prometheus(tmp_path, lines(series)) as url:
        provider = provider_at(url)
        found = fetched(provider)
        assert all(step.ok for step in provider.check())
    assert (set(found.nodes), found.findings) == ({*NODES, "node-9"}, ())


def test_clusters_that_no_label_tells_apart_are_no_longer_served(tmp_path: Path) -> None:
    """Equal names of two clusters without a label of the cluster are a finding, and are not served an hour later."""
    series: list[One] = [*exporters(), *state()]
    series += machine(80, instance="10.9.0.2:9100", node="node-2", job="node-exporter")
    with run_prometheus(tmp_path, lines(series)) as url:
        provider = provider_at(url)
        first = fetched(provider)
        names = provider._shared_names
        names._found = {node: replace(name, since=name.since - 3600) for node, name in names._found.items()}
        later = fetched(provider)
        steps = {step.step: step for step in provider_at(url).check()}
    assert first.nodes["node-2"].metadata["suspect"] == "duplicate"
    assert set(later.nodes) == {"node-1", "node-3"}
    assert not steps["one machine for each name"].ok
    assert "80 and 10" in steps["one machine for each name"].message


def kubelet(number: int, load: float, **labels: str) -> Iterator[One]:
    """Yield cAdvisor's series of a node with four processors and 16 GB; load in percent."""
    own = {"instance": f"10.0.0.{number}:10250", "node": f"node-{number}", "job": "kubelet", **labels}
    yield counter("container_cpu_usage_seconds_total", load / 25, {**own, "id": "/", "cpu": "total"})
    yield constant("container_memory_working_set_bytes", 16e9 * load / 100, id="/", **own)
    yield constant("machine_cpu_cores", 4, **own, machine_id="m", boot_id="b", system_uuid="s")
    yield constant("machine_memory_bytes", 16e9, **own, machine_id="m", boot_id="b", system_uuid="s")


@pytest.mark.parametrize(("label", "factor", "suspect"), [("cluster", 0.25, "duplicate"), ("replica", 1, None)])
def test_kubelets_of_two_clusters_are_a_finding(tmp_path: Path, label: str, factor: float, suspect: str | None) -> None:
    """Without node_exporter, kubelets of equal node names are found as well; replicas of one cluster are no finding."""
    series: list[One] = list(state())
    for number, load in LOADS.items():
        series += shifted(kubelet(number, load), 0, **{label: "a"})
        series += shifted(kubelet(number, load * factor), 7, **{label: "b"})
    with run_prometheus(tmp_path, lines(series)) as url:
        found = fetched(provider_at(url))
    marks = {node: metrics.metadata.get("suspect") for node, metrics in found.nodes.items()}
    assert marks["node-1"] == suspect
    assert bool(found.findings) == bool(suspect)


@pytest.mark.parametrize("query", ["own_ratio{$matchers}", "own_ratio * 1", "sum by (node, cluster) (own_ratio)"])
def test_custom_series_of_two_clusters_are_a_finding(tmp_path: Path, query: str) -> None:
    """A custom query with a series for each cluster does not give the mean of both without saying so."""
    series: list[One] = [*exporters(), *state()]
    series += [
        constant("own_ratio", ratio, node=node, cluster=cluster)
        for node in NODES
        for cluster, ratio in (("a", 0.9), ("b", 0.1))
    ]
    own = [PrometheusQuery(name="own", type="CPU", query=query)]
    with run_prometheus(tmp_path, lines(series)) as url:
        settings = Settings(
            provider=ProviderSettings(name="Prometheus", address=url), prometheus=PrometheusSettings(queries=own)
        )
        found = fetched(PrometheusProvider(settings))
    assert {metrics.metadata.get("suspect") for metrics in found.nodes.values()} == {"duplicate"}
    assert any("cluster" in finding.message for finding in found.findings)


@pytest.mark.parametrize("name", ["DCGM_FI_DEV_GPU_UTIL", "node_memory_MemAvailable_bytes"])
def test_a_wrong_sample_of_one_device_or_replica_is_left_out(tmp_path: Path, name: str) -> None:
    """The other GPUs, or the other replica, do not hide wrong samples of one of them in their average."""
    is_gpu = name.startswith("DCGM")
    right, wrong = (90.0, -50.0) if is_gpu else (8e9, -12e9)  # of 16e9 bytes
    series = [*exporters(), *state()]
    if not is_gpu:
        series = [one for one in shifted(series, 0, replica="0") if one[0] != name]
    for number in LOADS:
        own = {"instance": f"10.0.0.{number}:9100", "job": "node-exporter"}
        for each in "0123":
            is_odd = number == 1 and each == "0"

            def value(after: int, is_odd: bool = is_odd) -> float:
                return wrong if is_odd and after // 15 % 2 else right

            series.append((name, {**own, ("gpu" if is_gpu else "replica"): each}, value))
            if not is_gpu and each != "0":
                series += [constant("node_memory_MemTotal_bytes", 16e9, **own, replica=each)]
    with run_prometheus(tmp_path, lines(series)) as url:
        found = fetched(provider_at(url))
    assert loads(found, MetricType.GPU if is_gpu else MetricType.MEMORY) == dict.fromkeys(
        NODES, 90.0 if is_gpu else 50.0
    )
    assert [(finding.kind, finding.node) for finding in found.findings] == [(Kind.OUT_OF_RANGE, "node-1")]


def test_series_in_which_two_machines_alternate_are_a_finding(tmp_path: Path) -> None:
    """Samples of two clusters in series of the same labels are no machine's load."""

    def mixed(instance: str) -> Iterator[One]:
        for mode, first, second in (("user", 0.9, 0.1), ("idle", 0.1, 0.9)):

            def seconds(after: int, first: float = first, second: float = second) -> float:
                return 5e5 + after * first if after // 15 % 2 else 1e5 + after * second

            yield "node_cpu_seconds_total", {"instance": instance, "cpu": "0", "mode": mode}, seconds
        yield constant("node_memory_MemTotal_bytes", 16e9, instance=instance)
        yield constant("node_memory_MemAvailable_bytes", 8e9, instance=instance)

    series = [*exporters(), *mixed("10.0.0.4:9100"), constant("kube_node_info", node="node-4", internal_ip="10.0.0.4")]
    with run_prometheus(tmp_path, lines(series)) as url:
        provider = provider_at(url)
        found = fetched(provider)
        steps = {step.step: step for step in provider.check()}
    assert found.nodes["node-4"].metadata["suspect"] == "duplicate"
    assert "no label" in steps["one machine for each name"].message
    assert not steps["one machine for each name"].ok
